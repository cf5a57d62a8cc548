"""Backends that are wrong on purpose: the contract notices each of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from typing import Any

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.format.port import Conflict, Entry, Key, Lease, Reservation, Tag
from oauthbroker.store.format.seal import MAX_BODY
from oauthbroker.store.memory import MemoryStore


class TagAfterRecord(MemoryStore):
    """The record can be read before its tags lead to it."""

    async def put(self, key: Key, body: bytes, *, tags: Collection[Tag] | None = None, **more: Any) -> Entry:
        entry = await super().put(key, body, **more)
        await asyncio.sleep(0)
        await super().retag([(entry, tags or ())])
        return entry


class TagLost(MemoryStore):
    """A record's next version has lost the tags of the one before."""

    async def put(self, key: Key, body: bytes, *, tags: Collection[Tag] | None = None, **more: Any) -> Entry:
        entry = await super().put(key, body, tags=tags, **more)
        if tags is None:
            await super().untag(entry, list(self._tags))
        return entry


class FindMisses(MemoryStore):
    """A find stops early."""

    async def find(
        self, tag: Tag, *, after: str = "", limit: int | None = None, skipped: list[Key] | None = None
    ) -> AsyncIterator[Entry]:
        async for entry in super().find(tag, after=after, limit=1, skipped=skipped):
            yield entry


class UntagsNewer(MemoryStore):
    """A tag is taken at any version."""

    async def untag(self, entry: Entry, tags: Collection[Tag]) -> None:
        newest = await self.get(entry.key)
        await super().untag(newest or entry, tags)


class NeverRetags(MemoryStore):
    async def retag(self, wanted: Sequence[tuple[Entry, Collection[Tag]]]) -> int:
        return 0


class PagesWithoutOrder(MemoryStore):
    """Each page begins at the start."""

    async def scan(self, kind: str, *, after: str = "", **more: Any) -> AsyncIterator[Entry]:
        async for entry in super().scan(kind, **more):
            yield entry


class FindsWithoutPages(MemoryStore):
    """Each page of found entries begins at the start."""

    async def find(
        self, tag: Tag, *, after: str = "", limit: int | None = None, skipped: list[Key] | None = None
    ) -> AsyncIterator[Entry]:
        async for entry in super().find(tag, limit=limit, skipped=skipped):
            yield entry


class LabelsWithoutOrder(MemoryStore):
    """Each page of a label begins at the start."""

    def labelled(self, kind: str, label: str, **more: Any) -> AsyncIterator[tuple[str, Entry]]:
        return super().labelled(kind, label, limit=more.get("limit"))


class PlacesRemoved(MemoryStore):
    """An entry that was removed takes a place of a page, and hides the one behind it."""

    async def labelled(
        self, kind: str, label: str, *, after: str = "", limit: int | None = None
    ) -> AsyncIterator[tuple[str, Entry]]:
        gone = sum(len(names) for names in self._tags.values()) - await self.count(kind)
        async for each in super().labelled(kind, label, after=after, limit=None if limit is None else limit - gone):
            yield each


class FindsRemoved(MemoryStore):
    """A removed entry is still found."""

    async def find(self, tag: Tag, **more: Any) -> AsyncIterator[Entry]:
        for name in self._tags.get(tag, ()):
            yield Entry(Key(tag.kind, name), 1, b"removed")


class TakesAnyTag(MemoryStore):
    async def put(self, key: Key, body: bytes, *, tags: Collection[Tag] | None = None, **more: Any) -> Entry:
        return await super().put(key, body, **more)


class Invents(MemoryStore):
    """Every entry exists."""

    async def get(self, key: Key) -> Entry | None:
        return await super().get(key) or Entry(key, 1, b"")


class CutsBodies(MemoryStore):
    async def put(self, key: Key, body: bytes, **more: Any) -> Entry:
        return await super().put(key, body[:4_000], **more)


class SkipsGenerations(MemoryStore):
    async def put(self, key: Key, body: bytes, **more: Any) -> Entry:
        entry = await super().put(key, body, **more)
        self._entries[key.kind][key.name] = entry = replace(entry, generation=entry.generation + 1)
        return entry


class LastWriterWins(MemoryStore):
    async def put(self, key: Key, body: bytes, *, expect: int, **more: Any) -> Entry:
        there = self._kind(key).get(key.name)
        return await super().put(key, body, expect=there.generation if there is not None else 0, **more)


class ChecksTooEarly(MemoryStore):
    """The generation is checked where it was read, and not where it is written."""

    async def put(self, key: Key, body: bytes, *, expect: int, **more: Any) -> Entry:
        there = await self.get(key)
        if (there.generation if there is not None else 0) != expect:
            raise Conflict
        await asyncio.sleep(0)
        self._entries[key.kind][key.name] = entry = Entry(key, expect + 1, body, stamp=object())
        return entry


class Cancels(MemoryStore):
    """A write ends with its caller."""

    async def put(self, key: Key, body: bytes, **more: Any) -> Entry:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return await super().put(key, body, **more)


class KeepsTen(MemoryStore):
    """The oldest entry gives way to the eleventh."""

    async def put(self, key: Key, body: bytes, **more: Any) -> Entry:
        entries = self._kind(key)
        if len(entries) >= 10:
            del entries[next(iter(entries))]
        return await super().put(key, body, **more)


