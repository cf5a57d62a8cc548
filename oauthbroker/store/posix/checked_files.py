"""Check files and folders of the store, open them, and read a file whole."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.posix.system_calls import Fs

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def check_file(found: os.stat_result, name: str = "") -> os.stat_result:
    """Raise `storePermissions` unless it is a plain file that only we can access. A link count of 0 is allowed: it
    was replaced since we opened it."""
    is_plain = stat.S_ISREG(found.st_mode) and found.st_nlink <= 1
    if not is_plain or found.st_uid != os.geteuid() or found.st_mode & _OTHERS:
        raise _refusal(found, "" if is_plain else "not a plain file", name)
    return found


def check_folder(found: os.stat_result, name: str = "") -> os.stat_result:
    """Raise `storePermissions` unless it is a folder that only we can enter."""
    is_folder = stat.S_ISDIR(found.st_mode)
    if not is_folder or found.st_uid != os.geteuid() or found.st_mode & _OTHERS:
        raise _refusal(found, "" if is_folder else "not a folder", name)
    return found


def check_root(found: os.stat_result) -> os.stat_result:
    """Check a folder above ours. Others may read it but not write to it: a user who can rename our folder can
    replace it."""
    if found.st_mode & 0o002 and not found.st_mode & stat.S_ISVTX:
        raise BrokerError(Code.STORE_PERMISSIONS, note="all users may write to the folder")
    return found


def _refusal(found: os.stat_result, what: str, name: str) -> BrokerError:
    what = what or ("open to others" if found.st_uid == os.geteuid() else "owned by another user")
    return BrokerError(Code.STORE_PERMISSIONS, note=f"{name} is {what}" if name else what)


def read_file(fs: Fs, folder: int, name: str, limit: int) -> tuple[bytes, os.stat_result] | None:
    """Return the content and stat of a plain file of at most `limit` bytes, or None if it does not exist."""
    refused = None
    try:
        fd = fs.open_file(name, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as exc:
        refused = exc
    if refused is not None:
        raise _not_opened(fs, refused, name, folder)
    try:
        found = check_file(fs.fstat(fd), name)
        return fs.read(fd, min(found.st_size, limit) + 1), found
    finally:
        close(fs, fd)


def content_of(fs: Fs, folder: int, name: str, limit: int) -> bytes | None:
    """Return the content of such a file alone."""
    found = read_file(fs, folder, name, limit)
    return found[0] if found else None


def make_folders(fs: Fs, parent: int, names: Iterable[str]) -> None:
    """Create missing folders below `parent`, durably. Existing ones are synced too: the sync of the process that
    created them may have failed."""
    for name in names:
        with suppress(FileExistsError):
            fs.make_folder(name, dir_fd=parent)
    fs.fsync(parent)


def own_folder(fs: Fs, parent: int, name: str) -> int:
    """Open a folder of ours below `parent`. Raises `storePermissions` for a link or a file in its place."""
    refused = None
    try:
        fd = fs.open_folder(name, dir_fd=parent)
    except OSError as exc:
        refused = exc
    if refused is not None:
        raise _not_opened(fs, refused, name, parent)
    try:
        check_folder(fs.fstat(fd), name)
    except BaseException:
        close(fs, fd)
        raise
    return fd


def sync_names(fs: Fs, folder: int) -> None:
    """Make a folder's names durable, if it is writable: a mounted secret is not."""
    try:
        fs.fsync(folder)
    except OSError as exc:
        if exc.errno not in {errno.EROFS, errno.EINVAL}:
            raise


def _not_opened(fs: Fs, refused: OSError, name: str, parent: int) -> OSError | BrokerError:
    """Return what to raise: it names a link, or a file for a folder, which the system refuses."""
    if refused.errno not in {errno.ELOOP, errno.ENOTDIR}:
        return refused
    found = fs.stat(name, dir_fd=parent)
    return _refusal(found, "a link" if stat.S_ISLNK(found.st_mode) else "not a folder", name)


def close(fs: Fs, fd: int) -> None:
    """Close a descriptor. Written data was synced before, so a failing close loses nothing."""
    try:  # noqa: SIM105 - on the way of every read
        fs.close(fd)
    except OSError:
        pass


@contextmanager
def closing(fs: Fs, fd: int) -> Iterator[int]:
    """Close a descriptor after the body."""
    try:
        yield fd
    finally:
        close(fs, fd)
