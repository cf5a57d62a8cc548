"""A person's decision about a run that a policy has stopped: it goes on, or it ends. Each decision is made once, and
none lets the caller's own run go on."""

from __future__ import annotations

import unicodedata
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Column, Connection, Double, Table, Text

from oauthbroker.flowtools.entities.database import Database
from oauthbroker.flowtools.failures import Actor
from oauthbroker.flowtools.running import journal
from oauthbroker.flowtools.running.tables import prepare

ASKED, APPROVED, DECLINED = "asked", "approved", "declined"
DECISION = Table(
    "flow_decision",
    journal.META,
    *(Column(name, Text, primary_key=True) for name in ("run", "policy")),
    Column("decision", Text, nullable=False),
    Column("by", Text),
    Column("at", Double),
)
_WAITS: Final = 1.0  # a lease that ended long ago: a process that looks for runs goes on with it


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
    return _decisions(connection, run) if sa.inspect(connection).has_table(DECISION.name) else []


def approve(database: Database, run: str, *, by: str, account: str) -> None:
    """Let a run pass the policy that has stopped it. It goes on in a process that resumes runs, or with the repeated
    call. That policy does not stop it again; another one may. `by` is the name that the person gives, and `account`
    that of the operating system or the login; the record has both. Raises NotWaiting, and OwnRun
    for the caller of the run."""
    end = {"state": journal.RUNNING, "message": None, "due": _WAITS}
    _decide(database, run, APPROVED, end, by=by, account=account)


def decline(database: Database, run: str, *, by: str, account: str, why: str = "") -> None:
    """End a run that a policy has stopped. Its commits stay. Its caller may do so, too. Raises NotWaiting."""
    message = f"a person has declined it{': ' + why if why else ''}"
    end = {"state": journal.FAILED, "code": DECLINED, "message": message}
    _decide(database, run, DECLINED, end, by=by, account=account)


def _decide(database: Database, run: str, decision: str, end: dict[str, Any], *, by: str, account: str) -> None:
    with database.transaction() as connection:
        at = database.now(connection)
        prepare(connection, at)
        found = journal.find_run(connection, id=run)
        if found is None or found.state != journal.ESCALATED:
            raise NotWaiting("the run does not wait for a decision")
        if decision == APPROVED and {_folded(by), _folded(account)} & _names_of(found.actor):
            raise OwnRun("its own caller cannot approve a run")
        by = f"{by} (account {account})"
        if decision == DECLINED and not journal.steps_of(connection, run):
            end = {**end, "key": None}  # as of each run that failed before it committed anything
        if decision == DECLINED:
            end = {**end, "due": None, "ended": at}
        waiting = sa.update(DECISION).where(DECISION.c.run == run, DECISION.c.decision == ASKED)
        connection.execute(waiting.values(decision=decision, by=by, at=at))
        journal.change_run(connection, found, **end)
        entry = {"tool": found.tool, "version": found.version, "run": run, "outcome": decision}
        journal.write_audit(connection, **entry, actor=by, code=None, at=at)


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
