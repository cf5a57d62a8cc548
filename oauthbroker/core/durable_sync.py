"""Bring a file to the disk. On macOS `fsync` leaves it in the drive's cache, which a loss of power empties."""

from __future__ import annotations

import errno
import fcntl
import os

_FULL: int | None = getattr(fcntl, "F_FULLFSYNC", None)  # fcntl(2) of macOS
_WITHOUT = frozenset({errno.ENOTSUP, errno.EINVAL, errno.ENOTTY})  # a file system that has no such call


def sync(descriptor: int) -> None:
    """Return once the file or folder is on the disk. Raises OSError."""
    if _FULL is not None:
        try:
            fcntl.fcntl(descriptor, _FULL)
        except OSError as error:
            if error.errno not in _WITHOUT:
                raise
        else:
            return
    os.fsync(descriptor)
