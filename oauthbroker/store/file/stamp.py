"""How a cached entry learns that its file is still the same one, for the price of a stat."""

from __future__ import annotations

import os

from oauthbroker.store.files import close
from oauthbroker.store.fs import Fs
from oauthbroker.store.seal import HEADER

_STEPS = (1_000_000_000, 100_000_000)  # nanoseconds; what file systems with coarse times round theirs to
_FINE = 10_000_000  # elsewhere file times move with the kernel's clock, in steps of up to 10 ms


class Stamp:
    """The file behind one version of an entry: its inode, size and times, and its header.

    A stat alone can lie for a moment: inodes are reused, and two writes within one tick of the file clock have the
    same times. So while the version is young its header is compared, whose salt no other version shares. Once the
    same version is seen again a tick after it was first seen, any later write must carry a later time, and from then
    on the stat is enough. No wall clock takes part. How long a tick is, the times tell: without a fraction of a second
    they move in steps of one or two seconds, as on ext4 with small inodes and on some network file systems.
    """

    __slots__ = ("_file", "_header", "_settled", "_young_until")

    def __init__(self, stat: os.stat_result, header: bytes, now: float) -> None:
        self._file, self._header, self._settled = _identity(stat), header, False
        self._young_until = now + _tick(stat)

    def holds(self, fs: Fs, folder: int, name: str) -> bool:
        """Whether that file still has this version. False when in doubt; raises nothing."""
        try:
            return self._same_stat(fs, folder, name) if self._settled else self._same_header(fs, folder, name)
        except OSError:
            return False

    def _same_stat(self, fs: Fs, folder: int, name: str) -> bool:
        return _identity(fs.stat(folder, name)) == self._file

    def _same_header(self, fs: Fs, folder: int, name: str) -> bool:
        now = fs.monotonic()
        fd = fs.open_file(folder, name)
        try:
            same = _identity(fs.fstat(fd)) == self._file and fs.read(fd, HEADER) == self._header
        finally:
            close(fs, fd)
        self._settled = same and now >= self._young_until
        return same


def _identity(stat: os.stat_result) -> tuple[int, int, int, int]:
    return stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


def _tick(stat: os.stat_result) -> float:
    """Seconds: more than twice the largest step that both times may have been rounded to. A fine time that looks like a
    coarse one costs no more than some comparisons."""
    for step in _STEPS:
        if stat.st_mtime_ns % step == stat.st_ctime_ns % step == 0:
            return 2.1 * step / 1e9
    return 2 * _FINE / 1e9
