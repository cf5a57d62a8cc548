"""The store in memory: the same port without a disk, for tests and as the model that other stores are compared with."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from itertools import islice

from oauthbroker.core.clock import Clock
from oauthbroker.core.lifecycle import Notifier
from oauthbroker.core.opened_here import OpenedHere
from oauthbroker.store.format.entry_names import check_key, check_kinds, check_tags, entry_names, label_macs, tag_of
from oauthbroker.store.format.port import Conflict, Entry, Key, Lease, Reservation, Tag
from oauthbroker.store.format.seal import MAX_BODY
from oauthbroker.store.task_gates import TaskGates


class _Held:
    """A lease in memory. It never lapses."""

    lost = False

    async def holds(self) -> bool:
        return True


class MemoryStore:
    """A `Store` that ends with its process. Belongs to one event loop."""

    def __init__(self, *, kinds: Sequence[str], lease_kinds: Sequence[str] = (), clock: Clock) -> None:
        check_kinds(*kinds, *lease_kinds)
        name_key = clock.random_bytes(32)
        self._name_of, self._label_macs = entry_names(name_key), label_macs(name_key)
        self._entries: dict[str, dict[str, Entry]] = {kind: {} for kind in kinds}
        self._tags: dict[Tag, set[str]] = {}
        self._lease_kinds = frozenset(lease_kinds)
        self._gates = TaskGates()
        self.back = Notifier()  # never away
        self._opened_here = OpenedHere()

    def __repr__(self) -> str:
        return f"MemoryStore({len(self._entries)} kinds)"

    def key(self, kind: str, *parts: str) -> Key:
        if kind not in self._entries and kind not in self._lease_kinds:
            raise ValueError(f"this store keeps no {kind!r}")
        return Key(kind, self._name_of(kind, *parts))

    def mac(self, label: str, *parts: str) -> bytes:
        """Return 32 bytes that only this store can compute (for CSRF tokens and the like)."""
        return self._label_macs(label, *parts)

    def tag(self, kind: str, label: str, *parts: str) -> Tag:
        self._named(kind)
        return tag_of(self._label_macs, kind, label, *parts)

    async def get(self, key: Key) -> Entry | None:
        return self._kind(key).get(key.name)

    def unchanged(self, entry: Entry) -> bool:
        newest = self._entries.get(entry.key.kind, {}).get(entry.key.name)
        return not self._opened_here.closed and newest is not None and newest.stamp is entry.stamp

    async def is_current(self, *entries: Entry) -> bool:
        return all(map(self.unchanged, entries))

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
        kind = self._kind(key)
        check_tags(key, tags or ())
        if reservation is not None:
            reservation.held = None
        if len(body) > MAX_BODY:
            raise ValueError(f"a body has at most {MAX_BODY} bytes")
        current = kind.get(key.name)
        if (current.generation if current else 0) != expect:
            raise Conflict
        if ahead is not None:
            ahead.held = ahead.size
        for tag in tags or ():
            self._tags.setdefault(tag, set()).add(key.name)
        kind[key.name] = entry = Entry(key, expect + 1, bytes(body), stamp=object())
        return entry

    @asynccontextmanager
    async def reserve(self, key: Key, size: int, *, now: bool = True) -> AsyncIterator[Reservation]:
        self._kind(key)
        if size > MAX_BODY:
            raise ValueError(f"a body has at most {MAX_BODY} bytes")
        yield Reservation(key, held=size if now else None, size=size)

    async def check_writable(self, key: Key) -> None:
        self._kind(key)  # writes take no lock here

    async def delete(self, key: Key, *, expect: int) -> None:
        kind = self._kind(key)
        current = kind.get(key.name)
        if current is None or current.generation != expect:
            raise Conflict
        del kind[key.name]

    async def set_aside(self, key: Key) -> None:
        self._kind(key)  # raises for an unknown kind; every entry here can be opened

    async def sync(self, kind: str) -> None:
        self._named(kind)

    async def scan(
        self,
        kind: str,
        *,
        after: str = "",
        limit: int | None = None,
        skip: Callable[[Key], bool] = lambda _: False,
    ) -> AsyncIterator[Entry]:
        there = self._named(kind)
        names = (name for name in sorted(there) if name > after and not skip(Key(kind, name)))
        for entry in list(map(there.__getitem__, islice(names, limit))):
            yield entry

    async def find(
        self,
        tag: Tag,
        *,
        after: str = "",
        limit: int | None = None,
        skipped: list[Key] | None = None,  # noqa: ARG002  (none can be damaged)
    ) -> AsyncIterator[Entry]:
        there = self._named(tag.kind)
        names = (name for name in sorted(self._tags.get(tag, ())) if name > after and name in there)
        for entry in list(map(there.__getitem__, islice(names, limit))):
            yield entry

    async def labelled(
        self, kind: str, label: str, *, after: str = "", limit: int | None = None
    ) -> AsyncIterator[tuple[str, Entry]]:
        there, tags = self._named(kind), [tag for tag in self._tags if (tag.kind, tag.label) == (kind, label)]
        places = sorted(f"{tag.value}.{name}" for tag in tags for name in self._tags[tag] if name in there)
        for place in list(islice((place for place in places if place > after), limit)):
            yield place, there[place.partition(".")[2]]

    async def retag(self, wanted: Sequence[tuple[Entry, Collection[Tag]]]) -> int:
        lacked = set[Key]()
        for key, tag in [(entry.key, tag) for entry, tags in wanted for tag in tags]:
            self._kind(key)
            check_tags(key, [tag])
            there = self._tags.setdefault(tag, set())
            if key.name not in there:
                there.add(key.name)
                lacked.add(key)
        return len(lacked)

    async def untag(self, entry: Entry, tags: Collection[Tag]) -> None:
        newest = self._kind(entry.key).get(entry.key.name)
        if newest is None or newest.generation == entry.generation:
            for tag in tags:
                self._tags.get(tag, set()).discard(entry.key.name)

    async def count(self, kind: str) -> int:
        return len(self._named(kind))

    @asynccontextmanager
    async def lease(self, key: Key, *, wait: float) -> AsyncIterator[Lease]:
        check_key(key, self._lease_kinds)
        self._opened_here.check_open()
        name = f"{key.kind}-{key.name}"
        async with self._gates.entered(name, wait):
            yield _Held()

    async def tidy(self, lease_kinds: Collection[str]) -> None:
        """Do nothing: a free lease leaves nothing."""

    async def history(self) -> str:
        return ""  # one, for ever

    async def outlived(self, entry: Entry) -> bool:  # noqa: ARG002
        return False

    async def close(self) -> None:
        self._opened_here.end()

    def _kind(self, key: Key) -> dict[str, Entry]:
        check_key(key, self._entries)
        return self._named(key.kind)

    def _named(self, kind: str) -> dict[str, Entry]:
        if kind not in self._entries:
            raise ValueError(f"this store keeps no {kind!r}")
        self._opened_here.check_open()
        return self._entries[kind]
