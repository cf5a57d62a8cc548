"""Write a file durably: a temporary file, a sync, a rename over the old one, a sync of the folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.posix.checked_files import check_file, close, closing
from oauthbroker.store.posix.system_calls import Fs

TEMP: Final = ".tmp"
LOCK_SECONDS: Final = 10.0
LOCK_POLL_SECONDS: Final = 0.005  # the lock is held for a few syncs; at 50 µs a waiter took a seventh of a core
_AT_ONCE = 8  # a disk that is well again gets rid of them over the next writes


def write_file(fs: Fs, fd: int, data: bytes, *, reserved: bool = False) -> None:
    """Write all of `data`, durably. A `reserved` file may be longer before, not after. The write or the sync reports a
    full disk.

    After a failure the descriptor is unusable: the kernel may mark the lost page as clean.
    """
    rest = memoryview(data)
    while rest:
        rest = rest[fs.write(fd, bytes(rest) if len(rest) < len(data) else data) :]
    if reserved:
        fs.truncate(fd, len(data))
    fs.fsync(fd)


def new_temp(fs: Fs, folder: int, start: str, end: str = TEMP) -> tuple[str, int]:
    """Create a file with a random name, which no entry can have, and return that name and its descriptor.

    It is locked while its writer lives. A store that starts at this moment may still remove it as a leftover; then it
    is created once more.
    """
    if fs.leftovers:
        remove_left(fs)
    for _ in range(8):
        temp = f"{start}{os.urandom(8).hex()}{end}"
        fd = fs.create_file(temp, dir_fd=folder)
        try:
            if fs.try_lock(fd) and fs.fstat(fd).st_nlink == 1:
                return temp, fd
        except BaseException:
            drop_temp(fs, folder, temp, fd)
            raise
        drop_temp(fs, folder, temp, fd)
    raise BrokerError(Code.STORE_UNAVAILABLE, note="temporary files disappear")


def drop_temp(fs: Fs, folder: int, temp: str, fd: int) -> None:
    """Remove a temporary file. One that the disk keeps is removed before the next one is created, or by the next
    start."""
    try:
        fs.unlink(temp, dir_fd=folder)
    except FileNotFoundError:  # a store that starts has removed it
        pass
    except OSError:
        fs.leftovers.add((folder, _identity(fs, folder), temp))
    close(fs, fd)


def remove_left(fs: Fs, most: int | None = _AT_ONCE) -> None:
    """Try again to remove temporary files that could not be removed. Those of closed folders stay."""
    for each in list(fs.leftovers)[:most]:
        folder, identity, temp = each
        if _identity(fs, folder) == identity:
            try:
                fs.unlink(temp, dir_fd=folder)
            except FileNotFoundError:
                pass
            except OSError:
                return
            fs.leftovers.discard(each)


def _identity(fs: Fs, folder: int) -> tuple[int, int]:
    try:
        found = fs.fstat(folder)
    except OSError:
        return 0, 0
    return found.st_dev, found.st_ino


def collect_temps(fs: Fs, folder: int, start: str = ".") -> None:
    """Remove temporary files whose names begin so and whose writer has died. A living writer holds a lock on its
    file."""
    for name in fs.listdir(folder):
        if name.startswith(start) and name.endswith(TEMP):
            with (
                suppress(FileNotFoundError),
                closing(fs, fs.open_file(name, dir_fd=folder)) as fd,
            ):  # its writer was faster
                check_file(fs.fstat(fd))
                if fs.try_lock(fd):
                    fs.unlink(name, dir_fd=folder)


def lock_soon(fs: Fs, folder: int) -> None:
    """Lock a folder in which other commands may make a file of their own at this moment. Raises `storeLocked`."""
    late = fs.monotonic() + LOCK_SECONDS
    while not fs.try_lock(folder):
        if fs.monotonic() >= late:
            raise BrokerError(Code.STORE_LOCKED, note="another process makes a file in this folder")
        fs.give_way(LOCK_POLL_SECONDS)


def create_whole(fs: Fs, folder: int, name: str, data: bytes) -> None:
    """Write `data` under a name, durably: a crash leaves the whole file, or what the name had before. The next call
    removes the temporary file that it leaves."""
    with suppress(OSError, BrokerError):
        collect_temps(fs, folder, f".{name}.")
    with replacing(fs, folder, name) as fd:
        write_file(fs, fd, data)
    fs.fsync(folder)


@contextmanager
def replacing(fs: Fs, folder: int, name: str) -> Iterator[int]:
    """Give a name to the temporary file that the body writes and syncs. The caller syncs the folder. If the body fails,
    the name keeps its file."""
    temp, fd = new_temp(fs, folder, f".{name}.")
    try:
        yield fd
        fs.rename(temp, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        drop_temp(fs, folder, temp, fd)
        raise
    close(fs, fd)
