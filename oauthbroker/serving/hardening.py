"""Harden the process before it reads a secret: no core dumps, no debuggers (case 92)."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import threading

from oauthbroker.core.refused import Refused

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


def raise_descriptor_limit(descriptors: int) -> int:
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
    else:
        threading.Thread(target=_look_for_parent, args=(parent,), name="oauthbroker-parent", daemon=True).start()
    if os.getppid() != parent:
        raise Refused("The process that started this worker has ended. Start `oauthbroker serve --workers` instead.")


def _look_for_parent(parent: int) -> None:
    """Send ORPHANED once the parent has died, where the kernel does not."""
    pause = threading.Event()
    while os.getppid() == parent:
        pause.wait(1)
    os.kill(os.getpid(), ORPHANED)
