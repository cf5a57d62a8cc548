"""The journal: runs, their steps, the events that started them, and the audit log, in the database of the entities.

A step is written in the transaction of its writes. A run has a lease, and each taking of it a number: a process that
lost its lease can commit nothing more.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Column, Connection, Double, Integer, Table, Text

from oauthbroker import Turn
from oauthbroker.flowtools.failures import Actor

META = sa.MetaData()
RUNNING, FAILING, SUCCEEDED, FAILED = "running", "failing", "succeeded", "failed"
ESCALATED, UNKNOWN, PARKED = "escalated", "unknown", "parked"
ENDED: Final = (SUCCEEDED, FAILED, UNKNOWN)
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
AUDIT = Table(
    "flow_audit",
    META,
    Column("number", Integer, primary_key=True),
    *(Column(name, Text, nullable=False) for name in ("tool", "outcome")),
    Column("run", Text, index=True),
    *(Column(name, Text) for name in ("actor", "code")),
    Column("version", Integer, nullable=False),
    Column("at", Double, nullable=False),
)
EVENT = Table(
    "flow_event",
    META,
    *(Column(name, Text, primary_key=True) for name in ("tool", "event")),
    Column("run", Text, nullable=False),
)
DONE, SENT, RETRY, WAITS = "done", "sent", "retry", "waits"


class LeaseLost(Exception):
    """Another process has taken the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStep:
    """A step of a run. An external one is `sent` before it is sent, and `done` with its answer; `retry` is known
    to have had no effect; `unknown` may have had one; `waits` was not sent, its value is `{session, app}`."""

    state: str
    value: Any = field(repr=False)
    attempts: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """A run as it is stored."""

    id: str
    tool: str
    version: int
    digest: str
    key: str | None
    actor: Actor | None
    input: Any = field(repr=False)
    state: str
    output: Any = field(repr=False)
    code: str | None
    message: str | None
    notes: tuple[str, ...]
    taken: int
    started: float
    due: float | None
    ended: float | None
    takes: int
    generation: int
    freed: int
    origin: str
    failure: str | None
    cancel: str | None
    caller: str | None
    subject: str | None


def insert_run(connection: Connection, values: Mapping[str, Any], actor: Actor | None) -> None:
    turn = actor.turn.resume_target.to_json() if actor and actor.turn else None
    told = None if actor is None else json.dumps(_told(actor, turn))
    stored = {name: _stored(name, each) for name, each in values.items()}
    untaken = {"taken": 0, "takes": 0, "generation": 0, "freed": 0, "due": values["started"], "actor": told}
    connection.execute(sa.insert(RUN).values(**untaken | person_of(told) | stored))


def person_of(actor: str | None) -> dict[str, str | None]:
    """Return the caller and the user of a stored actor, by which an erasure finds a run."""
    said = json.loads(actor) if actor else {}
    subjects = ((said.get("turn") or {}).get("auth") or {}).get("subjects", {})
    return {"caller": said.get("id"), "subject": subjects.get("user")}


def _told(actor: Actor, turn: Any) -> dict[str, Any]:
    told = {"id": actor.id, "roles": sorted(actor.roles), "turn": turn}
    return told | ({"repeats": True} if actor.repeats else {})


def parked_runs(connection: Connection, digest: str, data: Any) -> list[RunRecord]:
    """Return the parked runs of a version with this input, the oldest first."""
    wanted = sa.select(RUN).filter_by(digest=digest, state=PARKED, input=json.dumps(data)).order_by(RUN.c.started)
    return [_record(each) for each in connection.execute(wanted).mappings()]


def find_run(connection: Connection, **where: Any) -> RunRecord | None:
    found = connection.execute(sa.select(RUN).filter_by(**where)).mappings().first()
    return None if found is None else _record(found)


def run_of_event(connection: Connection, tool: str, event: str) -> RunRecord | None:
    """Return the run that took an event of a tool; None if it is new."""
    taken = sa.select(EVENT.c.run).where(EVENT.c.tool == tool, EVENT.c.event == event).scalar_subquery()
    return find_run(connection, id=taken)


