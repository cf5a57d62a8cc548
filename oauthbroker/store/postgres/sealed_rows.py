"""The sealed records of a database, and the processes that open them: what a rotation of the keys works on."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from itertools import islice
from typing import Any, Final

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.format.port import Key
from oauthbroker.store.format.seal import HEADER
from oauthbroker.store.keys.live_keyring import LiveKeyring
from oauthbroker.store.postgres.connection_pool import ConnectionPool

PROCESS_SECONDS: Final = 60.0  # that a process counts as alive after its last report
_PAGE: Final = 128  # records that are read at a time
_COUNTED: Final = 4096  # records whose seeds are counted at a time
_QUEUED: Final = "events"  # the kind of the records in rows of queues
_NAME: Final = 32  # bytes

# A statement has ten seconds, so none looks at a whole table. Each begins after the key of the last row before it.
_SEEDS = """
select seed, count(*), (array_agg(key order by key desc))[1] from (
    select {key} as key, substring(record from 6 for 16) as seed from oauthbroker.{table}
    where {kind} and {after} order by {order} limit %(limit)s
) as page group by seed
"""
_OTHER_SEED = """
select {key}, {generation}, case when substring(record from 6 for 16) <> %(seed)s then record end
from oauthbroker.{table} where {kind} and {after} order by {order} limit %(limit)s
"""
_RESEAL = """
update oauthbroker.{table} set record = anew from oauthbroker.keyring,
    unnest(%(keys)s::bytea[], %(headers)s::bytea[], %(records)s::bytea[]) as given (key, header, anew)
where {kind} and {same} and substring(record from 1 for 93) = header and epoch = %(epoch)s returning true
"""
_ENTRIES = {
    "table": "entry",
    "kind": "kind = %(kind)s",
    "key": "name",
    "order": "name",
    "after": "name > %(after)s",
    "same": "name = key",
    "generation": "generation",
}
_EVENTS = {
    "table": "queued",
    "kind": "record is not null",
    "key": "agent || id",
    "order": "agent, id",
    "after": "(agent, id) > (substring(%(after)s from 1 for 32), substring(%(after)s from 33))",
    "same": "agent = substring(key from 1 for 32) and id = substring(key from 33)",
    "generation": "1",
}
_DOCUMENT = "select document from oauthbroker.keyring"
_REPORT = """
with gone as (delete from oauthbroker.process where until < clock_timestamp() and id <> %(id)s)
insert into oauthbroker.process as one (id, keyring, until)
values (%(id)s, %(mark)s, clock_timestamp() + %(seconds)s * interval '1 second')
on conflict (id) do update set keyring = excluded.keyring, until = excluded.until
"""
_BEHIND = "select count(*) from oauthbroker.process where keyring <> %(mark)s and until >= clock_timestamp()"
_LEAVE = "delete from oauthbroker.process where id = %(id)s"


class SealedRows:
    """The `SealedEntries` of a `PostgresStore`."""

    def __init__(
        self,
        connections: ConnectionPool,
        keyring: LiveKeyring,
        *,
        kinds: tuple[str, ...],
        report_damage: Callable[[Key, BrokerError], None],
    ) -> None:
        self._connections, self._keyring, self.kinds = connections, keyring, kinds
        self._report_damage, self._id, self._reported = report_damage, os.urandom(16), False

    async def document(self) -> bytes | None:
        rows = await self._connections.read(_DOCUMENT)
        return bytes(rows[0][0]) if rows else None

    def opened(self, key: Key, generation: int, record: bytes) -> bytes:
        """Return the body of a record. Raises `recordCorrupt` also if the generation beside it is another one."""
        sealed, body = self._keyring.ring.unseal(*key, record, kinds=self.kinds)
        if sealed != generation:
            raise BrokerError(Code.RECORD_CORRUPT, note="the generation beside the record is not its own")
        return body

    async def report(self, mark: bytes) -> None:
        """Keep the mark in a row that lapses by itself, by the clock of the database."""
        self._reported = True
        await self._connections.write(_REPORT, {"id": self._id, "mark": mark, "seconds": PROCESS_SECONDS})

    async def leave(self) -> None:
        """Remove the row of this process."""
        if self._reported and not self._connections.closed:
            with suppress(BrokerError):  # then the row lapses
                await self._connections.write(_LEAVE, {"id": self._id})

    async def behind(self, mark: bytes) -> int:
        return int((await self._connections.read(_BEHIND, {"mark": mark}))[0][0])

    async def settle_writers(self) -> None:
        """Do nothing: `KeyringTable.replace` has waited for the writes of the epoch before."""

    async def seals(self, kind: str) -> AsyncIterator[Counter[bytes]]:
        for rows_of in _tables(kind):
            statement, after, more = _SEEDS.format(**rows_of), b"", True
            while more:
                rows = await self._connections.read(statement, {"kind": kind, "after": after, "limit": _COUNTED})
                page = Counter({bytes(seed): number for seed, number, _ in rows})
                after, more = max((bytes(key) for *_, key in rows), default=b""), page.total() == _COUNTED
                yield page

    async def to_reseal(self, kind: str) -> int:
        active = self._keyring.ring.active.kid
        return sum([page.total() - page[active] async for page in self.seals(kind)])

    async def reseal(self, kind: str, together: int) -> AsyncIterator[Counter[bool | None]]:
        for rows_of in _tables(kind):
            find, replace, key, more = _OTHER_SEED.format(**rows_of), _RESEAL.format(**rows_of), b"", True
            while more:
                values = {"kind": kind, "after": key, "seed": self._keyring.ring.active.kid, "limit": _PAGE}
                rows = await self._connections.read(find, values)
                more, key = len(rows) == _PAGE, rows[-1][0] if rows else key
                others = iter([row for row in rows if row[-1] is not None])
                while some := tuple(islice(others, together)):
                    yield await self._resealed(replace, kind, some)

    async def _resealed(self, replace: str, kind: str, rows: Iterable[tuple[Any, ...]]) -> Counter[bool | None]:
        """Replace the bytes of versions, which stay current: their bodies are the same. Leaves alone those that were
        written since they were read, which no longer have that header: its salt never comes again."""
        ring, outcomes, sealed = self._keyring.ring, Counter[bool | None](), list[tuple[bytes, bytes, bytes]]()
        for key, generation, before in rows:
            place = Key(kind, key[-_NAME:].hex())
            try:
                body = self.opened(place, generation, before)
            except BrokerError as error:
                self._report_damage(place, error)
                outcomes[None] += 1
            else:
                sealed.append((key, before[:HEADER], ring.seal(*place, generation, body)))
        if sealed:
            columns = dict(zip(("keys", "headers", "records"), map(list, zip(*sealed, strict=True)), strict=True))
            done = await self._connections.write(replace, {"kind": kind, "epoch": ring.epoch, **columns})
            outcomes += Counter({True: len(done), False: len(sealed) - len(done)})
        return outcomes


def _tables(kind: str) -> tuple[dict[str, str], ...]:
    return (_ENTRIES, _EVENTS) if kind == _QUEUED else (_ENTRIES,)
