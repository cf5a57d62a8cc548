"""Which user and process are at the other end of a Unix socket, as the kernel saw it when the connection was made."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress

_UCRED = struct.Struct("iII")  # pid, uid, gid: unix(7), SO_PEERCRED on Linux
_XUCRED = struct.Struct("II68x")  # version, uid, groups: unix(4), LOCAL_PEERCRED on macOS and the BSDs
_SOL_LOCAL, _LOCAL_PEERCRED = 0, 1


def pid_at(line: socket.socket) -> int | None:
    """Return the process that listens at the other end. None where the system does not say."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return None
    return int(_UCRED.unpack(line.getsockopt(socket.SOL_SOCKET, option, _UCRED.size))[0])


def uid_at(line: socket.socket) -> int | None:
    """Return the user at the other end; for a client that of the process that listens. None for another kind of socket,
    and where the system does not say."""
    if line.family != socket.AF_UNIX:
        return None
    with suppress(OSError, struct.error):
        option = getattr(socket, "SO_PEERCRED", None)
        if option is not None:
            return int(_UCRED.unpack(line.getsockopt(socket.SOL_SOCKET, option, _UCRED.size))[1])
        return int(_XUCRED.unpack(line.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED.size))[1])
    return None
