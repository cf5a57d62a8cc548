"""One piece of work per key in this process, for all callers that wait for it. A caller that leaves cancels nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from oauthbroker.core.lifecycle import UnderWay

R = TypeVar("R")


class InFlightCall(Generic[R]):
    """Work under way. It may `finish` before it is over: all callers that wait, or come until then, get that result."""

    __slots__ = ("_result",)

    def __init__(self) -> None:
        self._result: asyncio.Future[R] = asyncio.get_running_loop().create_future()

    def finish(self, result: R) -> None:
        """End the call. Only the first call counts."""
        if not self._result.done():
            self._result.set_result(result)

    async def result(self) -> R:
        return await asyncio.shield(self._result)


class SingleFlight(Generic[R]):
    """Share work under way among its callers, by key, in one event loop."""

    def __init__(self) -> None:
        self._calls: dict[Hashable, InFlightCall[R]] = {}
        self._under_way = UnderWay()

    async def join(
        self, key: Hashable, work: Callable[[InFlightCall[R]], Awaitable[R]], otherwise: Callable[[], R]
    ) -> R:
        """Return the result of the work for this key; `work` is begun unless it is under way. It must not raise: should
        it be cancelled or break all the same, `otherwise` is the answer. Raises `brokerUnreachable` for work that would
        have to be begun when it is closing."""
        in_flight = self._calls.get(key)
        if in_flight is None:
            in_flight = InFlightCall()
            self._under_way.begin(self._run(key, in_flight, work, otherwise))
            self._calls[key] = in_flight
        return await in_flight.result()

    def check_open(self) -> None:
        """Raise `brokerUnreachable` once it is closing."""
        self._under_way.check_open()

    async def close(self) -> None:
        """Begin nothing more, and wait for everything under way."""
        await self._under_way.close()

    async def _run(
        self,
        key: Hashable,
        in_flight: InFlightCall[R],
        work: Callable[[InFlightCall[R]], Awaitable[R]],
        otherwise: Callable[[], R],
    ) -> None:
        try:
            result = await work(in_flight)
        except BaseException:
            result = otherwise()
            raise
        finally:
            del self._calls[key]
            in_flight.finish(result)
