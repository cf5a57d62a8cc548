"""The tables of runs, made where they are missing."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import Connection

from oauthbroker.flowtools.running.journal import META, RUN


def prepare(connection: Connection) -> None:
    """Make the tables that are missing. Idempotent. Raises as `exist` does."""
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