def take_event(connection: Connection, tool: str, event: str, run: str) -> None:
    """Write that a run has taken an event. It has, also after it failed."""
    connection.execute(sa.insert(EVENT).values(tool=tool, event=event, run=run))


def list_runs(connection: Connection, limit: int, **where: Any) -> list[RunRecord]:
    """Return the newest runs; none from a database without runs."""
    if not sa.inspect(connection).has_table(RUN.name):
        return []
    wanted = sa.select(RUN).filter_by(**where).order_by(RUN.c.started.desc(), RUN.c.id).limit(limit)
    return [_record(each) for each in connection.execute(wanted).mappings()]


def runs_since(connection: Connection, tool: str, when: float) -> int:
    wanted = sa.select(sa.func.count()).select_from(RUN).where(RUN.c.tool == tool, RUN.c.started > when)
    return int(connection.execute(wanted).scalar_one())


def left_runs(connection: Connection, before: float) -> list[tuple[RunRecord, str]]:
    """Return the oldest runs that no process works on: those whose lease ended before a time, and parked ones, each
    with the auth session that it waits for."""
    wanted = sa.select(RUN).where((RUN.c.due < before) | (RUN.c.state == PARKED), RUN.c.state != ESCALATED)
    rows = connection.execute(wanted.order_by(RUN.c.started).limit(500)).mappings()
    found = [run for run in map(_record, rows) if not (run.state == PARKED and run.actor and run.actor.repeats)]
    return [(run, waits_for(steps_of(connection, run.id)) if run.state == PARKED else "") for run in found]


def waits_for(steps: Mapping[str, RunStep]) -> str:
    """Return the auth session that a run waits for; empty if it waits for none."""
    return next((str(step.value["session"]) for step in steps.values() if step.state == WAITS), "")


def change_run(connection: Connection, run: RunRecord, **values: Any) -> None:
    """Change a run that this process has taken. Raises LeaseLost if another one has taken it since."""
    mine = sa.update(RUN).where(RUN.c.id == run.id, RUN.c.taken == run.taken)
    changed = connection.execute(mine.values(**{name: _stored(name, each) for name, each in values.items()}))
    if changed.rowcount != 1:
        raise LeaseLost(run.id)


def steps_of(connection: Connection, run: str) -> dict[str, RunStep]:
    found = connection.execute(sa.select(STEP).where(STEP.c.run == run))
    return {
        each.node: RunStep(state=each.state, value=json.loads(each.value), attempts=each.attempts, rows=each.rows)
        for each in found
    }


def write_step(connection: Connection, run: str, node: str, step: RunStep, *, new: bool) -> None:
    values = {"state": step.state, "value": json.dumps(step.value), "attempts": step.attempts, "rows": step.rows}
    statement = sa.insert(STEP).values(run=run, node=node, **values)
    if not new:
        statement = sa.update(STEP).where(STEP.c.run == run, STEP.c.node == node).values(**values)  # type: ignore[assignment]
    connection.execute(statement)


def write_audit(connection: Connection, **values: Any) -> None:
    """Add an entry: who called which tool, when, and how it ended. It has no input and no output."""
    connection.execute(sa.insert(AUDIT).values(**values))


def _stored(name: str, value: Any) -> Any:
    return json.dumps(value) if name in {"input", "output", "notes"} else value


def _record(row: Any) -> RunRecord:
    read = {name: row[name] and json.loads(row[name]) for name in ("actor", "input", "output", "notes")}
    said, actor = read["actor"], None
    if said is not None:
        turn = Turn.from_json(said["turn"]) if said.get("turn") else None
        actor = Actor(id=said["id"], roles=frozenset(said["roles"]), turn=turn, repeats=said.get("repeats", False))
    return RunRecord(**{**row, **read, "actor": actor, "notes": tuple(read["notes"])})
