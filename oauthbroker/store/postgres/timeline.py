"""Notice that the database has lost its last transactions: a standby that was not synchronous has taken over.

A takeover begins a timeline of the write-ahead log. The first process that meets another one notes it in the database,
with the time and with the version from which the entries of the new timeline count. So all hosts agree on both, also
new ones. Until a grace is over, no request is sent that cannot be taken back, and the hosts store again
the grants that they remember.
"""

from __future__ import annotations

from math import inf
from typing import Final

from oauthbroker.core.clock import SystemClock
from oauthbroker.core.errors import BrokerError
from oauthbroker.store.postgres.connection_pool import NO_FUNCTION, ConnectionPool
from oauthbroker.store.postgres.contact import LEASE_SECONDS, grace_of

LOOK_SECONDS: Final = 5.0
_JUMP: Final = 100_000  # versions that the lost transactions may have used: none of them may come again
_UNKNOWN: Final = "unknown"  # of a database whose storage, and not a standby, keeps the log
_HERE = "'timeline ' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) || ' '"
_HELD: Final = """
select true from oauthbroker.lease where name = %(name)s and owner = %(owner)s and until > clock_timestamp()
"""
_LOOK: Final = f"""
with known as (
    select starts_with(name, {_HERE}) as here, substr(name, 19)::bigint as first,
        extract(epoch from clock_timestamp() - at)::float8 as age
    from oauthbroker.feature where starts_with(name, 'timeline ')
)
select {_HERE}, min(first) filter (where here), max(age) filter (where here), exists ({_HELD}) from known
"""  # noqa: S608  (of constants)
_NOTE: Final = f"""
with jump as materialized (
    select max(nextval('oauthbroker.version')) as first from generate_series(1, (
        select case when count(*) = 0 then 0 else {_JUMP} end
        from oauthbroker.feature where starts_with(name, 'timeline ')
    ))
)
insert into oauthbroker.feature (name) select {_HERE} || coalesce(first, 0) from jump on conflict do nothing
"""  # noqa: S608  (of constants)


class Timeline:
    """The timeline of a database, as one process knows it. `first` is the first version of the present timeline: an
    older one may have had a successor that is lost. Time is real also under a test's clock."""

    def __init__(self, connections: ConnectionPool, lease_seconds: float = LEASE_SECONDS) -> None:
        self._connections, self._grace, self._monotonic = connections, grace_of(lease_seconds), SystemClock.monotonic
        self.name, self.first = "", 0
        self._settled_at, self._looked_at = inf, -inf

    @property
    def settled(self) -> bool:
        """Whether the grace of the timeline is over, by the last look, which was a moment ago."""
        now = self._monotonic()
        return now >= self._settled_at and now - self._looked_at <= LOOK_SECONDS

    async def look(self, lease: str = "", owner: bytes = b"") -> bool:
        """Look at the timeline, and return whether the owner has this lease by the word of the same moment."""
        try:
            if self.name != _UNKNOWN:
                return await self._looked(lease, owner)
        except BrokerError as error:
            if error.note != NO_FUNCTION:
                raise
        self.name, self._settled_at, self._looked_at = _UNKNOWN, -inf, self._monotonic()
        return bool(await self._connections.read(_HELD, {"name": lease, "owner": owner}))

    async def look_again(self) -> None:
        """Look unless the last look was a moment ago."""
        if self._monotonic() - self._looked_at > LOOK_SECONDS / 2:
            await self.look()

    async def _looked(self, lease: str, owner: bytes) -> bool:
        values = {"name": lease, "owner": owner}
        (name, first, age, held), *_ = await self._connections.read(_LOOK, values)
        if first is None:
            await self._connections.write(_NOTE)
            (name, first, age, held), *_ = await self._connections.read(_LOOK, values)
        self._looked_at = self._monotonic()
        self.name, self.first = str(name), int(first)
        self._settled_at = self._looked_at + self._grace - age if self.first else -inf
        return bool(held)
