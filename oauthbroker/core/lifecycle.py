"""Wake and end the long waits of a broker, and finish the work under way when it shuts down. Passes of background work
wait for no lock for long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar

from oauthbroker.core.errors import BrokerError, Code

T = TypeVar("T")
LOCK_SECONDS, NEXT_LOCK_SECONDS = 0.5, 0.02


class Notifier:
    """Notifies the waiting tasks of this process of changes; other processes poll."""

    def __init__(self, then: Notifier | None = None) -> None:
        """`then` is notified each time that this one is."""
        self._signal = asyncio.Event()
        self._then = then

    def notify(self) -> None:
        self._signal.set()
        self._signal = asyncio.Event()
        if self._then is not None:
            self._then.notify()

    def listen(self) -> asyncio.Event:
        """Return the current signal. Call it before reading and pass it to `wait`, which then misses no
        notification."""
        return self._signal

    async def wait(self, seconds: float, signal: asyncio.Event | None = None) -> None:
        """Return at a notification, also one since `listen` returned `signal`, or after `seconds`."""
        try:
            async with asyncio.timeout(max(seconds, 0)):
                await (signal or self._signal).wait()
        except TimeoutError:
            return


class Life:
    """One broker's. It stops once, and notifies `outbox` then for the tasks that wait for something else."""

    __slots__ = ("_outbox", "_over")

    def __init__(self, outbox: Notifier | None = None) -> None:
        self._over = asyncio.Event()
        self._outbox = outbox or Notifier()

    @property
    def stopping(self) -> bool:
        return self._over.is_set()

    def stop(self) -> None:
        """Refuse new waits. Idempotent."""
        if not self.stopping:
            self._over.set()
            self._outbox.notify()

    async def over(self) -> None:
        """Return when the broker stops."""
        await self._over.wait()


class Pass:
    """One pass of background work on many records. No record holds up another one, and no stopped process the pass.

    It waits half a second for a lock of the store. After the first lock that stayed held it waits hardly at all for
    others, because a stopped process may hold many, and it does not try a held lock twice. The next pass comes back.
    """

    __slots__ = ("_failed", "held", "seconds")

    def __init__(self) -> None:
        self._failed: BrokerError | None = None
        self.held = set[str]()
        self.seconds = LOCK_SECONDS

    @contextmanager
    def lock_budget(self) -> Iterator[None]:
        """Shorten every wait for a lock in the body, also in tasks that it starts."""
        before = current_pass.set(self)
        try:
            yield
        finally:
            current_pass.reset(before)

    @contextmanager
    def collected(self) -> Iterator[None]:
        """Do the work on one record. A store error ends the body alone; `over` raises it."""
        try:
            yield
        except BrokerError as error:
            if self._failed is None or error.code is not Code.STORE_LOCKED:
                self._failed = error

    @contextmanager
    def entry(self) -> Iterator[None]:
        """Do both."""
        with self.collected(), self.lock_budget():
            yield

    def over(self) -> None:
        """Raise the last store error of an entry; a held lock only if there was no other error."""
        if self._failed is not None:
            raise self._failed


current_pass: ContextVar[Pass | None] = ContextVar("current_pass", default=None)
"""The pass whose lock budget holds here."""


def seconds_to_wait(lock: str, most: float) -> float:
    """Return how long to wait for a lock of the store: `most`, or less in a pass. Raises `storeLocked` for a lock that
    has stayed held in this pass."""
    current = current_pass.get()
    if current is None:
        return most
    if lock in current.held:
        raise BrokerError(Code.STORE_LOCKED)
    return min(most, current.seconds)


def note_held(lock: str) -> None:
    """Remember for the rest of the pass that a lock stayed held."""
    current = current_pass.get()
    if current is not None:
        current.held.add(lock)
        current.seconds = NEXT_LOCK_SECONDS


class UnderWay:
    """Work that runs to its end, also when its callers stop waiting. Belongs to one event loop."""

    __slots__ = ("_closing", "_tasks")

    def __init__(self) -> None:
        self._closing = False
        self._tasks: set[asyncio.Task[Any]] = set()

    def check_open(self) -> None:
        """Raise `brokerUnreachable` once it is closing: a caller that tries again reaches the next broker."""
        if self._closing:
            raise BrokerError(Code.BROKER_UNREACHABLE, note="the broker is ending", retry_after_seconds=1)

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Raises as `check_open`."""
        try:
            self.check_open()
        except BrokerError:
            work.close()
            raise
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._is_over)
        return task

    def _is_over(self, task: asyncio.Task[Any]) -> None:
        """Retrieve an exception whose caller has gone, so that asyncio does not report it with its traceback."""
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()

    async def close(self) -> None:
        """Begin nothing more, and wait for everything that was begun. Who stops waiting here cancels nothing."""
        self._closing = True
        if self._tasks:
            await asyncio.wait(self._tasks)


async def to_its_end(work: asyncio.Future[T], lost: Callable[[T], object] | None = None) -> T:
    """Wait for work that is never cancelled. A cancelled task waits for it all the same, however often it is cancelled,
    and only then goes on with its cancellation: the leases and locks around it must outlast the work. `lost` gets the
    result that no caller receives then."""
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        ended = work.get_loop().create_future()
        work.add_done_callback(wake := partial(_wake, ended))
        try:  # as `asyncio.wait` does, in half of its time: each write waits so twice
            await ended
        except asyncio.CancelledError as exc:
            work.remove_done_callback(wake)
            cancelled = exc
    if cancelled is None:
        return work.result()
    if not work.cancelled() and work.exception() is None and lost is not None:  # asking marks an exception as retrieved
        lost(work.result())
    raise cancelled


def _wake(waiting: asyncio.Future[None], _: object) -> None:
    if not waiting.done():
        waiting.set_result(None)


async def on_thread(
    work: Callable[[], T], lost: Callable[[T], object] | None = None, *, pool: Executor | None = None
) -> T:
    """Run work on a thread, of `pool` if it is given, to its end, as `to_its_end` does. For work that owns something,
    such as a descriptor: `asyncio.to_thread` never runs it, or loses its result, when its caller is cancelled."""
    return await to_its_end(asyncio.get_running_loop().run_in_executor(pool, work), lost)
