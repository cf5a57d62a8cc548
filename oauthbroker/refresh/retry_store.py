"""Store a token that the provider will not issue again, and try again while the disk fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from oauthbroker.core.clock import Clock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.observability.logging import Log
from oauthbroker.observability.metrics import Metric, Metrics
from oauthbroker.records import Grant
from oauthbroker.repository.repository import Reservation

KEEP_TRYING = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, *[30.0] * 20)  # seconds between tries to store a refreshed token
Write = Callable[[Reservation | None], Awaitable[Grant | None]]


@dataclass(slots=True, kw_only=True)
class RetryStore:
    """Tries again while the disk refuses."""

    clock: Clock
    metrics: Metrics
    log: Log
    _unstored: set[str] = field(default_factory=set)
    _closing: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def unstored(self) -> int:
        """The number of grants whose newest token is only in memory."""
        return len(self._unstored)

    def close(self) -> None:
        """Give each token that is not stored yet one last try, at once."""
        self._closing.set()

    async def keep(
        self, after: Grant, room: Reservation, write: Write, meanwhile: Callable[[Code], None]
    ) -> tuple[Grant | None, Code | None]:
        """Return (the stored grant, None), or (`after`, the code) if it was never stored.

        `write` gets the reserved room once. `meanwhile` is called with the code of each failure: until `after` is
        stored, it has to be served from memory, and the caller keeps the lease, so that no process sends the old token.
        """
        left: Reservation | None = room
        for pause in (*KEEP_TRYING, 0.0):
            try:
                stored = await write(left)
            except BrokerError as error:
                code = error.code
            else:
                self._unstored.discard(after.id)
                return stored, None
            left = None
            self._unstored.add(after.id)
            self.log.warning("a refreshed token is not stored yet", app=after.app, grant=after.id[:15], code=code.value)
            self.metrics.add(Metric.RENEWALS_UNSTORED, after.app)
            meanwhile(code)
            if self._closing.is_set() or not pause:
                break
            await self._rest(pause)
        self.log.warning("a refreshed token was never stored: the next start sends the old one", app=after.app)
        return after, Code.STORE_UNAVAILABLE

    async def _rest(self, seconds: float) -> None:
        """Wait until the next try, or until the broker closes: then the last try follows at once."""
        both = [asyncio.ensure_future(each) for each in (self.clock.sleep(seconds), self._closing.wait())]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in both:
                each.cancel()
