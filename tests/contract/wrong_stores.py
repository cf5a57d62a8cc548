"""Backends that are wrong on purpose: the contract notices each of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Any

from oauthbroker.store.memory import MemoryStore
from oauthbroker.store.port import Entry, Key, Tag


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

    async def find(self, tag: Tag, *, after: str = "", limit: int | None = None) -> AsyncIterator[Entry]:
        async for entry in super().find(tag, after=after, limit=1):
            yield entry


class UntagsNewer(MemoryStore):
    """A tag is taken whichever version there is."""

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