class LeavesReservations(MemoryStore):
    @asynccontextmanager
    async def reserve(self, key: Key, size: int, **_: Any) -> AsyncIterator[Reservation]:
        await self.put(key, bytes(size), expect=0)
        yield Reservation(key, held=size)


class WritesIntoTheReservation(MemoryStore):
    """A reservation decides where an entry is written."""

    async def put(self, key: Key, body: bytes, *, reservation: Reservation | None = None, **more: Any) -> Entry:
        return await super().put(
            reservation.key if reservation is not None else key, body, reservation=reservation, **more
        )


class TakesNoPluginAhead(MemoryStore):
    async def put(self, key: Key, body: bytes, *, ahead: Reservation | None = None, **more: Any) -> Entry:
        return await super().put(key, body, **more)


class LeavesPluginAhead(MemoryStore):
    """Space for the next version is an entry, also if this one is not written."""

    async def put(self, key: Key, body: bytes, *, ahead: Reservation | None = None, **more: Any) -> Entry:
        if ahead is not None:
            await super().put(self.key(key.kind, "plugin"), bytes(ahead.size), expect=0)
        return await super().put(key, body, ahead=ahead, **more)


class HasNoLimit(MemoryStore):
    @asynccontextmanager
    async def reserve(self, key: Key, size: int, **_: Any) -> AsyncIterator[Reservation]:
        yield Reservation(key, held=size)

    async def put(self, key: Key, body: bytes, **more: Any) -> Entry:
        return await super().put(key, body[:MAX_BODY], **more)


class TrustsItsCache(MemoryStore):
    """Each version is the newest."""

    def unchanged(self, entry: Entry) -> bool:
        return True


class KeepsWhatIsDeleted(MemoryStore):
    async def delete(self, key: Key, *, expect: int) -> None:
        """Do nothing."""


class DeletesAnyVersion(MemoryStore):
    async def delete(self, key: Key, *, expect: int) -> None:
        self._kind(key).pop(key.name, None)


class ScansWhatChanges(MemoryStore):
    """A scan has the order of writing, and sees each change."""

    async def scan(self, kind: str, **more: Any) -> AsyncIterator[Entry]:
        for entry in self._named(kind).values():
            yield entry


class JoinsParts(MemoryStore):
    """Parts that read alike are alike."""

    def key(self, kind: str, *parts: str) -> Key:
        return super().key(kind, "".join(parts))

    def mac(self, label: str, *parts: str) -> bytes:
        return super().mac(label, "".join(parts))

    def tag(self, kind: str, label: str, *parts: str) -> Tag:
        return super().tag(kind, label, "".join(parts))


class NamesAnew(MemoryStore):
    """A key is another one each time."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self._numbers = count()

    def key(self, kind: str, *parts: str) -> Key:
        return super().key(kind, *parts, str(next(self._numbers)))


class TakesAnyKey(MemoryStore):
    def key(self, kind: str, *parts: str) -> Key:
        return super().key(kind if kind in self._entries else "grants", *parts)

    async def get(self, key: Key) -> Entry | None:
        return self._entries.get(key.kind, {}).get(key.name)


class LeasesAnything(MemoryStore):
    @asynccontextmanager
    async def lease(self, key: Key, *, wait: float) -> AsyncIterator[Lease]:
        self._lease_kinds |= {key.kind}
        async with super().lease(key, wait=wait) as held:
            yield held


class Lost:
    """A lease that another holder may have."""

    lost = True

    async def holds(self) -> bool:
        return False


class LeasesToAll(MemoryStore):
    @asynccontextmanager
    async def lease(self, key: Key, *, wait: float) -> AsyncIterator[Lease]:
        yield Lost()


class HasOneLease(MemoryStore):
    """All leases are one."""

    @asynccontextmanager
    async def lease(self, key: Key, *, wait: float) -> AsyncIterator[Lease]:
        async with super().lease(Key("provider", "0" * 64), wait=wait) as held:
            yield held


class KeepsLeases(MemoryStore):
    """A lease whose holder fails, or whose waiter is cancelled, is never free again."""

    @asynccontextmanager
    async def lease(self, key: Key, *, wait: float) -> AsyncIterator[Lease]:
        lock = vars(self).setdefault(f"lease {key}", asyncio.Lock())
        taking = asyncio.ensure_future(lock.acquire())
        done, _ = await asyncio.wait([taking], timeout=max(wait, 0.01))
        if not done:
            taking.cancel()
            raise BrokerError(Code.STORE_LOCKED)
        yield Lost()
        lock.release()


class BeginsAnew(MemoryStore):
    """It seems to have lost writes each time."""

    _histories = 0

    async def history(self) -> str:
        self._histories += 1
        return str(self._histories)


class LeaseBlocksWriting(MemoryStore):
    async def put(self, key: Key, body: bytes, **more: Any) -> Entry:
        if len(self._gates):
            raise BrokerError(Code.STORE_LOCKED)
        return await super().put(key, body, **more)


class NeverCloses(MemoryStore):
    async def close(self) -> None:
        """Do nothing."""


class TellsAll(MemoryStore):
    def __repr__(self) -> str:
        return f"{[entry.body for entries in self._entries.values() for entry in entries.values()]}"
