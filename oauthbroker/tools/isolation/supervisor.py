"""Run one command with limits, and leave none of its processes behind. A script of the standard library alone. Its
processes become children of this one when their parents end (PR_SET_CHILD_SUBREAPER), also after `setsid` and a double
fork. So it ends them all: when the command ends, on SIGTERM, and when its own parent dies. Arguments: the limits in the
order of `LIMITED`, the user and the group id, each -1 for none, then the command. The exit status is the command's, or
128 and the signal. Each call waits for its start, so it imports little: neither `json` nor `typing`."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
from collections.abc import Iterator

PARENT_DIES, DUMPABLE, NO_NEW_PRIVILEGES, SUBREAPER = 1, 4, 38, 36  # of prctl(2)
NOT_STARTED = 126
END_SECONDS = 5.0  # for the processes below this one to end
LIMITED = (
    resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC,
)  # fmt: skip


def main() -> None:
    *limits, user, group = map(int, sys.argv[1:8])
    waited = {signal.SIGCHLD, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    _control(SUBREAPER, 1)
    _control(PARENT_DIES, signal.SIGTERM)
    _control(DUMPABLE, 0)  # no process of the same user may trace this one, or read its memory
    child = os.fork()
    if child == 0:
        _become(sys.argv[8:], limits, user, group)
    _release_descriptors()
    ended: dict[int, int] = {}
    while child not in ended and signal.sigwait(waited) == signal.SIGCHLD:
        _reap(ended)
    _end_all()
    os._exit(ended.get(child, NOT_STARTED))


def _become(command: list[str], limits: list[int], user: int, group: int) -> None:
    """Become the command: limits first, then the user, then no way back."""
    try:
        os.setpgid(0, 0)
        _limit(limits)
        if user >= 0:
            os.setgroups([])
            os.setgid(group)
            os.setuid(user)
        _control(NO_NEW_PRIVILEGES, 1)
        _control(PARENT_DIES, signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_SETMASK, set())
        os.execv(command[0], command)  # noqa: S606 - no shell
    except BaseException:  # noqa: BLE001 - two processes must never run the same code
        os._exit(NOT_STARTED)


def _limit(limits: list[int]) -> None:
    wanted = {which: limit for which, limit in zip(LIMITED, limits, strict=True) if limit >= 0}
    wanted[resource.RLIMIT_CORE] = 0
    for which, limit in wanted.items():
        _, allowed = resource.getrlimit(which)
        most = limit if allowed == resource.RLIM_INFINITY else min(limit, allowed)
        resource.setrlimit(which, (most, most))


def _release_descriptors() -> None:
    """Let go of the command's descriptors, so that their other ends see when the command lets go of them."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    os.closerange(3, 1024)


def _end_all() -> None:
    """End all processes below this one. A process that forks meanwhile is found in the next round."""
    began = os.times().elapsed
    while os.times().elapsed - began < END_SECONDS:
        for process in _children():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        if not _reap({}):
            return
        signal.sigtimedwait({signal.SIGCHLD}, 0.01)


def _children() -> Iterator[int]:
    me = os.getpid()
    for name in os.listdir("/proc"):  # noqa: PTH208 - without pathlib, which costs a third of the start
        with contextlib.suppress(OSError, ValueError, IndexError):
            with open(f"/proc/{int(name)}/stat", "rb") as file:  # noqa: PTH123
                fields = file.read().rpartition(b")")[2].split()
            if int(fields[1]) == me:
                yield int(name)


def _reap(ended: dict[int, int]) -> bool:
    """Reap children that ended, and note their exit status by process id. Return whether any child is left."""
    with contextlib.suppress(ChildProcessError):
        while (end := os.waitpid(-1, os.WNOHANG))[0]:
            code = os.waitstatus_to_exitcode(end[1])
            ended[end[0]] = code if code >= 0 else 128 - code
        return True
    return False


def _control(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main()
