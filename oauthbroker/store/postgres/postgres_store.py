"""The store in PostgreSQL, behind the port: one statement, and so one transaction, for each change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import Notifier, on_thread, to_its_end
from oauthbroker.store.format.entry_names import check_key, check_tags
from oauthbroker.store.format.port import Conflict, Damage, Entry, Key, Lease, Leases, Reservation, Tag, log_damage
from oauthbroker.store.format.seal import MAX_BODY, UNOPENED
from oauthbroker.store.keys.keyring import Keyring
from oauthbroker.store.postgres import entry_statements as statements
from oauthbroker.store.postgres.connection_pool import ConnectionPool
from oauthbroker.store.postgres.contact import LEASE_SECONDS, Contact
from oauthbroker.store.postgres.entry_pages import EntryPages
from oauthbroker.store.postgres.feed import Feed
from oauthbroker.store.postgres.freshness import Freshness
from oauthbroker.store.postgres.leases import LeaseRows
from oauthbroker.store.postgres.rights import NEEDED, WRITABLE, refuse
from oauthbroker.store.postgres.sealed_rows import SealedRows
from oauthbroker.store.postgres.timeline import Timeline


class PostgresStore(EntryPages):
    """A `Store` in one database, for any number of processes and hosts. Belongs to one event loop.

    `unchanged` is uncertain unless the `feed` is trusted: then a version is current by the word of the database, which
    is one round trip. While the database is away, `is_current` confirms versions that were checked at most
    `degraded_seconds` ago. After `storeUnavailable` from a write, the entry is either the old or the new version: read
    it again.
    """

    def __init__(
        self,
        connections: ConnectionPool,
        keyring: Keyring,
        *,
        kinds: Sequence[str],
        lease_kinds: Sequence[str] = (),
        lease_seconds: float = LEASE_SECONDS,
        on_damage: Damage = log_damage,
        feed: Feed | None = None,
        degraded_seconds: float = 0.0,
    ) -> None:
        super().__init__(keyring, connections, kinds=kinds, lease_kinds=lease_kinds, damage=on_damage)
        self.connections, self.keyring.goes_back = connections, True  # a standby that takes over may lack an epoch
        self.sealed = SealedRows(connections, self.keyring, kinds=self._kinds, report_damage=self._report_damage)
        connections.contact = Contact(lease_seconds)
        self._timeline, self._history = Timeline(connections, lease_seconds), ""
        self._leases = LeaseRows(connections, self._timeline, seconds=lease_seconds)
        self.feed = feed or Feed(connections.url)
        self._freshness = Freshness(connections, self.feed, degraded_seconds=degraded_seconds)

    @property
    def back(self) -> Notifier:
        return self.connections.back

    async def history(self) -> str:
        await self._timeline.look()
        if self._timeline.name != self._history:
            self._history = self._timeline.name
            self._freshness.forget_all()
        return self._history

    async def outlived(self, entry: Entry) -> bool:
        if not self._timeline.name:
            await self._timeline.look()
        return isinstance(entry.stamp, int) and entry.stamp < self._timeline.first

    async def get(self, key: Key) -> Entry | None:
        try:
            return await self._get(key)
        except BrokerError as error:
            if error.code is not Code.KEY_UNKNOWN:
                raise
        await self.adopt_newest()  # another process has made the seed
        return await self._get(key)

    async def _get(self, key: Key) -> Entry | None:
        mark = self.feed.mark
        rows = await self.connections.read(statements.GET, self._place(key))
        entry = self._opened(key, *rows[0]) if rows else None
        if entry is not None:
            self._freshness.learn(entry, mark)
        return entry

    def unchanged(self, entry: Entry) -> bool:
        return self._freshness.unchanged(entry)

    async def is_current(self, *entries: Entry) -> bool:
        for entry in entries:
            self._place(entry.key)
        return await self._freshness.is_current(*entries)

    @property
    def degraded(self) -> bool:
        """Whether the database was away a moment ago, and versions were confirmed without it."""
        return self._freshness.degraded

    @property
    def may_degrade(self) -> bool:
        """Whether versions would be confirmed without the database if it were away now."""
        return self._freshness.may_degrade

    async def put(
        self,
        key: Key,
        body: bytes,
        *,
        expect: int,
        reservation: Reservation | None = None,
        ahead: Reservation | None = None,
        tags: Collection[Tag] | None = None,
    ) -> Entry:
        check_tags(key, tags or ())
        values = {**self._place(key), "expect": expect, **(_columns(tags) if tags else {})}
        if reservation is not None and reservation.key == key:
            reservation.held = None
        written = await to_its_end(asyncio.ensure_future(self._write(key, expect, bytes(body), values)))
        if ahead is not None:
            ahead.held = ahead.size
        return written

    async def _write(self, key: Key, expect: int, body: bytes, values: dict[str, Any]) -> Entry:
        """Write a version. A damaged entry counts as none, after it was set aside."""
        mark = self.feed.mark
        self._freshness.forget(key)  # until the answer comes: it may be lost
        rows = await self._written(key, expect, body, values)
        if not rows and not expect and await self._damage_set_aside(key):
            rows = await self._written(key, expect, body, values)
        if not rows:
            raise Conflict
        entry = Entry(key, expect + 1, body, stamp=int(rows[0][0]))
        self._freshness.learn(entry, mark)
        return entry

    async def _written(self, key: Key, expect: int, body: bytes, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Write nothing with a seed that is no longer the active one: then the newer keyring seals the version."""
        statement = statements.REPLACE if expect else statements.CREATE
        if "labels" in values:
            statement = statements.TAGGED.format(statement)
        rows, ring = list[tuple[Any, ...]](), None
        await self.follow_keyring()
        while not rows and ring is not self.keyring.ring:
            ring = self.keyring.ring
            record = ring.seal(key.kind, key.name, expect + 1, body)
            rows = await self.connections.write(statement, values | {"record": record, "epoch": ring.epoch})
            if not rows:
                await self.adopt_newest()
        return rows

    async def follow_keyring(self) -> None:
        """Take the stored keyring after a break: this epoch may have been lost, and another have its number."""
        if not self.connections.contact.unbroken:
            await self.adopt_newest()

    async def adopt_newest(self) -> None:
        """Take the stored keyring, which may have seeds that this one lacks, on a thread: it may ask a key service."""
        await on_thread(partial(self.keyring.adopt, await self.sealed.document()))

    @asynccontextmanager
    async def reserve(self, key: Key, size: int, *, now: bool = True) -> AsyncIterator[Reservation]:
        if size > MAX_BODY:
            raise ValueError(f"a body has at most {MAX_BODY} bytes")
        if now:
            await self.check_writable(key)
        yield Reservation(key, held=size if now else None, size=size)

    async def check_writable(self, key: Key) -> None:
        """Raise `storeUnavailable` for a database that is away or read-only, or lacks a right. Writes take no lock."""
        self._place(key)
        refuse(await self.connections.read(WRITABLE, NEEDED))

    async def delete(self, key: Key, *, expect: int) -> None:
        values = {**self._place(key), "expect": expect}
        self._freshness.forget(key)
        if not await to_its_end(asyncio.ensure_future(self.connections.write(statements.DELETE, values))):
            raise Conflict

    async def set_aside(self, key: Key) -> None:
        failed = await self._damage(key)
        if failed is not None and not await self._moved_aside(key, failed[1]):
            raise failed[0]

    async def sync(self, kind: str) -> None:
        self._check_kind(kind)  # a write is durable when it is answered

    async def retag(self, wanted: Sequence[tuple[Entry, Collection[Tag]]]) -> int:
        lacked = set[Key]()
        for entry, tags in wanted:
            check_tags(entry.key, tags)
            for tag in tags:
                values = {**self._place(entry.key), "label": tag.label, "value": bytes.fromhex(tag.value)}
                if await self.connections.write(statements.RETAG, values):
                    lacked.add(entry.key)
        return len(lacked)

    async def untag(self, entry: Entry, tags: Collection[Tag]) -> None:
        """Remove the tags. Those of an entry that is gone went with it."""
        check_tags(entry.key, tags)
        values = {**self._place(entry.key), "expect": entry.generation, **_columns(tags)}
        with suppress(BrokerError):  # a tag too many is harmless
            await self.connections.write(statements.UNTAG, values)

    async def count(self, kind: str) -> int:
        self._check_kind(kind)
        return int((await self.connections.read(statements.COUNT, {"kind": kind}))[0][0])

    @asynccontextmanager
    async def lease(self, key: Key, *, wait: float) -> AsyncIterator[Lease]:
        check_key(key, self._lease_kinds)
        self.connections.check_open()
        async with self._leases.hold(f"{key.kind}-{key.name}", wait) as held:
            yield held

    async def leases(self) -> Leases:
        return Leases(*(await self.connections.read(statements.LEASES))[0])

    async def loses_on_failover(self) -> bool:
        return bool((await self.connections.read(statements.BEHIND))[0][0])

    async def close(self) -> None:
        await self.feed.close()
        await self.sealed.leave()
        await self.connections.close()

    def _place(self, key: Key) -> dict[str, Any]:
        check_key(key, self._kinds)
        self.connections.check_open()
        return {"kind": key.kind, "name": bytes.fromhex(key.name)}

    def _opened(self, key: Key, generation: int, version: int, record: bytes) -> Entry:
        return Entry(key, generation, self.sealed.opened(key, generation, record), stamp=version)

    async def _found(self, key: Key, row: Sequence[Any]) -> Entry | None:
        """Return the entry of a row; None after reporting why it cannot be opened. Reads it again first: keys may have
        changed since the row was read."""
        with suppress(BrokerError):
            return self._opened(key, *row)
        try:
            return await self.get(key)
        except BrokerError as error:
            if error.code not in UNOPENED:
                raise
            self._report_damage(key, error)
        return None

    async def _damage(self, key: Key) -> tuple[BrokerError, int] | None:
        """Return why an entry cannot be opened, and its version; None if it can, or is gone."""
        rows = await self.connections.read(statements.GET, self._place(key))
        try:
            if rows:
                self._opened(key, *rows[0])
        except BrokerError as error:
            if error.code in UNOPENED:
                return error, rows[0][1]
            raise
        return None

    async def _damage_set_aside(self, key: Key) -> bool:
        found = await self._damage(key)
        return found is not None and found[0].code is Code.RECORD_CORRUPT and await self._moved_aside(key, found[1])

    async def _moved_aside(self, key: Key, version: int) -> bool:
        return bool(await self.connections.write(statements.SET_ASIDE, {**self._place(key), "version": version}))


def _columns(tags: Collection[Tag]) -> dict[str, list[Any]]:
    return {"labels": [tag.label for tag in tags], "values": [bytes.fromhex(tag.value) for tag in tags]}
