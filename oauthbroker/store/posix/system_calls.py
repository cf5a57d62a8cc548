"""The file layer: every call that the store makes to the operating system.

`Fs` is small so that a test can count its calls, fail one of them, or crash between two (`tests/kit/crashfs.py`). Names
are relative to an open folder, and links are never followed.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar

from filelock import lock_descriptor, unlock_descriptor

from oauthbroker.core.clock import SystemClock, give_way
from oauthbroker.core.durable_sync import sync
from oauthbroker.core.errors import BrokerError, Code

T = TypeVar("T")

GIVE_WAY_EVERY = 1024  # names that a thread reads, under a millisecond, before other threads may run

_SAFE = os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NONBLOCK | _SAFE  # O_NONBLOCK: a planted FIFO must not hang us
_LOCK = os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | _SAFE
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_RESERVE: Callable[[int, int, int], None] | None = getattr(os, "posix_fallocate", None)  # not on macOS
_NO_RESERVE = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})  # unsupported; the write reports a full disk

# The errors of a planted link, FIFO or folder, or of a foreign owner. Other errors mean a failing disk.
_PLANTED = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO, errno.EACCES, errno.EPERM})
# Those that no time mends: a later start meets them again. A full disk, and one that fails, may pass.
_LASTING = frozenset({errno.EROFS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS})


class Fs:
    """The file layer on the operating system. Every method raises OSError."""

    only_reads = False

    @cached_property
    def leftovers(self) -> set[tuple[int, tuple[int, int], str]]:
        """Temporary files that could not be removed: the descriptor of their folder, which folder that is, and their
        name."""
        return set()

    def make_root(self, path: Path) -> None:
        """Create the missing folders down to `path`, durably. The last one is synced even if it exists: the sync of
        the process that created it may have failed."""
        above = {path.parent, *(each.parent for each in path.parents if not each.exists())}
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in above:
            with suppress(PermissionError):  # another user's folder, which we may only pass through
                self._sync_folder(folder)

    def _sync_folder(self, path: Path) -> None:
        fd = os.open(path, _FOLDER)
        try:
            sync(fd)
        finally:
            os.close(fd)

    def open_root(self, path: Path) -> int:
        """Open a folder by its path. Links on the way are followed, since the operator chose them."""
        return os.open(path, _FOLDER)

    # the system's own calls: the name first, and `dir_fd` is the open folder
    open_folder = staticmethod(partial(os.open, flags=_FOLDER | os.O_NOFOLLOW))
    make_folder = staticmethod(partial(os.mkdir, mode=0o700))
    open_file = staticmethod(partial(os.open, flags=_READ))
    create_file = staticmethod(partial(os.open, flags=_NEW, mode=0o600))
    open_lock = staticmethod(partial(os.open, flags=_LOCK, mode=0o600))  # created if missing; it stays empty
    stat = staticmethod(partial(os.stat, follow_symlinks=False))
    rename = staticmethod(os.rename)
    link = staticmethod(partial(os.link, follow_symlinks=False))
    unlink = staticmethod(os.unlink)
    close = staticmethod(os.close)
    read = staticmethod(os.read)
    write = staticmethod(os.write)
    truncate = staticmethod(os.ftruncate)
    fsync = staticmethod(sync)
    fstat = staticmethod(os.fstat)
    # flock, exclusive, without waiting; released by `unlock`, or when the last duplicate of the descriptor closes
    try_lock = staticmethod(partial(lock_descriptor, blocking=False))
    unlock = staticmethod(unlock_descriptor)
    give_way = staticmethod(give_way)
    monotonic = staticmethod(
        SystemClock.monotonic
    )  # real seconds to compare file times with, also under a test's clock

    def reserve(self, fd: int, size: int) -> None:
        """Allocate the disk space where the system can, so that a full disk is noticed early."""
        if _RESERVE is None:
            return
        try:
            _RESERVE(fd, 0, size)
        except OSError as exc:
            if exc.errno not in _NO_RESERVE:
                raise

    def listdir(self, folder: int) -> list[str]:
        """Return all names. Uses a descriptor of its own, because listing moves an offset that duplicates share."""
        fd = os.open(".", _FOLDER, dir_fd=folder)
        try:
            return os.listdir(fd)  # noqa: PTH208 - a descriptor, not a path
        finally:
            os.close(fd)

    def each_name(self, folder: int) -> Iterator[str]:
        """Yield all names, for a folder with more than should be in memory. Gives way to other threads on the way."""
        fd = os.open(".", _FOLDER, dir_fd=folder)
        try:
            with os.scandir(fd) as found:
                for number, each in enumerate(found, start=1):
                    yield each.name
                    if number % GIVE_WAY_EVERY == 0:
                        self.give_way()
        finally:
            os.close(fd)


def at_border(work: Callable[[], T]) -> T:
    """Run `work` and turn an OSError into a BrokerError that has the errno's name and no path, cause or context."""
    try:
        return work()
    except OSError as exc:
        failed = failure(exc)
    raise failed


def failure(exc: OSError) -> BrokerError:
    code = Code.STORE_PERMISSIONS if exc.errno in _PLANTED else Code.STORE_UNAVAILABLE
    return BrokerError(code, note=errno.errorcode.get(exc.errno or 0, "OSError"), lasting=exc.errno in _LASTING)
