"""Wake the tasks that wait for a change."""

from __future__ import annotations

import asyncio


class Bell:
    """Notifies the waiting tasks of this process of changes; other processes poll."""

    def __init__(self, then: Bell | None = None) -> None:
        """`then` is rung each time that this one is."""
        self._rung = asyncio.Event()
        self._then = then

    def ring(self) -> None:
        self._rung.set()
        self._rung = asyncio.Event()
        if self._then is not None:
            self._then.ring()

    def listen(self) -> asyncio.Event:
        """Return the current signal. Call it before reading and pass it to `wait`, so that a ring in between is not
        missed."""
        return self._rung

    async def wait(self, seconds: float, rung: asyncio.Event | None = None) -> None:
        """Return when the bell rings, has rung since `listen` returned `rung`, or after `seconds`."""
        try:
            async with asyncio.timeout(max(seconds, 0)):
                await (rung or self._rung).wait()
        except TimeoutError:
            return
