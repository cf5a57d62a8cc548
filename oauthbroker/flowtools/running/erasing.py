"""Remove personal data from ended runs: input, result and steps after the retention; the caller, too, by an erasure.
How a run ended, its audit entry and its idempotency key stay.

The audit log then has a pseudonym of the caller. It and the key of an erased run are keyed hashes. Their secret is in
the database, because each process that calls tools there has to find a key that is taken.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from oauthbroker.flowtools.entities.database import Database
from oauthbroker.flowtools.running.journal import AUDIT, KEPT, RUN, STEP
from oauthbroker.flowtools.running.tables import prepare, secret

_BATCH: Final = 500
_GONE: Final[dict[str, Any]] = {"input": "null", "output": None, "message": None, "notes": "[]", "failure": None}
_PROGRAMS: Final = ("key:", "service:")  # ids of API keys and services, not of persons


@dataclass(frozen=True, slots=True)
class Kept:
    """What there is of a caller or user: runs, of which some have not ended yet, and entries about refused calls."""

    runs: int = 0
    refused: int = 0
    living: int = 0


def erase(database: Database, who: str, *, dry_run: bool = False) -> Kept:
    """Remove what runs have of a caller or user. A living run is told to end, and is erased by the next call."""
    with database.transaction() as connection:
        prepare(connection, database.now(connection))
        names = _names_of(connection, who)
        runs = connection.execute(sa.select(RUN.c.id, RUN.c.due).where(_is_of(names, who))).all()
        persons = [name for name in names if not name.startswith(_PROGRAMS)]
        refused = sa.select(sa.func.count()).where(AUDIT.c.actor.in_(persons), AUDIT.c.run.is_(None))
        living = [run.id for run in runs if run.due is not None]
        found = Kept(runs=len(runs), refused=connection.execute(refused).scalar_one(), living=len(living))
        if dry_run or found == Kept():
            return found
        over = [run.id for run in runs if run.due is None]
        for start in range(0, len(over), _BATCH):
            _erase_runs(connection, over[start : start + _BATCH])
        for name in persons:
            entries = sa.update(AUDIT).where(AUDIT.c.actor == name)
            connection.execute(entries.values(actor=_pseudonym(connection, name)))
    database.clean()
    return found


def expire(database: Database, days: float) -> int:
    """Take input, result and steps from runs that ended so many days ago, the oldest first. Return how many; the caller
    repeats this until it is none."""
    with database.transaction() as connection:
        before = database.now(connection) - days * 86_400.0
        old = sa.select(RUN.c.id).where(RUN.c.ended < before, KEPT).order_by(RUN.c.ended).limit(_BATCH)
        runs = connection.execute(old).scalars().all()
        _strip(connection, runs)
    return len(runs)


def hidden_key(connection: Connection, key: str) -> str:
    """Return the key of a run as it is stored after an erasure."""
    return f"erased:{_keyed(connection, key)}"


def _names_of(connection: Connection, who: str) -> list[str]:
    """Return the ids of the callers that are this person: `who`, and those that called for this subject."""
    callers = connection.execute(sa.select(RUN.c.caller).where(RUN.c.subject == who).distinct()).scalars()
    return sorted({who, *(each for each in callers if each and not each.startswith(_PROGRAMS))})


def _is_of(names: list[str], who: str) -> sa.ColumnElement[bool]:
    return RUN.c.caller.in_(names) | (RUN.c.subject == who)


def _erase_runs(connection: Connection, runs: Collection[str]) -> None:
    _strip(connection, runs)
    for run in connection.execute(sa.select(RUN.c.id, RUN.c.key, RUN.c.caller).where(RUN.c.id.in_(runs))).all():
        shown = {"id": _pseudonym(connection, run.caller), "roles": []} if run.caller else None
        hidden: dict[str, Any] = {"actor": shown and json.dumps(shown), "caller": None, "subject": None}
        hidden |= {"key": run.key and hidden_key(connection, run.key)}
        connection.execute(sa.update(RUN).where(RUN.c.id == run.id).values(**hidden))


def _strip(connection: Connection, runs: Collection[str]) -> None:
    connection.execute(sa.delete(STEP).where(STEP.c.run.in_(runs)))
    connection.execute(sa.update(RUN).where(RUN.c.id.in_(runs)).values(**_GONE))


def _pseudonym(connection: Connection, name: str) -> str:
    return name if name.startswith(_PROGRAMS) else f"erased:{_keyed(connection, name)[:16]}"


def _keyed(connection: Connection, text: str) -> str:
    return hmac.digest(secret(connection).encode(), text.encode(), "sha256").hex()
