"""Locks between processes: flock through filelock, on descriptors that the file layer opened and checked.

A waiter never blocks a thread: it tries, sleeps a few milliseconds and tries again. In front of each file stands
an asyncio lock, so that one task per process competes for it. A lock file is never removed. Waiting is measured in
real time even where a test injects its clock, because the other process is real.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache

from oauthbroker.clock import Clock
from oauthbroker.errors import BrokerError, Code
from oauthbroker.store.files import check_file, close, quietly
from oauthbroker.store.fs import Fs, at_border

_SHORTEST, _LONGEST = 0.001, 0.005  # seconds between two tries; an unfair lock needs short ones


class Held:
    """A lock that is held right now."""

    __slots__ = ("_fd", "_folder", "_fs", "_name")

    def __init__(self, fs: Fs, folder: int, name: str, fd: int) -> None:
        self._fs, self._folder, self._name, self._fd = fs, folder, name, fd

    def still_named(self) -> bool:
        """Whether the file that we locked is the one others would lock: a removed lock file gives two holders."""
        return _names(self._fs, self._folder, self._name, self._fd)

    def release(self) -> None:
        """Unlocks by word, not only by closing: a child that was forked meanwhile may still share the descriptor."""
        quietly(lambda: self._fs.unlock(self._fd))
        _close(self._fs, self._fd)


class _Gate:
    """The queue in this process for one lock file; it lives while somebody uses it."""

    __slots__ = ("lock", "users")

    def __init__(self) -> None:
        self.lock, self.users = asyncio.Lock(), 0


class Locks:
    """Lock files in one folder. Belongs to one event loop."""

    def __init__(self, fs: Fs, folder: int, clock: Clock) -> None:
        self._fs, self._folder, self._clock = fs, folder, clock
        self._gates: dict[str, _Gate] = {}
        self._closed = False
        _watch_forks()

    def close(self) -> None:
        """From now on nobody gets a lock: the folder's descriptor is about to name something else."""
        self._closed = True

    @asynccontextmanager
    async def hold(self, name: str, wait: float) -> AsyncIterator[Held]:
        """Holds the lock `name` for the body. Raises `storeLocked` after `wait` seconds, `storePermissions` when the
        lock file is not a plain file of ours."""
        deadline = asyncio.get_running_loop().time() + wait
        gate = self._gates.setdefault(name, _Gate())
        gate.users += 1
        try:
            await _enter(gate.lock, deadline)
            try:
                held = await self._poll(name, deadline)
                try:
                    yield held
                finally:
                    held.release()
            finally:
                gate.lock.release()
        finally:
            gate.users -= 1
            if not gate.users:
                del self._gates[name]

    def try_now(self, name: str) -> Held | None:
        """The lock, if it is free and nobody here waits for it; the caller releases it. May be called on any thread."""
        return None if name in self._gates else self._try(name)

    async def _poll(self, name: str, deadline: float) -> Held:
        """Between a successful try and the caller's body nothing awaits, so a cancelled waiter never keeps the lock."""
        loop = asyncio.get_running_loop()
        while (held := self._try(name)) is None:
            left = deadline - loop.time()
            if left <= 0:
                raise BrokerError(Code.STORE_LOCKED)
            await asyncio.sleep(min(left, self._clock.jitter(_SHORTEST, _LONGEST)))
        return held

    def _try(self, name: str) -> Held | None:
        if self._closed:
            raise BrokerError(Code.STORE_UNAVAILABLE, note="the store is closed")
        fd = at_border(lambda: _try(self._fs, self._folder, name))
        return None if fd is None else Held(self._fs, self._folder, name, fd)


async def _enter(gate: asyncio.Lock, deadline: float) -> None:
    try:
        async with asyncio.timeout_at(deadline):
            await gate.acquire()
        return
    except TimeoutError:
        pass
    raise BrokerError(Code.STORE_LOCKED)


def _try(fs: Fs, folder: int, name: str) -> int | None:
    """One try: a locked descriptor of the file that bears the name, or None."""
    with _forking:
        fd = fs.open_lock(folder, name)
        _open_here.add(fd)
    locked = False
    try:
        check_file(fs.fstat(fd))
        locked = fs.try_lock(fd) and _names(fs, folder, name, fd)
    finally:
        if not locked:
            _close(fs, fd)
    return fd if locked else None


def _names(fs: Fs, folder: int, name: str, fd: int) -> bool:
    try:
        named = fs.stat(folder, name)
    except FileNotFoundError:
        return False
    mine = fs.fstat(fd)
    return (named.st_ino, named.st_dev) == (mine.st_ino, mine.st_dev)


def _close(fs: Fs, fd: int) -> None:
    with _forking:
        _open_here.discard(fd)
        close(fs, fd)


# A forked child shares the lock's descriptor, and the lock lives as long as any copy of it. So a child closes them
# first thing; `_forking` keeps a fork from falling between opening and noting a descriptor.
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
