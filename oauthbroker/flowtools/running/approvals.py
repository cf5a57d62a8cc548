"""What operators see of runs and their steps, and their decisions about them. No query reads an input, an output, a
step's value or a key. A decision is made once, and none lets the caller's own run go on."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Column, Connection, Double, Table, Text

from oauthbroker.flowtools.entities.database import Database
from oauthbroker.flowtools.risk.audit_types import RunDecided
from oauthbroker.flowtools.running import journal
from oauthbroker.flowtools.running.auditing import of_run
from oauthbroker.flowtools.running.journal import RUN, RunRecord, notes_of
from oauthbroker.flowtools.running.lifecycle import Lifecycle, again
from oauthbroker.flowtools.specification.failures import Actor, FlowFailed
from oauthbroker.plugins import PluginAudit

ASKED, APPROVED, DECLINED = "asked", "approved", "declined"
DECISION = Table(
    "flow_decision",
    journal.META,
    *(Column(name, Text, primary_key=True) for name in ("run", "policy")),
    Column("decision", Text, nullable=False),
    Column("by", Text),
    Column("at", Double),
)
_SHOWN: Final = ("id", "tool", "version", "state", "code", "message", "caller", "started")


def ask(connection: Connection, run: str, policy: str) -> None:
    """Write that a policy stops a run until a person decides. Idempotent."""
    if decisions(connection, run, policy=policy):
        return
    connection.execute(sa.insert(DECISION).values(run=run, policy=policy, decision=ASKED))


def approved(connection: Connection, run: str) -> frozenset[str]:
    """Return the policies that a person has let this run pass."""
    return frozenset(each.policy for each in decisions(connection, run, decision=APPROVED))


def decisions(connection: Connection, run: str, **where: str) -> list[Any]:
    """Return the decisions about a run: policy, decision, by, at."""
    wanted = sa.select(DECISION).filter_by(run=run, **where).order_by(DECISION.c.policy)
    return list(connection.execute(wanted))


@again
def approve(database: Database, run: str, *, by: str, account: str, audit: PluginAudit) -> None:
    """Let a run pass the policy that has stopped it; another one may stop it again. It goes on in a process that
    resumes runs, or with the repeated call. `by` is the name that the person gives, and `account` that of the login.
    Raises ValueError, also for the run's own caller, and BrokerError if the audit log takes no entry."""
    with _opened(database, run, audit) as (ways, found):
        if {_folded(by), _folded(account)} & _names_of(found.actor):
            raise ValueError("its own caller cannot approve a run")
        _decide(ways, found, APPROVED, by=by, account=account)
        ways.approve(found)


@again
def decline(database: Database, run: str, *, by: str, account: str, audit: PluginAudit, why: str = "") -> None:
    """End a run that a policy has stopped. Its commits stay, and its charges are refunded. Raises ValueError."""
    failure = FlowFailed("declined", f"a person has declined it{': ' + why if why else ''}")
    with _opened(database, run, audit) as (ways, found):
        _decide(ways, found, DECLINED, by=by, account=account)
        ways.stop(found, failure)


@again
def cancel(database: Database, run: str, *, by: str, account: str, audit: PluginAudit) -> None:
    """Cancel a run that has not ended. One on which a process works ends at its next step; one that owes something ends
    when that is undone. Raises ValueError for a run that has ended, or is cancelled already."""
    with _opened(database, run, audit) as (ways, found):
        ways.check_living(found)
        audit(RunDecided(**of_run(found), decision="cancelled", actor=account, by=by))
        ways.cancel(found, _person(by, account))


@again
def retry(
    database: Database, run: str, *, by: str, account: str, audit: PluginAudit, happened: bool | None = None
) -> None:
    """Let a run go on that ended without success. `happened` is what the person has found out about an effect whose
    answer was lost. Raises ValueError for a run that cannot be."""
    with _opened(database, run, audit) as (ways, found):
        ways.retry(found, happened=happened)
        audit(RunDecided(**of_run(found), decision="retried", actor=account, by=by))


def _decide(ways: Lifecycle, run: RunRecord, decision: str, *, by: str, account: str) -> None:
    """Write a decision about a stopped run to the audit log, and to the database. Raises ValueError for another one."""
    if run.state != journal.ESCALATED:
        raise ValueError("the run does not wait for a decision")
    if run.due is None or run.due <= ways.now:
        raise ValueError("the time for a decision has ended, and the run fails: call the tool again")
    ways.audit(RunDecided(**of_run(run), decision=decision, actor=account, by=by))
    waiting = sa.update(DECISION).where(DECISION.c.run == run.id, DECISION.c.decision == ASKED)
    ways.connection.execute(waiting.values(decision=decision, by=_person(by, account), at=ways.now))


@contextmanager
def _opened(database: Database, run: str, audit: PluginAudit) -> Iterator[tuple[Lifecycle, RunRecord]]:
    """Open a transaction for a decision. A race for the run is lost here, before an entry of the audit log."""
    with Lifecycle.opened(database, audit) as ways:
        journal.prepare(ways.connection)
        ways.connection.execute(sa.select(RUN.c.id).where(RUN.c.id == run).with_for_update())
        found = journal.find_run(ways.connection, id=run)
        if found is None:
            raise ValueError("no run with this id")
        yield ways, found


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLine:
    """A run. `seconds` is the time from its start to its end; None before the end."""

    id: str
    tool: str
    version: int
    state: str
    code: str | None
    message: str | None
    notes: tuple[str, ...]
    caller: str | None
    started: float
    seconds: float | None


def run_lines(connection: Connection, *, limit: int, offset: int = 0, **where: Any) -> list[RunLine]:
    """Return runs, the newest first."""
    wanted = sa.select(*(RUN.c[name] for name in (*_SHOWN, "notes", "ended"))).filter_by(**where)
    found = connection.execute(wanted.order_by(RUN.c.started.desc(), RUN.c.id).limit(limit).offset(offset))
    return [_line(row) for row in found]


def _line(row: Any) -> RunLine:
    seconds = None if row.ended is None else max(0.0, row.ended - row.started)
    return RunLine(**{name: getattr(row, name) for name in _SHOWN}, notes=notes_of(row.notes), seconds=seconds)
