"""Bring a file to the disk. On macOS `fsync` leaves it in the drive's cache, which a loss of power empties."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from typing import Any

_FULL: Any = getattr(fcntl, "F_FULLFSYNC", None)  # fcntl(2) of macOS
_WITHOUT = frozenset({errno.ENOTSUP, errno.EINVAL, errno.ENOTTY})  # a file system that has no such call


def _past_the_cache(descriptor: int) -> None:
    try:
        fcntl.fcntl(descriptor, _FULL)
        return
    except OSError as error:
        if error.errno not in _WITHOUT:
            raise
    os.fsync(descriptor)


sync: Callable[[int], None] = os.fsync if _FULL is None else _past_the_cache
"""Return once the file or folder is on the disk. Raises OSError."""
