"""The tables of runs, made or brought up to date. Processes of an older release have to be stopped before."""

from __future__ import annotations

import json
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from oauthbroker.flowtools.running.journal import AUDIT, ENDED, ESCALATED, FAILED, META, PARKED, RUN, STEP, person_of

_WAITS_SECONDS: Final = 14 * 86_400.0  # for a person, of a run that an older release has stored
_BATCH: Final = 500


def prepare(connection: Connection, now: float) -> None:
    """Make the tables that are missing, and change those of an older release. Idempotent."""
    inspector = sa.inspect(connection)
    names = {each["name"] for each in inspector.get_columns(RUN.name)} if inspector.has_table(RUN.name) else set()
    if "lease_until" not in names:
        META.create_all(connection)
        return
    for statement in (
        f"DROP INDEX ix_{RUN.name}_started",
        f"ALTER TABLE {RUN.name} RENAME TO flow_run_old",
        f"ALTER TABLE {STEP.name} ADD COLUMN generation INTEGER NOT NULL DEFAULT 0",
        f"ALTER TABLE {AUDIT.name} ADD COLUMN subject TEXT",
    ):
        connection.exec_driver_sql(statement)
    META.create_all(connection)
    old = sa.table("flow_run_old", *(sa.column(name) for name in sorted(names)))
    last = sa.select(sa.func.max(AUDIT.c.at)).where(AUDIT.c.run == old.c.id).scalar_subquery()
    rows = connection.execute(sa.select(old, last.label("ended"))).mappings()
    for batch in rows.partitions(_BATCH):
        connection.execute(sa.insert(RUN), [_changed(row, now) for row in batch])
    connection.exec_driver_sql("DROP TABLE flow_run_old")


def exist(connection: Connection) -> bool:
    """Tell whether there are tables of runs. Raises ValueError for those of an older release."""
    inspector = sa.inspect(connection)
    if not inspector.has_table(RUN.name):
        return False
    if "due" not in {each["name"] for each in inspector.get_columns(RUN.name)}:
        raise ValueError("the tables of runs are of an older release: stop its processes, then start the broker once")
    return True


def _changed(row: Any, now: float) -> dict[str, Any]:
    """Return a run of an older release as it is stored now."""
    over, waits = row["state"] in ENDED, row["state"] in {ESCALATED, PARKED}
    due = None if over else now + _WAITS_SECONDS if waits else row["lease_until"]
    ended = (row["ended"] or row["started"]) if over else None
    kept = {name: value for name, value in row.items() if name in RUN.c and name != "ended"}
    failure = json.dumps({"owed": True}) if row["state"] == FAILED else None  # its notes alone tell its debts
    fresh = {"origin": "key", "takes": 0, "generation": 0, "freed": 0, "cancel": None, "failure": failure}
    return {**kept, **fresh, "due": due, "ended": ended, **person_of(row["actor"])}
