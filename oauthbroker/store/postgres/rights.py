"""The rights that a broker's user needs on the tables of a store, asked for at the start and before a provider call."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.postgres.connection_pool import READ_ONLY

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
MISSING: Final = """
select name, needed, quote_ident(current_user)
from unnest(%(tables)s::text[], %(rights)s::text[]) as given (name, needed)
where not has_table_privilege(name, needed)
union all
select 'sequence ' || name, 'usage', quote_ident(current_user) from unnest(%(sequences)s::text[]) as given (name)
where not has_sequence_privilege(name, 'usage, update')
"""
WRITABLE: Final = f"""{MISSING}
union all select '', '', '' where pg_is_in_recovery() or current_setting('transaction_read_only') = 'on'
"""
NEEDED: Final = {
    "tables": [f"oauthbroker.{table}" for table, rights in TABLES.items() for _ in rights],
    "rights": [right for rights in TABLES.values() for right in rights],
    "sequences": [f"oauthbroker.{sequence}" for sequence in SEQUENCES],
}


def refuse(found: Sequence[tuple[Any, ...]]) -> None:
    """Raise `storeUnavailable` with the owner's commands for what `MISSING` or `WRITABLE` has found."""
    if ("", "", "") in found:
        raise BrokerError(Code.STORE_UNAVAILABLE, note=READ_ONLY)
    missing = defaultdict[tuple[str, str], list[str]](list)
    for name, right, user in found:
        missing[name, user].append(right)
    grants = "; ".join(f"grant {', '.join(rights)} on {name} to {user}" for (name, user), rights in missing.items())
    if grants:
        note = f"the database user lacks a right: as the owner of the tables, run `{grants}`"
        raise BrokerError(Code.STORE_UNAVAILABLE, note=note, lasting=True)
