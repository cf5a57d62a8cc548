"""The journal: runs, their steps, and the events that started them. A step is written in the transaction of its writes.
How a run gets from state to state is in `lifecycle`."""

from __future__ import annotations

import hmac
import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Column, ColumnElement, Connection, Double, Integer, Table, Text

from oauthbroker import Turn
from oauthbroker.flowtools.entities.database import Database
from oauthbroker.flowtools.specification.failures import Actor

META = sa.MetaData()
RUNNING, FAILING, SUCCEEDED, FAILED = "running", "failing", "succeeded", "failed"
ESCALATED, UNKNOWN, WAITING = "escalated", "unknown", "waiting"
ENDED: Final = (SUCCEEDED, FAILED, UNKNOWN)
STATES: Final = (RUNNING, FAILING, *ENDED, ESCALATED, WAITING)
# `due` is the time at which a process has to look at the run: the end of a lease, or the deadline of a wait.
# `taken` is the token of the process that has the run, `takes` counts those since its last step. `origin` is call, key,
# event, agent or person. `freed`: the key is free. `caller` and `subject` name the person, for an erasure.
KEPT: Final = sa.text("input <> 'null'")  # its retention is not over
RUN = Table(
    "flow_run",
    META,
    Column("id", Text, primary_key=True),
    *(Column(name, Text, nullable=False) for name in ("tool", "digest", "input", "state", "notes", "origin")),
    *(Column(name, Text) for name in ("key", "actor", "output", "code", "message", "failure", "cancel")),
    *(Column(name, Text, index=True) for name in ("caller", "subject")),
    *(Column(name, Integer, nullable=False) for name in ("version", "taken", "takes", "generation", "freed")),
    Column("started", Double, nullable=False, index=True),
    *(Column(name, Double) for name in ("due", "ended")),
    sa.UniqueConstraint("tool", "key", "generation"),
    sa.CheckConstraint("(due IS NULL) = (state IN ('succeeded', 'failed', 'unknown'))"),
    sa.CheckConstraint("(due IS NULL) = (ended IS NOT NULL)"),
    sa.Index("ix_flow_run_due", "due"),
    sa.Index("ix_flow_run_kept", "ended", sqlite_where=KEPT, postgresql_where=KEPT),
)
STEP = Table(
    "flow_step",
    META,
    *(Column(name, Text, primary_key=True) for name in ("run", "node")),
    *(Column(name, Text, nullable=False) for name in ("state", "value")),
    *(Column(name, Integer, nullable=False) for name in ("attempts", "rows")),
    Column("generation", Integer, nullable=False, server_default="0"),
)
EVENT = Table(
    "flow_event",
    META,
    *(Column(name, Text, primary_key=True) for name in ("tool", "event")),
    Column("run", Text, nullable=False),
)
SECRET = Table("flow_secret", META, Column("name", Text, primary_key=True), Column("value", Text, nullable=False))
DONE, SENT, RETRY, WAITS = "done", "sent", "retry", "waits"
BY_CALL, BY_KEY, BY_EVENT, BY_AGENT, BY_PERSON = "call", "key", "event", "agent", "person"
_PLAIN: Final = ("state", "attempts", "rows", "generation")  # columns of a step as they are
_TEXTS: Final = frozenset({"actor", "input", "output", "notes", "failure"})  # columns of JSON


