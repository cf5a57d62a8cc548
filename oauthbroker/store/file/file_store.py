"""The file store: the write protocol of store/README.md, behind the port."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from oauthbroker.core.clock import Clock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import seconds_to_wait, to_its_end
from oauthbroker.store.file.entries import EntryFiles, Prepared, Taken
from oauthbroker.store.file.folders import Folders, open_folders
from oauthbroker.store.file.fs import Fs, at_border, failure
from oauthbroker.store.file.locks import Locks
from oauthbroker.store.file.stamp import Stamp
from oauthbroker.store.keys import Keyring
from oauthbroker.store.names import check_key, check_kinds, check_tags, is_name
from oauthbroker.store.port import Entry, Key, Lease, Reservation, Tag

T = TypeVar("T")
Damage = Callable[[str, Code], None]

_THREADS = 8
_STRIPES = 64  # lock files for writing; their number does not grow with the entries
_PATIENCE = 10.0  # seconds that a write waits for its entry's lock, which is held for milliseconds
_BREATH = 64  # entries that a scan reads before it yields to other tasks
_DAMAGED = {Code.RECORD_CORRUPT, Code.RECORD_MISPLACED, Code.KEY_UNKNOWN, Code.STORE_PERMISSIONS}

_log = logging.getLogger("oauthbroker.store")


def _write_lock(key: Key) -> str:
    return f"write-{int(key.name[:4], 16) % _STRIPES:02d}"


def _used_up(key: Key, room: Reservation | None) -> Taken | None:
    """Return the reserved space if it is still unused, and mark it as used."""
    taken = room.held if room is not None and room.key == key else None
    if room is not None and taken is not None:
        room.held = None
    return taken if isinstance(taken, Taken) else None


def _log_damage(place: str, code: Code) -> None:
    _log.warning("unreadable entry %s: %s", place, code.value)


class FileStore:
    """A `Store` in a folder. Belongs to one event loop; open another one for another thread or process.

    Reads run on the caller's thread: they take microseconds from the page cache. Writes run on their own threads. After
    `storeUnavailable` from a write, the entry is either the old or the new version: read it again.
    """

    def __init__(
        self,
        fs: Fs,
        folders: Folders,
        keyring: Keyring,
        lease_kinds: Sequence[str],
        clock: Clock,
        on_damage: Damage,
        *,
        copies_damage: bool,
    ) -> None:
        self._copies_damage = copies_damage
        self._fs, self._folders, self._ring, self._on_damage = fs, folders, keyring, on_damage
        self._kinds, self._lease_kinds = folders.by_kind, frozenset(lease_kinds)
        self._entries = EntryFiles(fs, folders, keyring, tuple(folders.by_kind))
        self._locks = Locks(fs, folders.locks, clock)
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="oauthbroker-store")
        self._writing: set[asyncio.Task[Any]] = set()
        self._closed = False
        self._pid = os.getpid()

    def __repr__(self) -> str:
        return f"FileStore({self._ring!r}, {len(self._kinds)} kinds)"

    @classmethod
    def open(
        cls,
        root: Path,
        keyring: Keyring,
        *,
        kinds: Sequence[str],
        lease_kinds: Sequence[str] = (),
        clock: Clock,
        fs: Fs | None = None,
        on_damage: Damage = _log_damage,
        copies_damage: bool = True,
    ) -> FileStore:
        """Open the store below `root`, create missing folders (0700), and probe it.

        `kinds` have entries, `lease_kinds` only leases. `on_damage` is called with each entry that a scan skips, as
        `kind/first digits`. With `copies_damage`, a read copies a damaged entry aside. Raises `storePermissions` or
        `storeUnavailable` (see `open_folders`).
        """
        check_kinds(*kinds, *lease_kinds)
        fs = fs or Fs()
        folders = open_folders(fs, root, kinds)
        return cls(fs, folders, keyring, lease_kinds, clock, on_damage, copies_damage=copies_damage)

    def key(self, kind: str, *parts: str) -> Key:
        if kind not in self._kinds and kind not in self._lease_kinds:
            raise ValueError(f"this store keeps no {kind!r}")
        return Key(kind, self._ring.name(kind, *parts))

    def mac(self, label: str, *parts: str) -> bytes:
        """Return 32 bytes that only brokers with this store's keyring can compute (for CSRF tokens and the like)."""
        return self._ring.mac(label, *parts)

    def tag(self, kind: str, label: str, *parts: str) -> Tag:
        self._check_kind(kind)
        return self._ring.tag(kind, label, *parts)

    async def get(self, key: Key) -> Entry | None:
        self._check_open(key)
        failed: BrokerError
        try:
            return self._entries.read(key)
        except OSError as exc:
            failed = failure(exc)
        except BrokerError as exc:
            failed = exc
        if failed.code is Code.RECORD_CORRUPT and self._copies_damage:
            await self._keep_aside(key)
        raise failed.with_traceback(None)

    def unchanged(self, entry: Entry) -> bool:
        if self._closed or not isinstance(entry.stamp, Stamp):
            return False
        return entry.stamp.holds(self._fs, self._kinds[entry.key.kind], entry.key.name)

    async def is_current(self, entry: Entry) -> bool:
        return self.unchanged(entry)

    async def put(
        self,
        key: Key,
        body: bytes,
        *,
        expect: int,
        room: Reservation | None = None,
        tags: Collection[Tag] | None = None,
    ) -> Entry:
        self._check_open(key)
        tags = tags or ()
        check_tags(key, tags)
        return await self._see_through(self._put(key, body, expect, _used_up(key, room), tags))

    @asynccontextmanager
    async def reserve(self, key: Key, size: int) -> AsyncIterator[Reservation]:
        self._check_open(key)
        room = Reservation(key)

        def take() -> None:
            room.held = self._entries.reserve(key, size)

        try:
            await self._run(take)
            yield room
        finally:
            left = _used_up(key, room)
            if left is not None:
                await self._run(partial(self._entries.give_back, key, left))

    async def delete(self, key: Key, *, expect: int) -> None:
        self._check_open(key)
        await self._see_through(self._delete(key, expect))

    async def set_aside(self, key: Key) -> None:
        self._check_open(key)
        await self._see_through(self._remove_damaged(key))

    async def check_writable(self, key: Key) -> None:
        self._check_open(key)
        async with self._locks.hold(_write_lock(key), _PATIENCE):
            pass

    async def sync(self, kind: str) -> None:
        self._check_kind(kind)
        await self._run(partial(self._entries.sync, kind))

    async def scan(
        self,
        kind: str,
        *,
        after: str = "",
        limit: int | None = None,
        skip: Callable[[Key], bool] = lambda _: False,
    ) -> AsyncIterator[Entry]:
        async for _, entry in self._opened(await self._keys(kind, after), limit, skip):
            if entry is not None:
                yield entry

    async def find(self, tag: Tag, *, after: str = "", limit: int | None = None) -> AsyncIterator[Entry]:
        self._check_kind(tag.kind)
        names = await self._run(partial(self._entries.tags.names, tag))
        keys = (Key(tag.kind, name) for name in names if name > after and is_name(name))
        async for key, entry in self._opened(keys, limit):
            if entry is None:
                await self.untag(Entry(key, 0, b""), [tag])
            else:
                yield entry

    async def _opened(
        self, keys: Iterable[Key], limit: int | None, skip: Callable[[Key], bool] = lambda _: False
    ) -> AsyncIterator[tuple[Key, Entry | None]]:
        """Open entries until `limit` of them were read; None for one that is gone or cannot be read."""
        for number, key in enumerate(keys, start=1):
            if limit == 0:
                return
            if number % _BREATH == 0:
                await asyncio.sleep(0)
            if skip(key):
                continue
            entry = await self._readable(key)
            if entry is not None and limit is not None:
                limit -= 1
            yield key, entry

    async def retag(self, wanted: Sequence[tuple[Entry, Collection[Tag]]]) -> int:
        """Takes no lock: a tag too many is harmless."""
        for entry, tags in wanted:
            self._check_open(entry.key)
            check_tags(entry.key, tags)
        pairs = [(entry.key, tag) for entry, tags in wanted for tag in tags]
        return len(await self._run(partial(self._entries.tags.add, pairs)))

    async def untag(self, entry: Entry, tags: Collection[Tag]) -> None:
        self._check_open(entry.key)
        with suppress(BrokerError):  # a tag too many is harmless
            held = self._locks.try_now(_write_lock(entry.key))
            if held is None:
                return
            try:
                await self._run(partial(self._entries.untag, entry, tags))
            finally:
                held.release()

    async def count(self, kind: str) -> int:
        return len(await self._keys(kind))

    @asynccontextmanager
    async def lease(self, key: Key, *, wait: float) -> AsyncIterator[Lease]:
        check_key(key, self._lease_kinds)
        self._check_usable()
        async with self._locks.hold(f"{key.kind}-{key.name}", wait) as held:
            yield held

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            while self._writing:
                await to_its_end(asyncio.gather(*self._writing, return_exceptions=True))
        finally:
            self._let_go()

    def _let_go(self) -> None:
        self._locks.close()
        self._pool.shutdown()
        self._folders.close()

    def _check_open(self, key: Key) -> None:
        check_key(key, self._kinds)
        self._check_usable()

    def _check_kind(self, kind: str) -> None:
        if kind not in self._kinds:
            raise ValueError(f"this store keeps no {kind!r}")
        self._check_usable()

    def _check_usable(self) -> None:
        if self._closed:
            raise BrokerError(Code.STORE_UNAVAILABLE, note="the store is closed")
        if os.getpid() != self._pid:  # after a fork, threads and locks stay with the parent
            raise BrokerError(Code.STORE_UNAVAILABLE, note="a store does not survive a fork: open it again")

    async def _put(self, key: Key, body: bytes, expect: int, taken: Taken | None, tags: Collection[Tag]) -> Entry:
        if taken is None:
            seconds_to_wait(_write_lock(key), _PATIENCE)  # seals and syncs nothing for a lock that has stayed held
        done = await self._run(partial(self._put_at_once, key, body, expect, taken, tags))
        if isinstance(done, Entry):
            return done
        prepared, installing = done, False
        try:
            async with self._locks.hold(_write_lock(key), _PATIENCE) as held:
                installing = True
                return await self._run(partial(self._entries.install, prepared, held))
        finally:
            if not installing:
                await self._run(partial(self._entries.discard, prepared))

    def _put_at_once(
        self, key: Key, body: bytes, expect: int, taken: Taken | None, tags: Collection[Tag]
    ) -> Entry | Prepared:
        """Do the whole write at once if the lock is free; else return the prepared version, whose lock must be
        waited for."""
        prepared = self._entries.prepare(key, expect + 1, body, taken, tags)
        try:
            held = self._locks.try_now(_write_lock(key))
        except BaseException:
            self._entries.discard(prepared)
            raise
        if held is None:
            return prepared
        try:
            return self._entries.install(prepared, held)
        finally:
            held.release()

    async def _delete(self, key: Key, expect: int) -> None:
        async with self._locks.hold(_write_lock(key), _PATIENCE) as held:
            await self._run(partial(self._entries.remove, key, expect, held))

    async def _remove_damaged(self, key: Key) -> None:
        async with self._locks.hold(_write_lock(key), _PATIENCE) as held:
            await self._run(partial(self._entries.set_aside, key, held))

    async def _run(self, work: Callable[[], T]) -> T:
        """Run `work` on a thread."""
        return await to_its_end(asyncio.get_running_loop().run_in_executor(self._pool, at_border, work))

    async def _see_through(self, work: Coroutine[Any, Any, T]) -> T:
        """Finish a write even if its caller is cancelled: a spent refresh token's successor must be stored."""
        task = asyncio.get_running_loop().create_task(work)
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)
        return await to_its_end(task)

    async def _keys(self, kind: str, after: str = "") -> list[Key]:
        """Return the keys of a kind after the name `after`, in the order of names."""
        self._check_kind(kind)
        names = await self._run(partial(self._entries.names, kind))
        return [Key(kind, name) for name in sorted(names) if name > after and is_name(name)]

    async def _readable(self, key: Key) -> Entry | None:
        """Return the entry, or None after reporting why it cannot be read. A disk failure raises."""
        try:
            return await self.get(key)
        except BrokerError as exc:
            if exc.code not in _DAMAGED and exc.note != "EIO":
                raise
            self._on_damage(f"{key.kind}/{key.name[:8]}", exc.code)
        return None

    async def _keep_aside(self, key: Key) -> None:
        """Copy a damaged entry aside, best effort: a failure to copy must not hide the damage."""
        with suppress(BrokerError):
            await self._run(partial(self._entries.keep_aside, key))
