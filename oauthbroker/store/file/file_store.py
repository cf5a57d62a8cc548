"""The file store: the write protocol of docs/store-format.md, behind the port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from itertools import islice
from os import getpid
from pathlib import Path

from oauthbroker.core.clock import Clock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import Notifier
from oauthbroker.core.opened_here import OpenedHere, running_loop
from oauthbroker.store.file.cache_stamp import Stamp
from oauthbroker.store.file.locked_writes import Writer
from oauthbroker.store.file.locks import Locks
from oauthbroker.store.file.place_checks import LOCAL, file_system
from oauthbroker.store.file.sealed_files import DAMAGED, SealedFiles
from oauthbroker.store.file.sorted_names import SortedNames
from oauthbroker.store.file.versioned_entries import EntryFiles, Taken
from oauthbroker.store.format.entry_names import check_key, check_tags, is_name
from oauthbroker.store.format.port import Damage, Entry, Key, Lease, Reservation, Tag, log_damage
from oauthbroker.store.keys.keyed_store import KeyedStore
from oauthbroker.store.keys.keyring import Keyring
from oauthbroker.store.posix.atomic_files import remove_left
from oauthbroker.store.posix.folders import DATA, open_folders
from oauthbroker.store.posix.system_calls import Fs, failure

_BREATH = 8  # entries that a scan reads, and its caller works on, before it yields to other tasks: two milliseconds
_LOCKS, _LOCKS_PAUSE = 16, 0.01  # lock files that are looked at together, and the seconds until the next ones
_PLACES = 512  # places of tagged entries that are looked up together


def _used_up(key: Key, reservation: Reservation) -> Taken | None:
    """Return the reserved space if it is still unused, and mark it as used."""
    taken = reservation.held if reservation.key == key else None
    if taken is not None:
        reservation.held = None
    return taken if isinstance(taken, Taken) else None


class FileStore(KeyedStore):
    """A `Store` in a folder. Belongs to one event loop; open another one for another thread or process.

    Reads run on the caller's thread: they take microseconds from the page cache. Writes run on their own threads. After
    `storeUnavailable` from a write, the entry is either the old or the new version: read it again.
    """

    def __init__(
        self,
        root: Path,
        keyring: Keyring,
        *,
        kinds: Sequence[str],
        lease_kinds: Sequence[str] = (),
        clock: Clock,
        fs: Fs | None = None,
        on_damage: Damage = log_damage,
    ) -> None:
        """Open the store below `root`, create missing folders (0700), and probe it.

        `on_damage` is called with each entry that a scan skips. Raises `storePermissions` or `storeUnavailable` (see
        `open_folders`).
        """
        super().__init__(keyring, OpenedHere(), kinds=kinds, lease_kinds=lease_kinds, damage=on_damage)
        fs = fs or Fs()
        folders = open_folders(fs, root, kinds)
        self._fs, self._folders, self._data = fs, folders, root / DATA
        self._entries = EntryFiles(fs=fs, folders=folders, keyring=self.keyring)
        self._locks = Locks(fs, folders.locks, clock)
        self.back = Notifier()  # a disk does not come back by itself
        self._writer = Writer(self._entries, self._locks)
        self.sealed = SealedFiles(
            fs=fs,
            folders=folders,
            keyring=self.keyring,
            entries=self._entries,
            writer=self._writer,
            names=self._names,
        )

    async def get(self, key: Key) -> Entry | None:
        self._check_open(key)
        failed: BrokerError
        try:
            return self._entries.read(key)
        except OSError as exc:
            failed = failure(exc)
        except BrokerError as exc:
            failed = exc
        if failed.code is Code.KEY_UNKNOWN:
            return await self._writer.run(partial(self._entries.read_anew, key))
        if failed.code is Code.RECORD_CORRUPT:
            with suppress(BrokerError):  # a failure to copy must not hide the damage
                await self._writer.run(partial(self._entries.keep_aside, key))
        raise failed.with_traceback(None)

    def unchanged(self, entry: Entry) -> bool:
        if self._opened_here.closed or not isinstance(entry.stamp, Stamp):
            return False
        return entry.stamp.holds(self._fs, self._folders.by_kind[entry.key.kind], entry.key.name)

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
        self._check_open(key)
        if tags:
            check_tags(key, tags)
        taken = None if reservation is None else _used_up(key, reservation)
        prepare = partial(self._entries.prepare, key, expect + 1, body, taken, ahead, tags or ())
        return await self._writer.put(key, prepare, has_space=taken is not None)

    @asynccontextmanager
    async def reserve(self, key: Key, size: int, *, now: bool = True) -> AsyncIterator[Reservation]:
        self._check_open(key)
        reservation = Reservation(key, size=size)
        try:
            if now:
                await self._writer.run(partial(self._entries.fill, reservation))
            yield reservation
        finally:
            left = _used_up(key, reservation)
            if left is not None:
                await self._writer.run(partial(self._entries.discard, left))

    async def delete(self, key: Key, *, expect: int) -> None:
        self._check_open(key)
        await self._writer.change(key, partial(self._entries.remove, key, expect))

    async def set_aside(self, key: Key) -> None:
        self._check_open(key)
        await self._writer.change(key, partial(self._entries.set_aside, key))

    async def check_writable(self, key: Key) -> None:
        self._check_open(key)
        await self._writer.check(key)

    async def sync(self, kind: str) -> None:
        self._check_kind(kind)
        await self._writer.run(partial(self._entries.sync, kind))

    async def scan(
        self,
        kind: str,
        *,
        after: str = "",
        limit: int | None = None,
        skip: Callable[[Key], bool] = lambda _: False,
    ) -> AsyncIterator[Entry]:
        keys = (Key(kind, name) for name in (await self._names(kind)).after(after))
        async for _, entry in self._opened(keys, limit, skip):
            if entry is not None:
                yield entry

    async def find(
        self, tag: Tag, *, after: str = "", limit: int | None = None, skipped: list[Key] | None = None
    ) -> AsyncIterator[Entry]:
        self._check_kind(tag.kind)
        names = await self._writer.run(partial(self._entries.tags.names, tag))
        keys = (Key(tag.kind, name) for name in names.after(after))
        async for key, entry in self._opened(keys, limit):
            if entry is not None:
                yield entry
            elif skipped is not None and await self._is_unreadable(key):
                skipped.append(key)
            else:
                await self.untag(Entry(key, 0, b""), [tag])

    async def _is_unreadable(self, key: Key) -> bool:
        try:
            await self.get(key)
        except BrokerError:  # of a sector of the disk, too
            return True
        return False

    async def labelled(
        self, kind: str, label: str, *, after: str = "", limit: int | None = None
    ) -> AsyncIterator[tuple[str, Entry]]:
        self._check_kind(kind)
        places, most = [after], _PLACES if limit is None else min(limit, _PLACES)
        while places and limit != 0:
            places = await self._writer.run(partial(self._entries.tags.places, kind, label, places[-1], most))
            tags = iter([Tag(kind, label, place.partition(".")[0]) for place in places])
            keys = (Key(kind, place.partition(".")[2]) for place in places)
            async for key, entry in self._opened(keys, limit):
                tag = next(tags)
                if entry is None:
                    await self.untag(Entry(key, 0, b""), [tag])
                    continue
                yield f"{tag.value}.{key.name}", entry
                limit = None if limit is None else limit - 1

    async def _opened(
        self, keys: Iterable[Key], limit: int | None, skip: Callable[[Key], bool] = lambda _: False
    ) -> AsyncIterator[tuple[Key, Entry | None]]:
        """Open entries until `limit` of them were read; None for one that is gone or cannot be read."""
        read = self._entries.read
        for number, key in enumerate(keys, start=1):
            if limit == 0:
                return
            if number % _BREATH == 0:
                await asyncio.sleep(0)
                self._opened_here.check_open()
            if skip(key):
                continue
            try:
                entry = read(key)
            except (OSError, BrokerError):
                entry = await self._readable(key)
            if entry is not None and limit is not None:
                limit -= 1
            yield key, entry

    async def retag(self, wanted: Sequence[tuple[Entry, Collection[Tag]]]) -> int:
        """Write missing tags, without a lock: a tag too many is harmless."""
        for entry, tags in wanted:
            self._check_open(entry.key)
            check_tags(entry.key, tags)
        pairs = [(entry.key, tag) for entry, tags in wanted for tag in tags]
        return len(await self._writer.run(partial(self._entries.tags.add, pairs)))

    async def untag(self, entry: Entry, tags: Collection[Tag]) -> None:
        self._check_open(entry.key)
        with suppress(BrokerError):  # a tag too many is harmless
            await self._writer.untag(entry, tags)

    async def count(self, kind: str) -> int:
        self._check_kind(kind)
        return await self._writer.run(partial(self._entries.count, kind))

    def lease(self, key: Key, *, wait: float) -> AbstractAsyncContextManager[Lease]:
        self._check_open(key, self._lease_kinds)
        return self._locks.hold(f"{key.kind}-{key.name}", wait)

    async def tidy(self, lease_kinds: Collection[str]) -> None:
        """Remove files of free locks. Not on a network file system, where a name that has gone may still be seen."""
        if await self._writer.run(partial(file_system, self._data)) in LOCAL:
            names, more = self._locks.names(), 1
            while more:
                await asyncio.sleep(_LOCKS_PAUSE)
                more = await self._writer.run(partial(self._locks.remove_unused, islice(names, _LOCKS), lease_kinds))

    async def history(self) -> str:
        return ""  # one, for ever

    async def outlived(self, entry: Entry) -> bool:  # noqa: ARG002
        return False

    async def close(self) -> None:
        if self._opened_here.closed:
            return
        self._opened_here.end()
        try:
            await self._writer.drain()
        finally:
            self._locks.close()
            self._writer.pool.shutdown()
            remove_left(self._fs, most=None)
            self._folders.close()

    def _check_open(self, key: Key, kinds: Collection[str] | None = None) -> None:
        here = self._opened_here
        is_ours = here.pid == getpid() and here.loop is running_loop()
        if key.kind not in (kinds or self._kinds) or not is_name(key.name) or not is_ours:
            check_key(key, kinds or self._kinds)
            here.check_open()

    async def _names(self, kind: str) -> SortedNames:
        """Return the names of a kind, in their order."""
        self._check_kind(kind)
        return await self._writer.run(partial(self._entries.names, kind))

    async def _readable(self, key: Key) -> Entry | None:
        """Return the entry, or None after reporting why it cannot be read. A disk failure raises."""
        try:
            return await self.get(key)
        except BrokerError as exc:
            if exc.code not in DAMAGED and exc.note != "EIO":
                raise
            self._report_damage(key, exc)
        return None
