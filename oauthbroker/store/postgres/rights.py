"""The rights that a broker's user needs on the tables of a store, asked for at the start and before a provider call."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

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
READ_ONLY: Final = "the database is read-only, perhaps a standby: name the primary"
NO_RIGHT: Final = (
    "the database user lacks a right that is not one on the broker's tables: run the command with the URL of their "
    "owner, or of the owner of the database"
)
MISSING: Final = """
with seen as (select from pg_namespace where nspname = 'oauthbroker' and has_schema_privilege(oid, 'usage'))
select 'schema oauthbroker', 'usage', quote_ident(current_user) from pg_namespace
where nspname = 'oauthbroker' and not has_schema_privilege(oid, 'usage')
union all
select name, needed, quote_ident(current_user)
from unnest(%(tables)s::text[], %(rights)s::text[]) as given (name, needed)
where case when exists (select from seen) then not has_table_privilege(to_regclass(name), needed) end
union all
select 'sequence ' || name, 'usage', quote_ident(current_user) from unnest(%(sequences)s::text[]) as given (name)
where case when exists (select from seen) then not has_sequence_privilege(to_regclass(name), 'usage, update') end
"""
WRITABLE: Final = f"""{MISSING}
union all select '', '', '' where pg_is_in_recovery() or current_setting('transaction_read_only') = 'on'
"""
NEEDED: Final = {
    "tables": [f"oauthbroker.{table}" for table, rights in TABLES.items() for _ in rights],
    "rights": [right for rights in TABLES.values() for right in rights],
    "sequences": [f"oauthbroker.{sequence}" for sequence in SEQUENCES],
}


def grants_for(found: Sequence[tuple[Any, ...]]) -> list[str]:
    """Return the owner's commands for what `MISSING` has found."""
    missing = defaultdict[tuple[str, str], list[str]](list)
    for name, right, user in found:
        missing[name, user].append(right)
    return [f"grant {', '.join(rights)} on {name} to {user}" for (name, user), rights in missing.items()]


def refuse(found: Sequence[tuple[Any, ...]]) -> None:
    """Raise `storeUnavailable` with the owner's commands for what `MISSING` or `WRITABLE` has found."""
    if ("", "", "") in found:
        raise BrokerError(Code.STORE_UNAVAILABLE, note=READ_ONLY)
    if grants := grants_for(found):
        note = f"the database user lacks a right: as the owner of the tables, run `{'; '.join(grants)}`"
        raise BrokerError(Code.STORE_UNAVAILABLE, note=note, lasting=True)
