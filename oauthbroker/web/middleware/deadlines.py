"""The time within which an answer has to begin: one timer for all requests of an application."""

from __future__ import annotations

import asyncio


class Deadlines:
    """Ends requests whose answer has not begun in time. All have the same `seconds`: the oldest alone needs a timer."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._ends: dict[asyncio.Timeout, float] = {}  # the oldest first
        self._loop: asyncio.AbstractEventLoop | None = None  # it has the timer

    def set(self, limit: asyncio.Timeout) -> None:
        """Begin the time of an open timeout."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + self._seconds
        if self._loop is loop:
            self._ends[limit] = ends
        else:
            self._loop, self._ends = loop, {limit: ends}  # nothing else waits, in a loop that still runs
            loop.call_at(ends, self._end_late, loop)

    def lift(self, limit: asyncio.Timeout) -> None:
        """Let an open timeout take as long as it needs, unless it is over."""
        if self._ends.pop(limit, None) is None and not limit.expired():
            limit.reschedule(None)

    def _end_late(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop is not self._loop:
            return
        now = loop.time()
        for limit in [limit for limit, ends in self._ends.items() if ends <= now]:
            del self._ends[limit]
            limit.reschedule(now)
        if self._ends:
            loop.call_at(next(iter(self._ends.values())), self._end_late, loop)
        else:
            self._loop = None
