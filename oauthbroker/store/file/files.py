"""What we demand of a file or folder, and the two safe ways to move bytes: read one whole, write one durably."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress

from oauthbroker.errors import BrokerError, Code
from oauthbroker.store.fs import Fs


def check_file(found: os.stat_result) -> os.stat_result:
    """`storePermissions` unless a plain file, ours alone. No link count is fine: it was replaced since we opened it."""
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        raise BrokerError(Code.STORE_PERMISSIONS, note="not a plain file")
    return _check_ours(found, 0o077)


def check_folder(found: os.stat_result) -> os.stat_result:
    """`storePermissions` unless a folder that nobody else can enter."""
    if not stat.S_ISDIR(found.st_mode):
        raise BrokerError(Code.STORE_PERMISSIONS, note="not a folder")
    return _check_ours(found, 0o077)


def check_root(found: os.stat_result) -> os.stat_result:
    """A folder around ours may be read by others, not changed: who can rename our folder can replace it."""
    if found.st_mode & 0o002 and not found.st_mode & stat.S_ISVTX:
        raise BrokerError(Code.STORE_PERMISSIONS, note="a folder that everybody may change")
    return found


def _check_ours(found: os.stat_result, forbidden: int) -> os.stat_result:
    if found.st_uid != os.geteuid():
        raise BrokerError(Code.STORE_PERMISSIONS, note="owned by somebody else")
    if found.st_mode & forbidden:
        raise BrokerError(Code.STORE_PERMISSIONS, note="open to others")
    return found


def read_file(fs: Fs, folder: int, name: str, limit: int) -> tuple[bytes, os.stat_result] | None:
    """A plain file of at most `limit` bytes and what it was, or None where there is none."""
    try:
        fd = fs.open_file(folder, name)
    except FileNotFoundError:
        return None
    try:
        found = check_file(fs.fstat(fd))
        return fs.read(fd, min(found.st_size, limit) + 1), found
    finally:
        close(fs, fd)


def write_file(fs: Fs, fd: int, data: bytes, *, reserved: bool = False) -> None:
    """All of `data`, durably; a `reserved` file may be longer before, not after. After a failure the descriptor is of
    no use: the kernel may call the lost page clean."""
    if data:
        fs.reserve(fd, len(data))
    rest = memoryview(data)
    while rest:
        rest = rest[fs.write(fd, bytes(rest) if len(rest) < len(data) else data) :]
    if reserved:
        fs.truncate(fd, len(data))
    fs.fsync(fd)


def new_temp(fs: Fs, folder: int, name: str) -> tuple[str, int]:
    """A new temporary file beside `name`, which no entry can be called, and its descriptor.

    It is locked, which says that its writer lives. A store that starts right now may still have taken it for left
    over: then once more.
    """
    for _ in range(8):
        temp = f".{name}.{os.urandom(8).hex()}.tmp"
        fd = fs.create_file(folder, temp)
        try:
            if fs.try_lock(fd) and fs.fstat(fd).st_nlink == 1:
                return temp, fd
        except BaseException:
            drop_temp(fs, folder, temp, fd)
            raise
        drop_temp(fs, folder, temp, fd)
    raise BrokerError(Code.STORE_UNAVAILABLE, note="temporary files do not stay")


def drop_temp(fs: Fs, folder: int, temp: str, fd: int) -> None:
    """Gives up a temporary file."""
    quietly(lambda: fs.unlink(folder, temp))
    close(fs, fd)


def create_whole(fs: Fs, folder: int, name: str, data: bytes) -> None:
    """`data` under a name that is free, durably: a crash leaves the whole file or none."""
    temp, fd = new_temp(fs, folder, name)
    try:
        write_file(fs, fd, data)
        fs.rename(folder, temp, name)
    except BaseException:
        drop_temp(fs, folder, temp, fd)
        raise
    close(fs, fd)
    fs.fsync(folder)


def own_folder(fs: Fs, parent: int, name: str) -> int:
    """A folder of ours below `parent`, opened; made where missing, durably."""
    with suppress(FileExistsError):
        fs.make_folder(parent, name)
        fs.fsync(parent)
    fd = fs.open_folder(parent, name)
    try:
        check_folder(fs.fstat(fd))
    except BaseException:
        close(fs, fd)
        raise
    return fd


def close(fs: Fs, fd: int) -> None:
    """Gives a descriptor back. What was written is synced before, so a failing close loses nothing."""
    try:  # noqa: SIM105 - on the way of every read
        fs.close(fd)
    except OSError:
        pass


def quietly(step: Callable[[], None]) -> None:
    """For tidying up after a failure: the first failure is the one to report."""
    with suppress(OSError):
        step()
