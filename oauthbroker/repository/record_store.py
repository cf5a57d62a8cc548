"""Records of one kind under random locators: turns, API keys, visits. Read again only when they have changed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Protocol, Self, TypeVar, runtime_checkable

from oauthbroker.errors import BrokerError, Code
from oauthbroker.records.tombstone import Tombstone
from oauthbroker.store.port import Conflict, Entry, Key, Store
from oauthbroker.tombstones import Tombstones

CACHED = 10_000
CACHED_BYTES = 16 * 1024 * 1024  # as they are stored; opened, JSON takes up to eight times as much


class Shelved(Protocol):
    """What can lie on a shelf."""

    @property
    def locator(self) -> str: ...

    def to_plaintext(self) -> bytes: ...


@runtime_checkable
class Ending(Protocol):
    """A record that may be ended before its time."""

    @property
    def expires_at(self) -> datetime | None: ...

    def ended(self, at: datetime) -> Self:
        """The same record, over at `at` or before."""
        ...


R = TypeVar("R", bound=Shelved)
Damage = Callable[[str, Code], None]


@dataclass(frozen=True, slots=True)
class _Cached(Generic[R]):
    """A record, the version that it was read from, and how many bytes that has."""

    record: R
    version: Entry
    size: int


class Shelf(Generic[R]):
    """`read` makes a record of its plaintext. `tombstones` is None for a store without a folder for them. Every method
    may raise `BrokerError` with a store code."""

    def __init__(
        self, store: Store, kind: str, read: Callable[[bytes], R], on_damage: Damage, tombstones: Tombstones | None
    ) -> None:
        self._store = store
        self._kind = kind
        self._read = read
        self._on_damage = on_damage
        self._tombstones = tombstones
        self._cache: OrderedDict[str, _Cached[R]] = OrderedDict()
        self._cached_bytes = 0

    def mac(self, label: str, *parts: str) -> bytes:
        """32 bytes that only brokers with this store's keyring can make; one independent key per label."""
        return self._store.mac(label, *parts)

    async def get(self, locator: str) -> R | None:
        """The newest version; one that was put back after its end is over. One stat for a record that was read before
        and has not been changed since by any process. What cannot be read is reported, and is not there."""
        found = self._cache.get(locator)
        if found is not None and self._store.unchanged(found.version):
            self._cache.move_to_end(locator)
            return found.record
        self._forget(locator)
        try:
            entry = await self._store.get(self._store.key(self._kind, locator))
            return None if entry is None else self._remember(await self._judged(entry), entry)
        except BrokerError as error:
            if error.retryable:
                raise
            self._on_damage(self._kind, error.code)
        return None

    async def add(self, record: R) -> None:
        """Keeps a new record durably. Raises `Conflict` when one of that locator is there."""
        entry = await self._store.put(self._key(record), record.to_plaintext(), expect=0)
        self._remember(record, entry)

    async def change(self, locator: str, change: Callable[[R], R | None]) -> R | None:
        """Writes what `change` makes of the newest version, which may be asked again when somebody else wrote
        meanwhile; the new record. None, and nothing is written, when there is no record or `change` gives None."""
        for _ in range(16):
            entry = await self._store.get(self._store.key(self._kind, locator))
            record = change(await self._judged(entry)) if entry is not None else None
            if entry is None or record is None:
                return None
            with suppress(Conflict):
                return self._remember(
                    record, await self._store.put(entry.key, record.to_plaintext(), expect=entry.generation)
                )
        raise BrokerError(Code.STORE_LOCKED)

    async def end(self, locator: str, now: datetime, first: Callable[[], None] = lambda: None) -> bool:
        """Removes a record that would have lived on. False when there was none (any more), and that is durable too.
        `first` is called for a record that is there; nothing has changed when it raises."""
        ended = await self.bury(locator, now, first) and await self.remove(locator)
        if not ended:
            await self._store.sync(self._kind)
        return ended

    async def bury(self, locator: str, at: datetime, first: Callable[[], None] = lambda: None) -> bool:
        """Lets no copy of this record count from `at` on, for as long as any might. Before the record itself is changed
        or removed, which is what other processes notice. False when there is no record."""
        entry = await self._store.get(self._store.key(self._kind, locator))
        if entry is None:
            return False
        first()
        if self._tombstones is None:
            return True
        until: datetime | None = None
        with suppress(BrokerError):
            record = self._open(entry)
            until = record.expires_at if isinstance(record, Ending) else None
        await self._tombstones.bury(entry.key, Tombstone(self._kind, at, until))
        return True

    async def remove(self, locator: str) -> bool:
        """For a record that is over by itself, and a damaged one. False when there was none (any more)."""
        key = self._store.key(self._kind, locator)
        try:
            for _ in range(16):
                generation = await self._generation(key)
                if generation is None:
                    return False
                with suppress(Conflict):
                    await self._store.delete(key, expect=generation)
                    return True
        finally:
            self._forget(locator)
        raise BrokerError(Code.STORE_LOCKED)

    async def remove_each(self, locators: Iterable[str]) -> None:
        """Removes several. One that cannot be removed keeps no other one; then the store code is raised last."""
        failed: BrokerError | None = None
        for locator in locators:
            try:
                await self.remove(locator)
            except BrokerError as error:
                failed = error
        if failed is not None:
            raise failed

    async def replace(self, record: R) -> None:
        """Writes a record over one that is damaged. For records that nothing depends on."""
        generation = await self._generation(self._key(record))
        entry = await self._store.put(self._key(record), record.to_plaintext(), expect=generation or 0)
        self._remember(record, entry)

    async def _generation(self, key: Key) -> int | None:
        """The generation of what lies there, as its next version has to know it; None for nothing."""
        try:
            entry = await self._store.get(key)
        except BrokerError as error:
            if error.code is not Code.RECORD_CORRUPT:
                raise
            self._on_damage(self._kind, error.code)
            return 0
        return None if entry is None else entry.generation

    async def all(self) -> AsyncIterator[R]:
        """Every readable record as it lies there, in no order; a damaged one never hides the others. Only `get` judges
        by tombstones. A full iteration also evicts entries whose record is gone."""
        there = set[str]()
        async for entry in self._store.scan(self._kind):
            try:
                record = self._open(entry)
            except BrokerError as error:
                self._on_damage(self._kind, error.code)
                continue
            there.add(record.locator)
            yield record
        for locator in self._cache.keys() - there:
            self._forget(locator)

    def _key(self, record: R) -> Key:
        return self._store.key(self._kind, record.locator)

    async def _judged(self, entry: Entry) -> R:
        """The record, over by its tombstone where there is one."""
        record = self._open(entry)
        if self._tombstones is None or not isinstance(record, Ending):
            return record
        tombstone = await self._tombstones.of(entry.key)
        return record if tombstone is None else record.ended(tombstone.ends_at)

    def _open(self, entry: Entry) -> R:
        record: R | None = None
        with suppress(BrokerError, ValueError, LookupError, TypeError, AttributeError):
            record = self._read(entry.body)
        if record is None:
            raise BrokerError(Code.RECORD_CORRUPT, note=f"{self._kind}: not a record of this schema")
        if self._key(record) != entry.key:
            raise BrokerError(Code.RECORD_MISPLACED)
        return record

    def _remember(self, record: R, entry: Entry) -> R:
        self._forget(record.locator)
        self._cache[record.locator] = _Cached(record, entry.without_body(), len(entry.body))
        self._cached_bytes += len(entry.body)
        while len(self._cache) > CACHED or self._cached_bytes > CACHED_BYTES:
            self._forget(next(iter(self._cache)))
        return record

    def _forget(self, locator: str) -> None:
        found = self._cache.pop(locator, None)
        self._cached_bytes -= found.size if found is not None else 0
