"""One piece of work per key in this process, for everybody who waits for it. Who leaves cancels nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Generic, TypeVar

R = TypeVar("R")


class Flight(Generic[R]):
    """Work under way. It may `land` before it is over: whoever waits, or comes until then, gets that."""

    __slots__ = ("_landed",)

    def __init__(self) -> None:
        self._landed: asyncio.Future[R] = asyncio.get_running_loop().create_future()

    def land(self, result: R) -> None:
        """Only the first time counts."""
        if not self._landed.done():
            self._landed.set_result(result)

    async def landing(self) -> R:
        return await asyncio.shield(self._landed)


class SingleFlight(Generic[R]):
    """Belongs to one event loop."""

    def __init__(self) -> None:
        self._flights: dict[Hashable, Flight[R]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    async def join(self, key: Hashable, work: Callable[[Flight[R]], Awaitable[R]], otherwise: Callable[[], R]) -> R:
        """What the work for this key comes to; `work` is begun unless it is under way. It must not raise: should it
        be cancelled or break all the same, `otherwise` is the answer."""
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = Flight()
            task = asyncio.create_task(self._fly(key, flight, work, otherwise))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await flight.landing()

    async def close(self) -> None:
        """Waits for everything under way."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _fly(
        self, key: Hashable, flight: Flight[R], work: Callable[[Flight[R]], Awaitable[R]], otherwise: Callable[[], R]
    ) -> None:
        try:
            flight.land(await work(flight))
        finally:
            del self._flights[key]
            flight.land(otherwise())
