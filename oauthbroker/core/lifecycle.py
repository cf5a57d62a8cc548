"""Whether a broker is ending, for everybody who waits long: waits end then, and what is under way is finished."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from oauthbroker.errors import BrokerError, Code

T = TypeVar("T")


class Life:
    """One broker's. It stops once; `wake` is called then, for those who wait for something else than this."""

    __slots__ = ("_over", "_wake")

    def __init__(self, wake: Callable[[], None] = lambda: None) -> None:
        self._over = asyncio.Event()
        self._wake = wake

    @property
    def stopping(self) -> bool:
        return self._over.is_set()

    def stop(self) -> None:
        """From now on nobody begins to wait. Twice is once."""
        if not self.stopping:
            self._over.set()
            self._wake()

    async def over(self) -> None:
        """Returns when the broker stops."""
        await self._over.wait()


class UnderWay:
    """Work that is done to its end, whoever stops waiting for it. Belongs to one event loop."""

    __slots__ = ("_closing", "_tasks")

    def __init__(self) -> None:
        self._closing = False
        self._tasks: set[asyncio.Task[Any]] = set()

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Raises `brokerUnreachable` once it is closing: nobody would see this work to its end, and whoever asks again
        reaches the next broker."""
        if self._closing:
            work.close()
            raise BrokerError(Code.BROKER_UNREACHABLE, note="the broker is ending", retry_after_seconds=1)
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """Begins nothing more, and waits for everything that was begun. Who stops waiting here cancels nothing."""
        self._closing = True
        if self._tasks:
            await asyncio.wait(self._tasks)


async def to_its_end(work: asyncio.Future[T]) -> T:
    """Waits for work that cancels nothing. A cancelled task waits for it all the same, however often it is cancelled,
    and only then goes on with its cancellation: the leases and locks around it must outlast the work."""
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError as exc:
            cancelled = exc
    if cancelled is None:
        return work.result()
    if not work.cancelled():
        work.exception()  # retrieved, so that asyncio does not report it
    raise cancelled
