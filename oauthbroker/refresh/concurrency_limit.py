"""The places for calls that one app may have under way at its provider: as many as the provider copes with."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from oauthbroker.core.clock import Clock

FEWEST: Final = 4
_SLOW, _SLOW_SECONDS = 4, 0.5  # an answer is late after this many times the usual time, and so much more
_SHARE: Final = 1 / 16  # of one answer in the usual time


class ConcurrencyLimit:
    """At most `most` places, given in the order in which they were asked for. A provider that asks to slow down, or
    answers later and later, halves their number, once for the calls that are under way. Each answer in time adds a part
    of a place, so that a round of answers adds one."""

    def __init__(self, clock: Clock, most: int) -> None:
        self._clock, self._most, self._number = clock, most, float(most)
        self._taken, self._waiting = 0, deque[asyncio.Future[None]]()
        self._began = dict[str, float]()
        self._usual: float | None = None
        self._halved_at = 0.0

    @property
    def number(self) -> int:
        return int(self._number)

    @asynccontextmanager
    async def held(self, grant: str) -> AsyncIterator[None]:
        """Hold a place for the body, once there is one. `grant` is the id that `answered` names."""
        await self._take()
        self._began[grant] = self._clock.monotonic()
        try:
            yield
        finally:
            self._began.pop(grant, None)
            self._taken -= 1
            self._hand_on()

    def answered(self, grant: str) -> None:
        """Note that the provider has answered well."""
        now = self._clock.monotonic()
        seconds = now - self._began.get(grant, now)
        usual = seconds if self._usual is None else self._usual
        self._usual = usual + (seconds - usual) * _SHARE
        if seconds > usual * _SLOW + _SLOW_SECONDS:
            self.slow_down(grant)
        else:
            self._number = min(self._number + 1 / self._number, self._most)
            self._hand_on()

    def slow_down(self, grant: str) -> None:
        """Halve the places, unless they were halved since this call began: it says nothing of the fewer ones."""
        now = self._clock.monotonic()
        if self._began.get(grant, now) >= self._halved_at:
            self._number, self._halved_at = max(self._number / 2, min(FEWEST, self._most)), now

    async def _take(self) -> None:
        if self._taken < self.number and not self._waiting:
            self._taken += 1
            return
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():  # it came too late
                self._taken -= 1
                self._hand_on()
            raise

    def _hand_on(self) -> None:
        while self._waiting and self._taken < self.number:
            place = self._waiting.popleft()
            if not place.done():
                self._taken += 1
                place.set_result(None)
