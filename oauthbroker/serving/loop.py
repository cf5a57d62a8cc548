"""Which event loop a serving process runs on: uvloop, and asyncio's own where there is none for the platform."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


def run_serving(main: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`, on the loop that answers fastest."""
    with asyncio.Runner(loop_factory=fastest_loop()) as runner:
        return runner.run(main)


def fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What makes the loop; None for asyncio's own."""
    with suppress(ImportError):
        import uvloop

        return uvloop.new_event_loop
    return None
