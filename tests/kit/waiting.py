"""Wait in real time for what a test expects. Only a test that hangs reaches the bound."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from inspect import isawaitable

PATIENCE = 60.0  # seconds; a machine that is busy with other tests may need many of them


async def until(claim: Callable[[], object | Awaitable[object]], *, pause: float = 0.01) -> None:
    """Return when `claim()` is true, asked every `pause` seconds. If it gives a coroutine, that is awaited. Raises
    TimeoutError after `PATIENCE` seconds."""
    async with asyncio.timeout(PATIENCE):
        while True:
            said = claim()
            if await said if isawaitable(said) else said:
                return
            await asyncio.sleep(pause)
