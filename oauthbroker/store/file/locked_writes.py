"""Write entries on threads, each under its lock, and to the end: the write protocol of docs/store-format.md."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from oauthbroker.core.lifecycle import UnderWay, seconds_to_wait, to_its_end
from oauthbroker.store.file.locks import HeldLock, Locks
from oauthbroker.store.file.versioned_entries import EntryFiles, Prepared
from oauthbroker.store.format.port import Entry, Key, Tag
from oauthbroker.store.posix.system_calls import failure

T = TypeVar("T")

THREADS = 16  # writes that wait for the disk at once: the more there are, the more share a sync of their folder
STRIPES = 64  # lock files for writing; their number does not grow with the entries
PATIENCE_SECONDS = 10.0  # that a write waits for its entry's lock, which is held for milliseconds
_NEXT_SECONDS = 0.05  # that a thread waits for another one's write under the same lock, which wakes it, before it polls


def write_lock(key: Key) -> str:
    return f"write-{int(key.name[:4], 16) % STRIPES:02d}"


class Writer:
    """Writes the entries of one store. A write that has begun ends, also if its caller is cancelled: a spent refresh
    token's successor must be stored."""

    def __init__(self, entries: EntryFiles, locks: Locks) -> None:
        self._entries, self._locks = entries, locks
        self.pool = ThreadPoolExecutor(THREADS, thread_name_prefix="oauthbroker-store")
        self._under_way = UnderWay()
        self._turns = {f"write-{stripe:02d}": threading.Lock() for stripe in range(STRIPES)}  # among the pool's threads

    async def put(self, key: Key, prepare: Callable[[], Prepared], *, has_space: bool) -> Entry:
        """Put the version in place that `prepare` prepares on a thread. `has_space`: its space is reserved already."""
        lock = write_lock(key)
        if not has_space:
            seconds_to_wait(lock, PATIENCE_SECONDS)  # seals and syncs nothing for a lock that has stayed held
        return await to_its_end(self._under_way.begin(self._put(lock, prepare)))

    async def change(self, key: Key, work: Callable[[HeldLock], T]) -> T:
        """Run `work` on a thread, under the entry's lock."""
        return await to_its_end(self._under_way.begin(self._under_lock(key, work)))

    async def settle(self) -> None:
        """Take every lock once: then each write has ended that began before."""
        for stripe in range(STRIPES):
            async with self._locks.hold(f"write-{stripe:02d}", PATIENCE_SECONDS):
                pass

    async def check(self, key: Key) -> None:
        """Raise `storeLocked` if another process keeps the entry's lock."""
        async with self._locks.hold(write_lock(key), PATIENCE_SECONDS):
            pass

    async def untag(self, entry: Entry, tags: Collection[Tag]) -> None:
        """Remove tags, unless the entry is being written just now."""
        held = self._locks.try_now(write_lock(entry.key))
        if held is None:
            return
        try:
            await self.run(partial(self._entries.untag, entry, tags))
        finally:
            held.release()

    async def drain(self) -> None:
        """Refuse new writes, and wait until those under way have ended."""
        await to_its_end(asyncio.ensure_future(self._under_way.close()))

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` on a thread. An OSError becomes a BrokerError, as `at_border` makes it."""
        try:
            return await to_its_end(asyncio.get_running_loop().run_in_executor(self.pool, work))
        except OSError as exc:
            failed = failure(exc)
        raise failed

    async def _put(self, lock: str, prepare: Callable[[], Prepared]) -> Entry:
        done = await self.run(partial(self._put_at_once, lock, prepare))
        if isinstance(done, Entry):
            return done
        prepared, installing = done, False
        try:
            async with self._locks.hold(lock, PATIENCE_SECONDS) as held:
                installing = True
                return await self.run(partial(self._entries.install, prepared, held))
        finally:
            if not installing:
                await self.run(partial(self._entries.discard, prepared))

    def _put_at_once(self, lock: str, prepare: Callable[[], Prepared]) -> Entry | Prepared:
        """Do the whole write at once if the lock is free, or another thread here frees it in a moment; else return the
        prepared version, whose lock must be waited for."""
        prepared, turn = prepare(), self._turns[lock]
        if not turn.acquire(timeout=_NEXT_SECONDS):
            return prepared
        held = None
        try:
            held = self._locks.try_now(lock)
            return prepared if held is None else self._entries.install(prepared, held)
        except BaseException:
            if held is None:
                self._entries.discard(prepared)
            raise
        finally:
            if held is not None:
                held.release()
            turn.release()

    async def _under_lock(self, key: Key, work: Callable[[HeldLock], T]) -> T:
        async with self._locks.hold(write_lock(key), PATIENCE_SECONDS) as held:
            return await self.run(partial(work, held))
