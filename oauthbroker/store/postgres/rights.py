"""The rights that a broker's user needs on the tables of a store. A broker asks for them when it starts, so that a
missing right is not first seen in a failing call."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

import psycopg

from oauthbroker.core.errors import BrokerError, Code

_ALL: Final = ("select", "insert", "update", "delete")
TABLES: Final = {
    "schema_version": ("select",),
    "keyring": ("select", "update"),
    "process": _ALL,
    "entry": _ALL,
    "tag": ("select", "insert", "delete"),
    "set_aside": ("select", "insert"),
    "lease": _ALL,
    "queued": _ALL,
    "feature": ("select", "insert"),
}
SEQUENCES: Final = ("version", "place")
_MISSING: Final = """
select name, needed, quote_ident(current_user)
from unnest(%(tables)s::text[], %(rights)s::text[]) as given (name, needed)
where not has_table_privilege(name, needed)
union all
select 'sequence ' || name, 'usage', quote_ident(current_user) from unnest(%(sequences)s::text[]) as given (name)
where not has_sequence_privilege(name, 'usage, update')
"""


def check_rights(connection: psycopg.Connection[Any]) -> None:
    """Raise `storeUnavailable` with the owner's commands if the user of the connection lacks a right."""
    needed = [(f"oauthbroker.{table}", right) for table, rights in TABLES.items() for right in rights]
    values = {
        "tables": [table for table, _ in needed],
        "rights": [right for _, right in needed],
        "sequences": [f"oauthbroker.{sequence}" for sequence in SEQUENCES],
    }
    missing, user = defaultdict[str, list[str]](list), ""
    for name, right, user in connection.execute(_MISSING, values).fetchall():  # noqa: B007  (one user in all rows)
        missing[name].append(right)
    if missing:
        note = f"the database user lacks a right: as the owner of the tables, run `{_grants(missing, user)}`"
        raise BrokerError(Code.STORE_UNAVAILABLE, note=note, lasting=True)


def _grants(missing: dict[str, list[str]], user: str) -> str:
    return "; ".join(f"grant {', '.join(rights)} on {name} to {user}" for name, rights in missing.items())
