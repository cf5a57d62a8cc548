"""Write a file durably: a temporary file, a sync, a rename over the old one, a sync of the folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.file.checked_files import close, quietly
from oauthbroker.store.file.system_calls import Fs


def write_file(fs: Fs, fd: int, data: bytes, *, reserved: bool = False) -> None:
    """Write all of `data`, durably. A `reserved` file may be longer before, not after.

    After a failure the descriptor is unusable: the kernel may mark the lost page as clean.
    """
    if data:
        fs.reserve(fd, len(data))
    rest = memoryview(data)
    while rest:
        rest = rest[fs.write(fd, bytes(rest) if len(rest) < len(data) else data) :]
    if reserved:
        fs.truncate(fd, len(data))
    fs.fsync(fd)


def new_temp(fs: Fs, folder: int, name: str) -> tuple[str, int]:
    """Create a temporary file beside `name`, and return its name, which no entry can have, and its descriptor."""
    return new_locked(fs, folder, f".{name}.", ".tmp")


def new_locked(fs: Fs, folder: int, start: str, end: str = "") -> tuple[str, int]:
    """Create a file with a random name, and return its name and its descriptor.

    It is locked while its writer lives. A store that starts at this moment may still remove it as a leftover; then it
    is created once more.
    """
    for _ in range(8):
        temp = f"{start}{os.urandom(8).hex()}{end}"
        fd = fs.create_file(folder, temp)
        try:
            if fs.try_lock(fd) and fs.fstat(fd).st_nlink == 1:
                return temp, fd
        except BaseException:
            drop_temp(fs, folder, temp, fd)
            raise
        drop_temp(fs, folder, temp, fd)
    raise BrokerError(Code.STORE_UNAVAILABLE, note="temporary files disappear")


def drop_temp(fs: Fs, folder: int, temp: str, fd: int) -> None:
    """Remove a temporary file."""
    quietly(lambda: fs.unlink(folder, temp))
    close(fs, fd)


def create_whole(fs: Fs, folder: int, name: str, data: bytes) -> None:
    """Write `data` under a name, durably: a crash leaves the whole file, or what the name had before."""
    with replacing(fs, folder, name) as fd:
        write_file(fs, fd, data)
    fs.fsync(folder)


@contextmanager
def replacing(fs: Fs, folder: int, name: str) -> Iterator[int]:
    """Give a name to the temporary file that the body writes and syncs. The caller syncs the folder. If the body fails,
    the name keeps its file."""
    temp, fd = new_temp(fs, folder, name)
    try:
        yield fd
        fs.rename(folder, temp, name)
    except BaseException:
        drop_temp(fs, folder, temp, fd)
        raise
    close(fs, fd)
