"""Harden the process before it reads a secret: no core dumps, no debuggers, quiet libraries (case 92)."""

from __future__ import annotations

import ctypes
import logging
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from oauthbroker.core.refused import Refused, described

if TYPE_CHECKING:
    from oauthbroker.observability.logging import Log

PR_SET_PDEATHSIG, PR_SET_DUMPABLE = 1, 4  # prctl(2)
ORPHANED = signal.SIGUSR1  # the kernel sends it for each thread that the parent had


def harden() -> None:
    """Forbid core dumps of this process and its children, and memory access by this user's other processes.

    If the kernel has no such call, only the limit on core dumps applies.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def make_room(descriptors: int) -> int:
    """Raise the limit of open files to `descriptors`, or as far as allowed; returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    may = descriptors if hard == unlimited else min(descriptors, hard)
    if soft != unlimited and soft < may:
        resource.setrlimit(resource.RLIMIT_NOFILE, (may, hard))
    return max(may, soft) if soft != unlimited else descriptors


def end_with_parent(parent: int) -> None:
    """Arrange that ORPHANED arrives, maybe repeatedly, when process `parent` dies. Raises Refused if it has died."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(PR_SET_PDEATHSIG, ORPHANED, 0, 0, 0)
    if os.getppid() != parent:
        raise Refused("The process that started this worker has ended: start `oauthbroker serve --workers` instead.")


class LibraryLog(logging.Handler):
    """Logs the source and level of libraries' log records. Their texts may quote a request and are dropped."""

    def __init__(self, log: Log) -> None:
        super().__init__(level=logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        crash = record.exc_info[1] if record.exc_info else None
        self._log.warning(
            "library",
            library=record.name,
            severity=record.levelname.lower(),
            place=f"{record.filename}:{record.lineno}",
            **({"crash": described(crash)} if crash is not None else {}),
        )


@contextmanager
def calm_libraries(log: Log) -> Iterator[None]:
    """Forward, inside the block, every library's warnings and errors to `log`, and drop lower levels."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    root.handlers[:] = [LibraryLog(log)]
    root.setLevel(logging.WARNING)
    try:
        yield
    finally:
        root.handlers[:] = before[0]
        root.setLevel(before[1])
