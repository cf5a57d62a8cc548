"""The time within which an answer has to begin: one timer for all requests of an application."""

from __future__ import annotations

import asyncio
from typing import Protocol


class Limited(Protocol):
    """A request with a time limit."""

    def end_late(self) -> None: ...


class Deadlines:
    """Ends requests whose answer has not begun in time. All have the same `seconds`: the oldest alone needs a timer."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._ends: dict[Limited, float] = {}  # the oldest first
        self._loop: asyncio.AbstractEventLoop | None = None  # it has the timer

    def set(self, request: Limited) -> None:
        """Begin the time of a request."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + self._seconds
        if self._loop is loop:
            self._ends[request] = ends
        else:
            self._loop, self._ends = loop, {request: ends}  # nothing else waits, in a loop that still runs
            loop.call_at(ends, self._end_late, loop)

    def lift(self, request: Limited) -> None:
        """Let a request take as long as it needs, unless its time is over."""
        self._ends.pop(request, None)

    def _end_late(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop is not self._loop:
            return
        now = loop.time()
        for request in [request for request, ends in self._ends.items() if ends <= now]:
            loop.call_soon(self._end, request)  # one that runs before that may still answer
        if self._ends:
            loop.call_at(next(iter(self._ends.values())), self._end_late, loop)
        else:
            self._loop = None

    def _end(self, request: Limited) -> None:
        if self._ends.pop(request, None) is not None:
            request.end_late()
