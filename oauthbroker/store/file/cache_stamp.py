"""Check with one stat that a cached entry's file has not changed."""

from __future__ import annotations

import os
from collections.abc import Callable
from operator import attrgetter

from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.store.format.seal import HEADER
from oauthbroker.store.posix.system_calls import Fs

_STEPS = (1_000_000_000, 100_000_000)  # nanoseconds; file systems with coarse times round to these
Identity = tuple[int, int, int, int]
identity: Callable[[os.stat_result], Identity] = attrgetter("st_ino", "st_size", "st_mtime_ns", "st_ctime_ns")
_FINE = 10_000_000  # elsewhere file times move with the kernel's clock, in steps of up to 10 ms


@dataclass(slots=True, eq=False)
class Stamp:
    """The file behind one version of an entry: its inode, size and times, and its header.

    A stat alone can be wrong for a moment: inodes are reused, and two writes within one tick of the file clock have
    equal times. So the header, whose salt is unique to a version, is compared while the version is young. Once the
    version is seen unchanged a tick after it was first seen, any later write must have a later time, and the stat is
    enough. The wall clock is not used. The times show the length of a tick: without a fraction of a second they move in
    steps of one or two seconds, as on ext4 with small inodes and on some network file systems.
    """

    file: Identity
    header: bytes
    seen_at: float
    settled: bool = field(default=False, init=False)

    def holds(self, fs: Fs, folder: int, name: str) -> bool:
        """Tell whether the file still has this version. False when uncertain; raises nothing."""
        try:
            if not self.settled:
                return self._same_header(fs, folder, name)
            return identity(fs.stat(name, dir_fd=folder)) == self.file  # the warm path
        except OSError:
            return False

    def _same_header(self, fs: Fs, folder: int, name: str) -> bool:
        now = fs.monotonic()
        fd = fs.open_file(name, dir_fd=folder)
        try:
            same = identity(fs.fstat(fd)) == self.file and fs.read(fd, HEADER) == self.header
        finally:
            fs.close(fd)
        self.settled = same and now >= self.seen_at + _tick(self.file)
        return same


@dataclass(slots=True)
class _Synced:
    """A folder's times before a sync of it."""

    times: Identity
    young_until: float
    covers_all: bool = False


class FolderSyncs:
    """Syncs folders, by their paths, and spares a sync that would change nothing.

    Any rename in a folder moves its times, but two renames within one tick of the file clock leave equal times. So a
    sync covers all renames only if it began a tick after the times were first seen.
    """

    __slots__ = ("_fs", "_last")

    def __init__(self, fs: Fs) -> None:
        self._fs = fs
        self._last: dict[str, _Synced] = {}

    def sync(self, path: str, folder: int) -> None:
        """Make a folder's names durable. Costs one stat where nothing was renamed since a sync that is known to cover
        all of it. Raises OSError."""
        now, times, last = self._fs.monotonic(), identity(self._fs.fstat(folder)), self._last.get(path)
        if last is None or last.times != times:
            last = _Synced(times, now + _tick(times))
        elif last.covers_all:
            return
        self._fs.fsync(folder)
        last.covers_all = now >= last.young_until
        self._last[path] = last


def _tick(times: Identity) -> float:
    """Return seconds: more than twice the largest rounding step of both times. A fine time that looks coarse costs
    only a few more comparisons."""
    *_, modified, changed = times
    for step in _STEPS:
        if modified % step == changed % step == 0:
            return 2.1 * step / 1e9
    return 2 * _FINE / 1e9