class LeaseLost(Exception):
    """Another process has taken the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStep:
    """A step. An external one is `sent` before it is sent, then `done`, `unknown`, `retry` (certainly without an
    effect), or `waits` with `{session, app}`. Its key has the `generation` in which it began."""

    state: str
    value: Any = field(repr=False)
    attempts: int = 0
    rows: int = 0
    generation: int = 0


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """A stored run. Its `texts` of JSON are read when needed: one that cannot be read keeps no run from its end."""

    id: str
    tool: str
    version: int
    digest: str
    key: str | None
    state: str
    code: str | None
    message: str | None
    origin: str
    taken: int
    takes: int
    generation: int
    freed: int
    cancel: str | None
    caller: str | None
    subject: str | None
    started: float
    due: float | None
    ended: float | None
    texts: Mapping[str, str | None] = field(repr=False)

    @cached_property
    def input(self) -> Any:
        return self._text("input")

    @cached_property
    def output(self) -> Any:
        return self._text("output")

    @cached_property
    def notes(self) -> tuple[str, ...]:
        return notes_of(self.texts["notes"])

    @cached_property
    def failure(self) -> Mapping[str, Any]:
        """Return why a run fails or failed: `{code, message}`, and `owed` if a payment was not undone. Of an
        `unknown` run, `asks` is the number of its last notes that a person answers with a retry."""
        return self._text("failure") or {}

    @cached_property
    def actor(self) -> Actor | None:
        said = self._text("actor")
        if said is None:
            return None
        turn = Turn.from_json(said["turn"]) if said.get("turn") else None
        return Actor(id=said["id"], roles=frozenset(said["roles"]), turn=turn, repeats=said.get("repeats", False))

    def changed(self, values: Mapping[str, Any]) -> RunRecord:
        """Return this run with other values of columns."""
        texts = {name: value for name, value in values.items() if name in _TEXTS}
        return replace(self, texts={**self.texts, **texts}, **{n: v for n, v in values.items() if n not in _TEXTS})

    def _text(self, name: str) -> Any:
        text = self.texts[name]
        return None if text is None else json.loads(text)


def prepare(connection: Connection) -> None:
    """Make the tables of runs that are missing. Idempotent. Raises as `exist` does."""
    exist(connection)
    META.create_all(connection)


def exist(connection: Connection) -> bool:
    """Tell whether there are tables of runs. Raises ValueError for those of a development version."""
    inspector = sa.inspect(connection)
    if not inspector.has_table(RUN.name):
        return False
    if "due" not in {each["name"] for each in inspector.get_columns(RUN.name)}:
        names = ", ".join(sorted(META.tables))
        raise ValueError(f"a development version made the tables of runs: remove {names}, then start the broker again")
    return True


def tools(connection: Connection) -> list[str]:
    """Return the names of the tools that have runs."""
    return list(connection.execute(sa.select(RUN.c.tool).distinct()).scalars())


def insert_run(connection: Connection, values: Mapping[str, Any], actor: Actor | None) -> RunRecord:
    """Store a new run, and return it as it is stored."""
    auth = actor.turn.auth if actor and actor.turn else None
    row: dict[str, Any] = dict.fromkeys(column.name for column in RUN.columns)
    row |= {"takes": 0, "freed": 0, "caller": actor and actor.id, "subject": auth and auth.subjects.get("user")}
    row |= stored({**values, "actor": actor and _actor_json(actor)})
    connection.execute(sa.insert(RUN).values(**row))
    return _record(row)


def _actor_json(actor: Actor) -> dict[str, Any]:
    turn = actor.turn.resume_target.to_json() if actor.turn else None
    actor_json = {"id": actor.id, "roles": sorted(actor.roles), "turn": turn}
    return actor_json | ({"repeats": True} if actor.repeats else {})


def find_runs(connection: Connection, *conditions: ColumnElement[bool], **where: Any) -> list[RunRecord]:
    """Return runs, the oldest first."""
    wanted = sa.select(RUN).where(*conditions).filter_by(**where).order_by(RUN.c.started)
    return [_record(each) for each in connection.execute(wanted).mappings()]


def find_run(connection: Connection, *conditions: ColumnElement[bool], **where: Any) -> RunRecord | None:
    return next(iter(find_runs(connection, *conditions, **where)), None)


def keys_of(connection: Connection, key: str | None) -> tuple[str, ...]:
    """Return an idempotency key as the database keeps it, and as it keeps that of an erased run."""
    return () if key is None else (key, hidden(connection, key))


def hidden(connection: Connection, text: str) -> str:
    """Return the keyed hash in place of a key or a caller that is erased. The database has the secret."""
    secret = connection.execute(sa.select(SECRET.c.value)).scalar()
    if secret is None:
        secret = Database.random_id(connection) + Database.random_id(connection)
        connection.execute(sa.insert(SECRET).values(name="erased", value=secret))
    return f"erased:{hmac.digest(secret.encode(), text.encode(), 'sha256').hex()[:40]}"


def next_generation(connection: Connection, tool: str, keys: Collection[str]) -> int:
    """Return the generation of the next run of a key: the effects of an earlier one, which had none, had other keys."""
    if not keys:
        return 0
    of_key = sa.select(sa.func.max(RUN.c.generation)).where(RUN.c.tool == tool, RUN.c.key.in_(keys))
    last = connection.execute(of_key).scalar()
    return 0 if last is None else int(last) + 1


def due_runs(connection: Connection, now: float, most: int) -> list[Any]:
    """Return the id and state of the runs at which a process has to look, those that wait the longest first."""
    wanted = sa.select(RUN.c.id, RUN.c.state).where(RUN.c.due <= now)
    return list(connection.execute(wanted.order_by(RUN.c.due).limit(most)))


def run_of_event(connection: Connection, tool: str, event: str) -> RunRecord | None:
    """Return the run that took an event of a tool; None if it is new."""
    taken = sa.select(EVENT.c.run).where(EVENT.c.tool == tool, EVENT.c.event == event).scalar_subquery()
    return find_run(connection, id=taken)


def take_event(connection: Connection, tool: str, event: str, run: str) -> None:
    """Write that a run has taken an event. It has, also after it failed."""
    connection.execute(sa.insert(EVENT).values(tool=tool, event=event, run=run))


def runs_since(connection: Connection, tool: str, when: float) -> int:
    wanted = sa.select(sa.func.count()).select_from(RUN).where(RUN.c.tool == tool, RUN.c.started > when)
    return int(connection.execute(wanted).scalar_one())


def waits_for(steps: Mapping[str, RunStep]) -> str:
    """Return the auth session that a run waits for; empty if it waits for none."""
    return next((str(step.value["session"]) for step in steps.values() if step.state == WAITS), "")


def steps_of(connection: Connection, run: str) -> dict[str, RunStep]:
    found = connection.execute(sa.select(STEP).where(STEP.c.run == run)).mappings()
    return {
        each["node"]: RunStep(value=json.loads(each["value"]), **{name: each[name] for name in _PLAIN})
        for each in found
    }


def step_lines(connection: Connection, run: str) -> list[Any]:
    """Return the steps of a run without their values, which may be unreadable: node, state, attempts, rows."""
    wanted = sa.select(STEP.c.node, STEP.c.state, STEP.c.attempts, STEP.c.rows).where(STEP.c.run == run)
    return list(connection.execute(wanted))


def write_step(connection: Connection, run: str, node: str, step: RunStep, *, new: bool) -> None:
    """Write a step. One that is known, and not there, was lost with a transaction that lost its race."""
    values = {name: getattr(step, name) for name in _PLAIN} | {"value": json.dumps(step.value, allow_nan=False)}
    known = sa.update(STEP).where(STEP.c.run == run, STEP.c.node == node)
    if new or connection.execute(known.values(**values)).rowcount == 0:
        connection.execute(sa.insert(STEP).values(run=run, node=node, **values))


def stored(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values of a run as its columns keep them."""
    return {
        name: json.dumps(each, allow_nan=False) if name in _TEXTS and each is not None else each
        for name, each in values.items()
    }


def notes_of(text: str | None) -> tuple[str, ...]:
    """Return the notes of a run; none for a text that cannot be read: it can end, and is shown."""
    with suppress(ValueError, TypeError):
        return tuple(json.loads(text or "[]"))
    return ()


def _record(row: Any) -> RunRecord:
    texts = {name: row[name] for name in _TEXTS}
    return RunRecord(**{name: each for name, each in row.items() if name not in _TEXTS}, texts=texts)
