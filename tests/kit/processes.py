"""Processes that a test has started, or left behind without a parent; not those of tests that run beside it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tests.kit.warm_python import FORKS

PROC = Path("/proc")
_TESTS = (b"pytest", b"exec(eval(")  # a run of tests, and a worker of pytest-xdist


def freeze(pid: int) -> None:
    """Stop a child, and return when none of its threads runs: `kill` returns before, and a loaded machine lets them work
    on for a while."""
    os.kill(pid, signal.SIGSTOP)
    become = os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    assert become is not None
    assert os.CLD_STOPPED == become.si_code, "it has ended"


def children_of(parent: int) -> list[int]:
    """Return the children of a process, but for the one that forks them."""
    with suppress(FileNotFoundError):
        found = [int(word) for word in (PROC / f"{parent}/task/{parent}/children").read_text().split()]
        return [pid for pid in found if _name(pid) != FORKS]
    return []


def _name(pid: int) -> str:
    with suppress(OSError):
        return (PROC / str(pid) / "comm").read_text().strip()
    return ""


async def ended(pid: int) -> bool:
    """Return whether a process ends. One without a parent is gone when the machine's first process has heard of it."""
    for _ in range(500):
        state = b"Z"
        with suppress(OSError):
            state = (PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()[0]
        if state == b"Z":
            return True
        await asyncio.sleep(0.02)
    return False


def running_here(marker: str) -> list[int]:
    """Return the processes with a text in their command line."""
    numbers = [int(folder.name) for folder in PROC.iterdir() if folder.name.isdigit()]
    return [pid for pid in numbers if marker.encode() in _command(pid) and _is_ours(pid)]


def _is_ours(pid: int) -> bool:
    above = list(_ancestors(pid))
    return os.getpid() in above or not any(each in _command(parent) for parent in above for each in _TESTS)


def _ancestors(pid: int) -> Iterator[int]:
    while pid > 1:
        pid = _parent(pid)
        yield pid


def _parent(pid: int) -> int:
    with suppress(OSError):
        return int((PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
    return 0


def _command(pid: int) -> bytes:
    with suppress(OSError):
        return (PROC / str(pid) / "cmdline").read_bytes()
    return b""
