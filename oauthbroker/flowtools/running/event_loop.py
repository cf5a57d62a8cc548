"""Work on the broker's event loop for a thread of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from typing import Any, TypeVar

T = TypeVar("T")


def on_loop(
    loop: asyncio.AbstractEventLoop,
    work: Callable[[], Coroutine[Any, Any, T]],
    seconds: float,
    *,
    ended: Callable[[str], Exception],
    late: Callable[[str], Exception],
) -> T:
    """Return what work returns there. Raises `ended` if the loop does not run, and `late` without an answer in time."""
    if _is_here(loop):
        raise RuntimeError("a run was called on the broker's event loop: call it from a thread")
    if not loop.is_running():
        raise ended("the broker has ended")
    future = asyncio.run_coroutine_threadsafe(work(), loop)
    try:
        return future.result(seconds)
    except (TimeoutError, CancelledError):
        raise late("the broker gave no answer in time") from None
    finally:
        future.cancel()


def _is_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
