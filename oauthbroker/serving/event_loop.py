"""The event loop of a serving process: uvloop, or asyncio's where the platform has no uvloop."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")
END_SECONDS = 5.0


def run_serving(main: Coroutine[Any, Any, T]) -> T:
    """Run as `asyncio.run`, on the fastest loop. A task that ignores its cancellation, of a plug-in, does not keep
    the process: then the loop is left as it is."""
    runner = asyncio.Runner(loop_factory=fastest_loop())
    try:
        return runner.run(main)
    finally:
        if runner.run(_cancel_others()):
            runner.close()


def spare_the_start() -> None:
    """Leave what a serving process has made at its start out of the garbage collector's passes. A full pass over it
    stops all calls for 50 ms, again and again, and frees nothing. Not for a process of others that embeds a broker."""
    gc.freeze()


async def _cancel_others() -> bool:
    """Cancel the tasks that are left. Return whether all have ended, after at most `END_SECONDS`."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    return not others or not (await asyncio.wait(others, timeout=END_SECONDS))[1]


def fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the loop factory; None for asyncio's own."""
    with suppress(ImportError):
        import uvloop

        return uvloop.new_event_loop
    return None
