"""What takes reading a whole store to know, kept for some seconds: read once, however many look at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from oauthbroker.core.clock import Clock

SNAPSHOT_SECONDS = 5.0
PAUSE_SECONDS = 1.0

T = TypeVar("T")


class Snapshot(Generic[T]):
    """`read` is called once at a time. If it raises, so does the caller's call, and nothing is kept."""

    def __init__(self, read: Callable[[], Awaitable[T]], clock: Clock) -> None:
        self._read = read
        self._clock = clock
        self._kept: tuple[int, float, T] | None = None  # number of the reading, its end, its result
        self._begun = 0
        self._reading = asyncio.Lock()

    def forget(self) -> None:
        """Forget the last reading after a change: the next look reads anew."""
        self._kept = None

    async def recent(self) -> T:
        """Return a reading that is at most some seconds old."""
        async with self._reading:
            if self._kept is not None and self._clock.monotonic() < self._kept[1] + SNAPSHOT_SECONDS:
                return self._kept[2]
            return await self._read_now()

    async def fresh_after_pause(self) -> T:
        """Return a new reading, a while after the last one: for callers that may ask for missing things in a loop."""
        before = self._begun
        if self._kept is not None:
            await self._clock.sleep(max(0.0, self._kept[1] + PAUSE_SECONDS - self._clock.monotonic()))
        return await self._after(before)

    async def _after(self, before: int) -> T:
        async with self._reading:
            if self._kept is not None and self._kept[0] > before:
                return self._kept[2]
            return await self._read_now()

    async def _read_now(self) -> T:
        self._begun += 1
        number = self._begun
        found = await self._read()
        self._kept = (number, self._clock.monotonic(), found)
        return found
