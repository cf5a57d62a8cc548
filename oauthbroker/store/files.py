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
        fs.close(fd)


def write_file(fs: Fs, fd: int, data: bytes) -> None:
    """All of `data`, durably. After a failure the descriptor is of no use: the kernel may call the lost page clean."""
    fs.reserve(fd, len(data))
    rest = memoryview(data)
    while rest:
        rest = rest[fs.write(fd, bytes(rest) if len(rest) < len(data) else data) :]
    fs.fsync(fd)


def create_whole(fs: Fs, folder: int, name: str, data: bytes) -> None:
    """`data` under a name that is free, durably: a crash leaves the whole file or none."""
    temp = temp_name(name)
    fd = fs.create_file(folder, temp)
    try:
        write_file(fs, fd, data)
        fs.rename(folder, temp, name)
    except BaseException:
        quietly(lambda: fs.unlink(folder, temp))
        raise
    finally:
        fs.close(fd)
    fs.fsync(folder)


def own_folder(fs: Fs, parent: int, name: str) -> int:
    """A folder of ours below `parent`, opened; made where missing (`parent` is not synced)."""
    with suppress(FileExistsError):
        fs.make_folder(parent, name)
    fd = fs.open_folder(parent, name)
    try:
        check_folder(fs.fstat(fd))
    except BaseException:
        fs.close(fd)
        raise
    return fd


def temp_name(name: str) -> str:
    """A name that no entry can have, unique to one write."""
    return f".{name}.{os.urandom(8).hex()}.tmp"


def quietly(step: Callable[[], None]) -> None:
    """For tidying up after a failure: the first failure is the one to report."""
    with suppress(OSError):
        step()
