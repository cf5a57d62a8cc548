"""The event loop of a serving process: uvloop, or asyncio's where the platform has no uvloop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


def run_serving(main: Coroutine[Any, Any, T]) -> T:
    """Run as `asyncio.run`, on the fastest loop."""
    with asyncio.Runner(loop_factory=fastest_loop()) as runner:
        return runner.run(main)


def fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the loop factory; None for asyncio's own."""
    with suppress(ImportError):
        import uvloop

        return uvloop.new_event_loop
    return None
