"""Store a token that the provider will not issue again, and try again while the store fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import chain, count, repeat

from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import Notifier
from oauthbroker.observability.logging import Log
from oauthbroker.observability.metrics import Metric, Metrics
from oauthbroker.records import Grant
from oauthbroker.repository.repository import Reservation

FIRST_PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0)  # seconds between the first tries to store a refreshed token
LONGEST_PAUSE = 5.0  # and between all others: shorter than the grace that other hosts leave to a holder
_LOG_EVERY = 12  # tries between two lines of the log, once the longest pause is reached
Write = Callable[[Reservation | None], Awaitable[Grant | None]]


@dataclass(slots=True, kw_only=True)
class RetryStore:
    """Tries again while the store refuses, as long as the process lives: it has the only copy. `back` notifies when a
    store that was away is back."""

    back: Notifier
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

    async def keep_grant(
        self, after: Grant, reservation: Reservation, write: Write, meanwhile: Callable[[Code], None]
    ) -> tuple[Grant | None, Code | None]:
        """Return (the stored grant, None), or (`after`, the code) if the broker closed before it was stored.

        `write` gets the reserved space once. `meanwhile` is called with the code of each failure: until `after` is
        stored, it has to be served from memory, and the caller keeps the lease, so that no process sends the old token.
        """
        left: Reservation | None = reservation
        for number, pause in zip(count(), chain(FIRST_PAUSES, repeat(LONGEST_PAUSE))):
            signal, is_last = self.back.listen(), self._closing.is_set()
            try:
                stored = await write(left)
            except BrokerError as error:
                code = error.code
            else:
                self._unstored.discard(after.id)
                return stored, None
            left = None
            self._unstored.add(after.id)
            self._tell(after, code, number)
            meanwhile(code)
            if is_last:
                break
            await self._rest(pause, signal)
        self.log.error("a refreshed token was never stored", app=after.app, grant=after.id[:15])
        return after, Code.STORE_UNAVAILABLE

    def _tell(self, after: Grant, code: Code, number: int) -> None:
        self.metrics.add(Metric.REFRESHES_UNSTORED, after.app)
        if number <= len(FIRST_PAUSES) or number % _LOG_EVERY == 0:
            self.log.warning("a refreshed token is not stored yet", app=after.app, grant=after.id[:15], code=code.value)

    async def _rest(self, seconds: float, signal: asyncio.Event) -> None:
        """Wait until the next try: until the store is back, or the broker closes, but no longer than this."""
        waits = self.clock.sleep(seconds), self._closing.wait(), signal.wait()
        tasks = [asyncio.ensure_future(each) for each in waits]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in tasks:
                each.cancel()
