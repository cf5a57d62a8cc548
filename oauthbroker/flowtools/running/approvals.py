"""A person's decision about a run that a policy has stopped: it goes on, or it ends. Each decision is made once, and
none lets the caller's own run go on."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Column, Connection, Double, Table, Text

from oauthbroker.flowtools.entities.database import Database
from oauthbroker.flowtools.running import journal, lifecycle
from oauthbroker.flowtools.running.journal import RunRecord
from oauthbroker.flowtools.running.tables import prepare
from oauthbroker.flowtools.specification.failures import Actor, FlowFailed

ASKED, APPROVED, DECLINED = "asked", "approved", "declined"
DECISION = Table(
    "flow_decision",
    journal.META,
    *(Column(name, Text, primary_key=True) for name in ("run", "policy")),
    Column("decision", Text, nullable=False),
    Column("by", Text),
    Column("at", Double),
)


class NotWaiting(ValueError):
    """No policy has stopped the run, or a person has decided already."""


class OwnRun(ValueError):
    """The person who would approve a run is its caller."""


def ask(connection: Connection, run: str, policy: str) -> None:
    """Write that a policy stops a run until a person decides. Idempotent."""
    if _decisions(connection, run, policy=policy):
        return
    connection.execute(sa.insert(DECISION).values(run=run, policy=policy, decision=ASKED))


def approved(connection: Connection, run: str) -> frozenset[str]:
    """Return the policies that a person has let this run pass."""
    return frozenset(each.policy for each in _decisions(connection, run, decision=APPROVED))


def decisions(connection: Connection, run: str) -> list[Any]:
    """Return the decisions about a run: policy, decision, by, at."""
    return _decisions(connection, run)


def approve(database: Database, run: str, *, by: str, account: str) -> None:
    """Let a run pass the policy that has stopped it. It goes on in a process that resumes runs, or with the repeated
    call. That policy does not stop it again; another one may. `by` is the name that the person gives, and `account`
    that of the operating system or the login; the record has both. Raises NotWaiting, and OwnRun
    for the caller of the run."""

    def approved(connection: Connection, found: RunRecord, now: float) -> None:
        if {_folded(by), _folded(account)} & _names_of(found.actor):
            raise OwnRun("its own caller cannot approve a run")
        lifecycle.approve(connection, found, now)

    _decide(database, run, APPROVED, _person(by, account), approved)


def decline(database: Database, run: str, *, by: str, account: str, why: str = "") -> None:
    """End a run that a policy has stopped. Its commits stay, and its charges are refunded by a process that goes on
    with runs. Its caller may do so, too. Raises NotWaiting."""
    failure = FlowFailed("declined", f"a person has declined it{': ' + why if why else ''}")
    _decide(
        database,
        run,
        DECLINED,
        _person(by, account),
        lambda connection, found, now: lifecycle.stop(connection, found, failure, now),
    )


def cancel(database: Database, run: str, *, by: str, account: str) -> str:
    """Cancel a run that has not ended, and return its state. One on which a process works ends at its next step; one
    that owes something ends when that is undone. Raises NotWaiting for a run that has ended."""
    with _opened(database, run) as (connection, found, now):
        if found is None or found.due is None:
            raise NotWaiting("no run with this id that has not ended")
        person = _person(by, account)
        _audit(connection, found, "cancelled", person, now)
        return lifecycle.cancel(connection, found, person, now).state


def retry(database: Database, run: str, *, by: str, account: str, happened: bool | None = None) -> None:
    """Let a run go on that ended without success. `happened` is what the person has found out about an effect whose
    answer was lost. Raises NotWaiting, and lifecycle.NotRetried."""
    with _opened(database, run) as (connection, found, now):
        if found is None:
            raise NotWaiting("no run with this id")
        lifecycle.retry(connection, found, now, happened=happened)
        _audit(connection, found, "retried", _person(by, account), now)


def _decide(
    database: Database, run: str, decision: str, by: str, act: Callable[[Connection, RunRecord, float], object]
) -> None:
    with _opened(database, run) as (connection, found, now):
        if found is None or found.state != journal.ESCALATED:
            raise NotWaiting("the run does not wait for a decision")
        _audit(connection, found, decision, by, now)
        act(connection, found, now)
        waiting = sa.update(DECISION).where(DECISION.c.run == run, DECISION.c.decision == ASKED)
        connection.execute(waiting.values(decision=decision, by=by, at=now))


@contextmanager
def _opened(database: Database, run: str) -> Iterator[tuple[Connection, RunRecord | None, float]]:
    with database.transaction() as connection:
        now = database.now(connection)
        prepare(connection)
        yield connection, journal.find_run(connection, id=run), now


def _audit(connection: Connection, run: RunRecord, outcome: str, by: str, now: float) -> None:
    about = {"tool": run.tool, "version": run.version, "run": run.id, "actor": by}
    journal.write_audit(connection, **about, outcome=outcome, code=None, at=now)


def _person(by: str, account: str) -> str:
    return f"{by} (account {account})"


def _names_of(actor: Actor | None) -> set[str]:
    """Return the names by which a caller is known: its id, its subjects, and the last part of each."""
    turn = actor.turn if actor else None
    known = [actor.id] if actor else []
    known += dict(turn.auth.subjects).values() if turn and turn.auth else ()
    return {_folded(each) for name in known for each in (name, name.rpartition(":")[2])}


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", name).strip().casefold()


def _decisions(connection: Connection, run: str, **where: str) -> list[Any]:
    wanted = sa.select(DECISION).filter_by(run=run, **where).order_by(DECISION.c.policy)
    return list(connection.execute(wanted))
