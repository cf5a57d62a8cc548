"""The file layer: every call that the store makes to the operating system.

`Fs` is small so that a test can count its calls, fail one of them, or crash between two (`testing/crashfs.py`).
All names are relative to an open folder and never followed when they are links.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from filelock import lock_descriptor, unlock_descriptor

from oauthbroker.clock import SystemClock
from oauthbroker.errors import BrokerError, Code

T = TypeVar("T")

_SAFE = os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NONBLOCK | _SAFE  # O_NONBLOCK: a planted FIFO must not hang us
_LOCK = os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | _SAFE
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_REAL = SystemClock()
_NO_RESERVE = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})  # this file system cannot, so the write tells

# What a planted link, FIFO or folder, or a foreign owner, answers; the rest is a disk that does not work right now.
_PLANTED = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO, errno.EACCES, errno.EPERM})


class Fs:
    """The real thing. Every method raises OSError."""

    def make_root(self, path: Path) -> None:
        """The folders down to `path`, where missing."""
        path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def open_root(self, path: Path) -> int:
        """A folder by its path; links on the way are followed, since an operator chose them."""
        return os.open(path, _FOLDER)

    def open_folder(self, folder: int, name: str) -> int:
        return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)

    def make_folder(self, folder: int, name: str) -> None:
        os.mkdir(name, 0o700, dir_fd=folder)

    def open_file(self, folder: int, name: str) -> int:
        return os.open(name, _READ, dir_fd=folder)

    def create_file(self, folder: int, name: str) -> int:
        return os.open(name, _NEW, 0o600, dir_fd=folder)

    def open_lock(self, folder: int, name: str) -> int:
        """Opens or creates a lock file; nothing is ever written to it."""
        return os.open(name, _LOCK, 0o600, dir_fd=folder)

    def close(self, fd: int) -> None:
        os.close(fd)

    def read(self, fd: int, count: int) -> bytes:
        return os.read(fd, count)

    def write(self, fd: int, data: bytes) -> int:
        return os.write(fd, data)

    def reserve(self, fd: int, size: int) -> None:
        """Takes the disk space now, so that a full disk is noticed before anything depends on it."""
        try:
            os.posix_fallocate(fd, 0, size)
        except OSError as exc:
            if exc.errno not in _NO_RESERVE:
                raise

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def fsync(self, fd: int) -> None:
        os.fsync(fd)

    def fstat(self, fd: int) -> os.stat_result:
        return os.fstat(fd)

    def stat(self, folder: int, name: str) -> os.stat_result:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)

    def listdir(self, folder: int) -> list[str]:
        """All names. Through a descriptor of its own: listing moves an offset that copies of one would share."""
        fd = os.open(".", _FOLDER, dir_fd=folder)
        try:
            return os.listdir(fd)  # noqa: PTH208 - a descriptor, not a path
        finally:
            os.close(fd)

    def rename(self, folder: int, old: str, new: str) -> None:
        os.rename(old, new, src_dir_fd=folder, dst_dir_fd=folder)

    def unlink(self, folder: int, name: str) -> None:
        os.unlink(name, dir_fd=folder)

    def try_lock(self, fd: int) -> bool:
        """flock, exclusive, without waiting. Released by `unlock`, or when the last copy of the descriptor closes."""
        return lock_descriptor(fd, blocking=False)

    def unlock(self, fd: int) -> None:
        unlock_descriptor(fd)

    def monotonic(self) -> float:
        """Real seconds, to judge file times with: a test's clock does not move the disk's."""
        return _REAL.monotonic()


def at_border(work: Callable[[], T]) -> T:
    """Runs `work`; an OSError leaves as a BrokerError that knows the errno's name and no path, cause or context."""
    try:
        return work()
    except OSError as exc:
        failed = failure(exc)
    raise failed


def failure(exc: OSError) -> BrokerError:
    code = Code.STORE_PERMISSIONS if exc.errno in _PLANTED else Code.STORE_UNAVAILABLE
    return BrokerError(code, note=errno.errorcode.get(exc.errno or 0, "OSError"))
