"""flock(2) of an open file: exclusive, until `unlock` or until the last duplicate of the descriptor closes. `filelock`
does the same, and its import takes 2 % of a start."""

from __future__ import annotations

import errno
import fcntl

_HELD = frozenset({errno.EACCES, errno.EAGAIN, errno.EWOULDBLOCK})


def try_lock(descriptor: int) -> bool:
    """Lock a file without waiting. False if it is locked already. Raises OSError."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _HELD:
            return False
        raise
    return True


def unlock(descriptor: int) -> None:
    fcntl.flock(descriptor, fcntl.LOCK_UN)
