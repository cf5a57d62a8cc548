"""Remove personal data from ended runs: input, result and steps after the retention; by an erasure, the caller too. A
keyed hash then stands for the caller and for the key. Its secret is in the database, because each process that calls
tools there has to find a key that is taken."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from oauthbroker.flowtools.entities.database import Database
from oauthbroker.flowtools.risk.audit_types import RunDecided
from oauthbroker.flowtools.running.auditing import PROGRAMS, of_run
from oauthbroker.flowtools.running.journal import KEPT, RUN, STEP, find_runs, hidden, prepare
from oauthbroker.flowtools.running.lifecycle import Lifecycle, again
from oauthbroker.plugins import PluginAudit, SubjectRecords

_BATCH: Final = 500
_GONE: Final[dict[str, Any]] = {"input": "null"} | dict.fromkeys(("output", "message", "failure", "cancel"))


def erase(database: Database, who: str, *, audit: PluginAudit, dry_run: bool = False) -> SubjectRecords:
    """Cancel the living runs of a caller or user, and erase the ended ones; those that end later, by the next call."""
    found = _erase(database, who, dry_run=dry_run, audit=audit)
    if not dry_run:
        database.clean()
    return found


@again
def _erase(database: Database, who: str, *, dry_run: bool, audit: PluginAudit) -> SubjectRecords:
    """Work in one transaction: a second one would not find the callers of a subject again."""
    with Lifecycle.opened(database, audit) as ways:
        connection = ways.connection
        prepare(connection)
        callers = sa.select(RUN.c.caller).where(RUN.c.subject == who)
        known = {who, *filter(None, connection.execute(callers).scalars())}
        persons = [each for each in known if not each.startswith(PROGRAMS)]
        of_it = RUN.c.caller.in_([who, *persons]) | (RUN.c.subject == who)
        runs = connection.execute(sa.select(sa.func.count()).select_from(RUN).where(of_it)).scalar_one()
        living = of_it, RUN.c.due.is_not(None)
        if not dry_run:
            for run in find_runs(connection, *living, RUN.c.cancel.is_(None)):
                audit(RunDecided(**of_run(run), decision="cancelled", actor=None, by=None))
                ways.cancel(run, "an erasure")
            ended = sa.select(RUN.c.id, RUN.c.caller, RUN.c.key).where(of_it, RUN.c.due.is_(None))
            over = connection.execute(ended).all()
            for each in over:
                _hide(connection, each)
            _strip(connection, [each.id for each in over])
        return SubjectRecords(records=runs, ending=len(connection.execute(sa.select(RUN.c.id).where(*living)).all()))


@again
def expire(database: Database, days: float) -> int:
    """Strip runs that ended so many days ago, the oldest first. Return how many; repeat this until it is none."""
    with database.transaction() as connection:
        before = database.now(connection) - days * 86_400.0
        old = sa.select(RUN.c.id).where(RUN.c.ended < before, KEPT).order_by(RUN.c.ended).limit(_BATCH)
        runs = connection.execute(old).scalars().all()
        _strip(connection, runs)
    return len(runs)


def _hide(connection: Connection, run: Any) -> None:
    """Write a pseudonym in place of the caller, and a keyed hash in place of the key."""
    shown = run.caller if run.caller is None or run.caller.startswith(PROGRAMS) else hidden(connection, run.caller)
    values: dict[str, Any] = {"caller": None, "subject": None, "key": run.key and hidden(connection, run.key)}
    actor = shown and json.dumps({"id": shown, "roles": []})
    connection.execute(sa.update(RUN).where(RUN.c.id == run.id).values(**values, actor=actor))


def _strip(connection: Connection, runs: Collection[str]) -> None:
    for start in range(0, len(runs), _BATCH):
        some = list(runs)[start : start + _BATCH]
        connection.execute(sa.delete(STEP).where(STEP.c.run.in_(some)))
        connection.execute(sa.update(RUN).where(RUN.c.id.in_(some)).values(**_GONE))
