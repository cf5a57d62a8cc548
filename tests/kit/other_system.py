"""A Python on Linux that lacks what macOS lacks: `take_away()` before the first import of ours.

It cannot show how the system's own calls behave there: locks, `F_FULLFSYNC` itself, the loop's kqueue.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import select
import selectors
import signal
import socket
import struct
import sys
import sysconfig
import time
from types import ModuleType
from typing import Any

# Names of Linux that macOS has not, from the conditions in typeshed and the manual pages of macOS.
MISSING: dict[str, tuple[str, ...]] = {
    "os": (
        "O_TMPFILE", "O_PATH", "O_DIRECT", "O_NOATIME", "O_LARGEFILE", "O_RSYNC", "posix_fallocate", "posix_fadvise", "fdatasync", "memfd_create",
        "pidfd_open", "sched_getaffinity", "sched_setaffinity", "sched_setscheduler", "copy_file_range", "splice", "eventfd",
        "eventfd_read", "eventfd_write", "getrandom", "pipe2", "getxattr", "setxattr", "listxattr", "removexattr", "getresuid", "getresgid",
        "setresuid", "setresgid", "waitid", "P_PIDFD",
    ),
    "socket": (
        "SO_PEERCRED", "SO_PASSCRED", "SO_PEERSEC", "SO_MARK", "SO_BINDTODEVICE", "SO_PROTOCOL", "SO_DOMAIN", "SO_PRIORITY", "SOCK_CLOEXEC",
        "SOCK_NONBLOCK", "TCP_CORK", "TCP_QUICKACK", "TCP_USER_TIMEOUT", "TCP_DEFER_ACCEPT", "TCP_CONGESTION", "TCP_KEEPIDLE", "TCP_SYNCNT",
        "TCP_LINGER2", "TCP_WINDOW_CLAMP", "MSG_CMSG_CLOEXEC", "MSG_ERRQUEUE", "MSG_MORE", "MSG_CONFIRM", "MSG_FASTOPEN", "AF_PACKET", "AF_NETLINK",
        "AF_VSOCK", "AF_ALG", "AF_TIPC", "AF_CAN",
    ),
    "select": ("epoll", "POLLRDHUP", "POLLMSG", "EPOLLIN", "EPOLLOUT", "EPOLLET"),
    "signal": ("sigtimedwait", "sigwaitinfo", "pidfd_send_signal", "SIGRTMIN", "SIGRTMAX", "SIGPWR", "SIGSTKFLT", "SIGCLD", "SIGPOLL"),
    "fcntl": (
        "F_OFD_SETLK", "F_OFD_SETLKW", "F_OFD_GETLK", "F_SETPIPE_SZ", "F_GETPIPE_SZ", "F_ADD_SEALS", "F_GET_SEALS", "F_NOTIFY", "F_SETLEASE",
        "F_GETLEASE", "F_SETSIG", "F_GETSIG",
    ),
    "resource": ("prlimit", "RUSAGE_THREAD", "RLIMIT_MSGQUEUE", "RLIMIT_NICE", "RLIMIT_RTPRIO", "RLIMIT_RTTIME", "RLIMIT_SIGPENDING"),
    "time": ("CLOCK_BOOTTIME", "CLOCK_TAI", "pthread_getcpuclockid"),
}  # fmt: skip
MODULES: dict[str, ModuleType] = {each.__name__: each for each in (os, socket, select, signal, fcntl, resource, time)}
FULL_SYNC = 51  # F_FULLFSYNC of <sys/fcntl.h>
full_syncs: list[int] = []
_SO_PEERCRED, _UCRED = 17, struct.Struct("iII")
_getsockopt = socket.socket.getsockopt


def _peer_of_macos(line: socket.socket, level: int, option: int, *size: int) -> Any:
    """Answer LOCAL_PEERCRED with an xucred: version, user, groups."""
    if (level, option, line.family) != (0, 1, socket.AF_UNIX):
        return _getsockopt(line, level, option, *size)
    _, uid, _ = _UCRED.unpack(_getsockopt(line, socket.SOL_SOCKET, _SO_PEERCRED, _UCRED.size))
    return struct.pack("II68x", 0, uid)


class _NoLibrary:
    """The C library without Linux's calls."""

    def __init__(self, *_: object, **__: object) -> None: ...


def take_away(platform: str = "darwin") -> None:
    """Delete the names, close /proc, and add F_FULLFSYNC, which then counts in `full_syncs`."""
    for name, names in MISSING.items():
        for each in names:
            if hasattr(MODULES[name], each):
                delattr(MODULES[name], each)
    vars(selectors).update(DefaultSelector=selectors.PollSelector)  # it was chosen when `socket` was imported
    sysconfig.get_config_vars()  # those of the interpreter, which macOS has under another name
    proxies = ModuleType("_scproxy")  # the proxies of System Settings, which urllib imports
    vars(proxies).update(_get_proxies=dict, _get_proxy_settings=dict)
    sys.modules["_scproxy"] = proxies
    real = fcntl.fcntl

    def control(descriptor: Any, command: int, *argument: Any) -> Any:
        if command != FULL_SYNC:
            return real(descriptor, command, *argument)
        full_syncs.append(descriptor)
        return os.fsync(descriptor)

    def no_proc(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and str(arguments[0]).startswith(("/proc/", "/sys/")):
            raise FileNotFoundError(arguments[0])

    vars(fcntl).update(fcntl=control, F_FULLFSYNC=FULL_SYNC)
    vars(ctypes).update(CDLL=_NoLibrary)
    setattr(socket.socket, "getsockopt", _peer_of_macos)  # noqa: B010
    sys.addaudithook(no_proc)
    vars(sys).update(platform=platform)
