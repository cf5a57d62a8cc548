"""One piece of work per key in this process, for all callers that wait for it. A caller that leaves cancels nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from oauthbroker.core.lifecycle import UnderWay

R = TypeVar("R")


class Flight(Generic[R]):
    """Work under way. It may `land` before it is over: all callers that wait, or come until then, get that result."""

    __slots__ = ("_landed",)

    def __init__(self) -> None:
        self._landed: asyncio.Future[R] = asyncio.get_running_loop().create_future()

    def land(self, result: R) -> None:
        """End the flight. Only the first call counts."""
        if not self._landed.done():
            self._landed.set_result(result)

    async def landing(self) -> R:
        return await asyncio.shield(self._landed)


class SingleFlight(Generic[R]):
    """Belongs to one event loop."""

    def __init__(self) -> None:
        self._flights: dict[Hashable, Flight[R]] = {}
        self._under_way = UnderWay()

    async def join(self, key: Hashable, work: Callable[[Flight[R]], Awaitable[R]], otherwise: Callable[[], R]) -> R:
        """Return the result of the work for this key; `work` is begun unless it is under way. It must not raise: should
        it be cancelled or break all the same, `otherwise` is the answer. Raises `brokerUnreachable` for work that would
        have to be begun when it is closing."""
        flight = self._flights.get(key)
        if flight is None:
            flight = Flight()
            self._under_way.begin(self._fly(key, flight, work, otherwise))
            self._flights[key] = flight
        return await flight.landing()

    async def close(self) -> None:
        """Begins nothing more, and waits for everything under way."""
        await self._under_way.close()

    async def _fly(
        self, key: Hashable, flight: Flight[R], work: Callable[[Flight[R]], Awaitable[R]], otherwise: Callable[[], R]
    ) -> None:
        try:
            flight.land(await work(flight))
        finally:
            del self._flights[key]
            flight.land(otherwise())
