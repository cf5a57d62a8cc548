"""Store records of one kind under random locators: turns, API keys, browser sessions. A record is read again only when
it has changed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from datetime import datetime
from typing import Generic, Protocol, Self, TypeVar, runtime_checkable

from oauthbroker.core.bounded_cache import Bounded
from oauthbroker.core.clock import LONG_AGO
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import Pass
from oauthbroker.records.tombstone import Tombstone
from oauthbroker.repository.tombstones import KIND as TOMBSTONES
from oauthbroker.repository.tombstones import Tombstones
from oauthbroker.repository.versioned import (
    drop,
    in_place,
    opened,
    place,
    readable_records,
    replaceable,
    reported,
    stored,
    write_over,
)
from oauthbroker.store.format.port import Conflict, Damage, Entry, Key, Store

CACHED = 10_000
CACHED_BYTES = 16 * 1024 * 1024  # as stored; parsed JSON takes up to eight times as much memory


class StoredRecord(Protocol):
    """A record that a `RecordStore` can hold."""

    @property
    def locator(self) -> str: ...

    def to_plaintext(self) -> bytes: ...


@runtime_checkable
class EndingRecord(Protocol):
    """A record that may be ended before it expires."""

    @property
    def expires_at(self) -> datetime | None: ...

    def ended(self, at: datetime, since: datetime | None) -> Self:
        """Return the same record, ended at `at` or before. A future end was set at `since`."""
        ...


R = TypeVar("R", bound=StoredRecord)
First = Callable[[], object]


@dataclass(frozen=True, slots=True)
class _Cached(Generic[R]):
    """A record, the version that it was read from, and its size in bytes."""

    record: R
    version: Entry
    size: int


class RecordStore(Generic[R]):
    """Records of one kind. `read` parses a plaintext. `tombstones` is None for a kind that has none. Every method may
    raise `BrokerError` with a store code."""

    def __init__(
        self, *, store: Store, kind: str, read: Callable[[bytes], R], on_damage: Damage, tombstones: Tombstones | None
    ) -> None:
        self._store = store
        self._kind = kind
        self._read = read
        self._on_damage = on_damage
        self._tombstones = tombstones
        self._cache = Bounded[str, _Cached[R]](CACHED, most_bytes=CACHED_BYTES, size_of=lambda cached: cached.size)

    def mac(self, label: str, *parts: str) -> bytes:
        """Return 32 bytes derived from this store's keyring, an independent key per label."""
        return self._store.mac(label, *parts)

    async def get(self, locator: str) -> R | None:
        """Return the newest version; a restored copy of an ended record is returned as ended. An unchanged record costs
        one stat. An unreadable one is reported and returned as None."""
        record = self.fresh(locator)
        if record is not None:
            return record
        found = self._cache.get(locator)
        if found is not None and await self._store.is_current(found.version):
            if self._cache.get(locator) is found:  # else another task has ended or replaced it meanwhile
                self._cache.touch(locator)
            return found.record
        self._cache.pop(locator)
        key = self._store.key(self._kind, locator)
        with reported(key, self._on_damage):
            entry = await self._store.get(key)
            return None if entry is None else self._remember(await self._validated(entry), entry)
        return None

    def fresh(self, locator: str) -> R | None:
        """Return the cached record if it is certainly the newest version. None when uncertain: `get` then looks."""
        found = self._cache.get(locator)
        if found is None or not self._store.unchanged(found.version):
            return None
        self._cache.touch(locator)
        return found.record

    def version_of(self, record: R) -> Entry | None:
        """Return the version from which a cached record was read. None if another one has taken its place."""
        found = self._cache.get(record.locator)
        return found.version if found is not None and found.record is record else None

    async def add(self, record: R) -> None:
        """Store a new record durably. Raises `Conflict` if the locator exists."""
        entry = await self._store.put(self._key(record), record.to_plaintext(), expect=0)
        self._remember(record, entry)

    async def change(self, locator: str, change: Callable[[R], R | None]) -> R | None:
        """Write the result of `change` for the newest version and return it. `change` is called again if another
        process wrote meanwhile. None, and nothing is written, if there is no record or `change` returns None."""
        for _ in range(16):
            entry = await self._store.get(self._store.key(self._kind, locator))
            record = change(await self._validated(entry)) if entry is not None else None
            if entry is None or record is None:
                return None
            with suppress(Conflict):
                return self._remember(
                    record, await self._store.put(entry.key, record.to_plaintext(), expect=entry.generation)
                )
        raise BrokerError(Code.STORE_LOCKED)

    async def end(self, locator: str, first: First | None = None) -> bool:
        """End a record before it expires. False if there was none; that it is gone is durable too. `first` is called
        for an existing record; if it raises, nothing has changed."""
        ended = await self.write_tombstone(locator, LONG_AGO, None, first) and await self._let_go(locator)
        if not ended:
            await self._store.sync(self._kind)
        return ended

    async def was_ended(self, locator: str) -> bool:
        """Tell whether a record of this locator was ended before it would have expired."""
        key = self._store.key(self._kind, locator)
        return self._tombstones is not None and await self._tombstones.of(key) is not None

    async def write_tombstone(
        self, locator: str, at: datetime, since: datetime | None, first: First | None = None
    ) -> bool:
        """Write a tombstone: no copy of this record is valid from `at` on, as decided at `since`, until all copies
        would have expired. Comes before the record is changed or removed, which is the change that other processes
        notice. A damaged record is ended too. False if there is no record."""
        key, until = self._store.key(self._kind, locator), None
        with reported(key, self._on_damage):  # a repaired copy is ended too
            entry = await self._store.get(key)
            if entry is None:
                return False
            record = self._open(entry)
            until = record.expires_at if isinstance(record, EndingRecord) else None
        if first is not None:
            first()
        if self._tombstones is not None:
            await self._tombstones.write(key, Tombstone(of=self._kind, ends_at=at, keep_until=until, since=since))
        return True

    async def _let_go(self, locator: str) -> bool:
        """Remove a record that has its tombstone. One that the store does not replace by itself is set aside. A file
        that the store did not write stays and is invalid. False if there was none."""
        key = self._store.key(self._kind, locator)
        try:
            return await self.remove(locator)
        except BrokerError as error:
            if error.code.retryable or self._tombstones is None:
                raise
            self._on_damage(place(key), error.code)
        try:
            await self._store.set_aside(key)
        except BrokerError as error:
            if error.code.retryable:
                raise
        return True

    async def remove(self, locator: str) -> bool:
        """Remove an expired or damaged record. False if there was none."""
        key = self._store.key(self._kind, locator)
        try:
            for _ in range(16):
                _, generation = await stored(self._store, key, self._on_damage)
                if generation is None:
                    return False
                with suppress(Conflict):
                    await self._store.delete(key, expect=generation)
                    return True
        finally:
            self._cache.pop(locator)
        raise BrokerError(Code.STORE_LOCKED)

    async def remove_each(self, locators: Iterable[str]) -> None:
        """Remove several records. One that cannot be removed blocks no other one; the store code is raised at the
        end."""
        this_pass = Pass()
        for locator in locators:
            with this_pass.entry():
                await self.remove(locator)
        this_pass.over()

    async def replace(self, record: R) -> None:
        """Overwrite an unreadable record. Only for records on which no other state depends."""
        key = self._key(record)
        _, generation = await replaceable(self._store, key, self._open, self._on_damage)
        entry = await write_over(self._store, key, record.to_plaintext(), expect=generation)
        self._remember(record, entry)

    async def discard(self, locator: str) -> None:
        """Remove a record in any state. Only for records on which no other state depends."""
        self._cache.pop(locator)
        await drop(self._store, self._store.key(self._kind, locator), self._on_damage, self._open)

    async def all(self) -> AsyncIterator[R]:
        """Yield every readable record as stored, unordered. A damaged one hides no other. Only `get` checks tombstones.
        A full iteration also evicts entries whose record is gone."""
        there = set[str]()
        async for record in readable_records(self._store.scan(self._kind), self._open, self._on_damage):
            there.add(record.locator)
            yield record
        for locator in set(self._cache) - there:
            self._cache.pop(locator)

    def _key(self, record: R) -> Key:
        return self._store.key(self._kind, record.locator)

    async def _validated(self, entry: Entry) -> R:
        """Return the record, ended if it has a tombstone."""
        record = self._open(entry)
        if self._tombstones is None or not isinstance(record, EndingRecord):
            return record
        tombstone = await self._tombstones.of(entry.key)
        if tombstone is None:
            return record
        await self._store.sync(TOMBSTONES)  # once per version, because the checked record is cached
        return record.ended(tombstone.ends_at, tombstone.since)

    def _open(self, entry: Entry) -> R:
        record = opened(self._read, entry)
        in_place(entry, self._key(record))
        return record

    def _remember(self, record: R, entry: Entry) -> R:
        self._cache.keep(record.locator, _Cached(record, entry.without_body(), len(entry.body)))
        return record
