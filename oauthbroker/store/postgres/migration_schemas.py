"""The schemas of a store that takes part in a move, and the mark in a schema's comment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import psycopg

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.posix.migration_marker import MigrationMarker, MigrationState

SCHEMAS: Final[Mapping[MigrationState | None, str]] = {
    None: "oauthbroker",
    MigrationState.ARRIVING: "oauthbroker_arriving",
    MigrationState.CLOSING: "oauthbroker_closed",
    MigrationState.CLOSED: "oauthbroker_closed",
    MigrationState.IMPORTING: "oauthbroker_arriving",
    MigrationState.RESTORED: "oauthbroker_arriving",
}
_FIND = """
select nspname, obj_description(oid, 'pg_namespace') from pg_namespace where nspname = any(%(names)s) order by nspname
"""


def mark_of(connection: psycopg.Connection[Any]) -> tuple[str, MigrationMarker | None]:
    """Return the store's schema, empty if there is none, and the mark of its move. Raises `storeUnavailable` for a
    database with two stores."""
    found = connection.execute(_FIND, {"names": sorted(set(SCHEMAS.values()))}).fetchall()
    if len(found) > 1:
        names = ", ".join(name for name, _ in found)
        two = f"the database has two stores: remove one of {names}"
        raise BrokerError(Code.STORE_UNAVAILABLE, note=two, lasting=True)
    if not found:
        return "", None
    schema, comment = found[0]
    return schema, None if schema == SCHEMAS[None] else MigrationMarker.decoded((comment or "").encode())
