"""Locks between processes: flock through filelock, on descriptors that the file layer opened and checked.

A waiter never blocks a thread: it tries, sleeps a few milliseconds and tries again, less often the longer it has
waited. An asyncio lock in front of each file lets one task per process compete for it. Only the holder of a lock
removes its file: a process that has opened that file finds it without its name, and opens the next one. Waiting is
measured in real time even under a test's clock, because the other process is real.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Collection, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from functools import cache

from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import note_held
from oauthbroker.core.opened_here import CLOSED, NotUsableHere
from oauthbroker.store.posix.checked_files import check_file
from oauthbroker.store.posix.system_calls import Fs, failure
from oauthbroker.store.task_gates import TaskGates

_SHORT, _LONG = 0.005, 0.05  # seconds between two tries, first and longest; an unfair lock needs short pauses
_YOUNG = 60  # seconds for which the file of a free lock stays: its next holder may come soon
_EACH = 0.001  # seconds added to the longest pause for each lock in use, so that many waiters cost no more than a few


@dataclass(slots=True, eq=False, kw_only=True)
class HeldLock:
    """A lock that is held."""

    fs: Fs
    folder: int
    name: str
    fd: int
    file: os.stat_result

    def still_named(self) -> bool:
        """Tell whether the locked file still has its name. A removed lock file would allow two holders."""
        try:
            named = self.fs.stat(self.name, dir_fd=self.folder)
        except FileNotFoundError:
            return False
        return (named.st_ino, named.st_dev) == (self.file.st_ino, self.file.st_dev)

    @property
    def lost(self) -> bool:
        """Tell whether another process may hold a lock of this name. A failing disk counts as lost."""
        try:
            return not self.still_named()
        except OSError:
            return True

    async def holds(self) -> bool:
        return not self.lost

    def release(self) -> None:
        """Unlock explicitly: closing is not enough, since a forked child may still share the descriptor."""
        with suppress(OSError):  # closing it unlocks it too, where no child shares it
            self.fs.unlock(self.fd)
        _close(self.fs, self.fd)


class Locks:
    """Lock files in one folder. Belongs to one event loop."""

    def __init__(self, fs: Fs, folder: int, clock: Clock) -> None:
        self._fs, self._folder, self._clock = fs, folder, clock
        self._gates = TaskGates()
        self._closed = False
        _watch_forks()

    def close(self) -> None:
        """Refuse all further locks: the folder's descriptor number is about to be reused."""
        self._closed = True

    @asynccontextmanager
    async def hold(self, name: str, wait: float) -> AsyncIterator[HeldLock]:
        """Hold the lock `name` for the body. Raises `storeLocked` as `TaskGates.entered`, and `storePermissions` if the
        lock file is not a plain file of ours."""
        async with self._gates.entered(name, wait) as deadline:
            held = self._try(name) or await self._poll(name, deadline)
            try:
                yield held
            finally:
                held.release()

    def try_now(self, name: str) -> HeldLock | None:
        """Take the lock if it is free and no task here waits for it; the caller releases it. May be called on any
        thread."""
        return None if name in self._gates else self._try(name)

    def names(self) -> Iterator[str]:
        """Yield the names of all locks that have a file."""
        return self._fs.each_name(self._folder)

    def remove_unused(self, names: Iterable[str], kinds: Collection[str]) -> int:
        """Remove the files of leases of these kinds that are free and were made a while ago. Return the number of
        names. For a thread."""
        newest, count = self._clock.now().timestamp() - _YOUNG, 0
        for name in names:
            count += 1
            if name.partition("-")[0] in kinds:
                with suppress(FileNotFoundError):  # another process was faster
                    if self._fs.stat(name, dir_fd=self._folder).st_mtime < newest:
                        self._remove(name)
        return count

    def _remove(self, name: str) -> None:
        held = self.try_now(name)
        if held is None:
            return
        try:
            self._fs.unlink(name, dir_fd=self._folder)
        finally:
            held.release()

    async def _poll(self, name: str, deadline: float) -> HeldLock:
        """Wait for the lock. There is no await between a successful try and the caller's body, so a cancelled waiter
        never keeps the lock."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while (held := self._try(name)) is None:
            now = loop.time()
            if now >= deadline:
                note_held(name)
                raise BrokerError(Code.STORE_LOCKED)
            await asyncio.sleep(min(deadline - now, self._pause(now - began)))
        return held

    def _pause(self, waited: float) -> float:
        """Return a tenth of the time waited, so that the wait hardly outlasts the other process's hold."""
        pause = max(_SHORT, min(waited / 10, max(_LONG, _EACH * len(self._gates))))
        return self._clock.jitter(pause / 5, pause)

    def _try(self, name: str) -> HeldLock | None:
        """Try once to lock the file with that name."""
        if self._closed:
            raise NotUsableHere(CLOSED)
        try:
            with _forking:
                fd = self._fs.open_lock(name, dir_fd=self._folder)
                _open_here.add(fd)
            locked = False
            try:
                file = check_file(self._fs.fstat(fd))
                held = HeldLock(fs=self._fs, folder=self._folder, name=name, fd=fd, file=file)
                locked = self._fs.try_lock(fd) and held.still_named()
            finally:
                if not locked:
                    _close(self._fs, fd)
        except OSError as exc:
            failed = failure(exc)
        else:
            return held if locked else None
        raise failed


def _close(fs: Fs, fd: int) -> None:
    with _forking, suppress(OSError):  # nothing was written to it
        _open_here.discard(fd)
        fs.close(fd)


# A forked child shares the lock's descriptor, and the lock lives as long as any duplicate of it. So a child closes them
# first; `_forking` prevents a fork between opening and recording a descriptor.
_forking = threading.RLock()
_open_here: set[int] = set()


@cache
def _watch_forks() -> None:
    os.register_at_fork(before=_forking.acquire, after_in_parent=_forking.release, after_in_child=_drop_locks)


def _drop_locks() -> None:
    for fd in _open_here:
        os.close(fd)
    _open_here.clear()
    _forking.release()
