"""The life of one call: how long its handler may take, and the parts of its context that it is lent meanwhile. A
handler that takes too long, or whose caller is cancelled, is given up. A task is cancelled; a thread cannot be, and is
left behind. Either may go on, so the parts of its context refuse from then on."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextvars import ContextVar
from functools import wraps
from typing import Any, Final, TypeVar, cast
from weakref import WeakSet

from oauthbroker.tools.types.failures import ToolCode, ToolFailure, usual_error
from oauthbroker.tools.types.results import GoesOn

SECONDS: Final = 60.0  # of a tool that declares no other time
MOST_SECONDS: Final = 3600.0  # the limit of a turn
CLEAN_UP_SECONDS: Final = 2.0  # for a cancelled handler, before its call is answered
T = TypeVar("T")
_left: Final[set[asyncio.Task[Any]]] = set()  # tasks that go on; the event loop itself holds tasks weakly


class CallLife:
    def __init__(self, tool: str) -> None:
        self.tool = tool
        self.is_over = False
        self._clients = WeakSet[Any]()

    async def within(self, seconds: float | None, work: Coroutine[Any, Any, T]) -> T:
        """Return the value of a handler, or of work that goes on after its call. It has a task of its own, which its
        code may cancel. Raises its exceptions, and ToolFailure if it takes longer than `seconds`."""
        task = asyncio.create_task(self._end_of(work))
        try:
            await asyncio.wait([task], timeout=seconds)
        finally:
            if not task.done():
                await self._give_up(task, work)
        if seconds is not None and self.is_over:
            raise ToolFailure.of(usual_error(ToolCode.TIMEOUT, seconds))
        value, error = task.result()
        if error is not None:
            raise error
        return cast("T", value)

    async def _end_of(self, work: Awaitable[T]) -> tuple[T | None, BaseException | None]:
        calling.set(self)
        try:
            value = await work
        except BaseException as error:  # noqa: BLE001  (a SystemExit that left the task would end the event loop)
            return None, error
        if self.is_over and isinstance(value, GoesOn):
            value.work.close()
        return value, None

    async def _give_up(self, task: asyncio.Task[Any], work: Coroutine[Any, Any, Any]) -> None:
        self.is_over = True
        task.cancel()
        for client in list(self._clients):
            _end(client)
        _keep(task)
        await asyncio.wait([task], timeout=CLEAN_UP_SECONDS)
        if task.done():
            work.close()  # a task that is cancelled at once never awaits it

    def check(self) -> None:
        """Raise ToolFailure if the call is over."""
        if self.is_over:
            raise ToolFailure("This call is over: it was given up, and nothing that it does counts.", name="CallOver")

    def lend(self, part: T) -> T:
        """Return a part of the context that refuses, by `check`, when the call is over."""
        return part if part is None else cast("T", _Lent(self, part))

    def logger(self, of: logging.Logger) -> logging.Logger:
        """Return a logger that writes no line when the call is over."""
        own = logging.Logger(of.name)  # noqa: LOG001  (no registry keeps the logger of one call)
        own.parent = of
        own.addFilter(lambda record: not self.is_over and of.isEnabledFor(record.levelno) and bool(of.filter(record)))
        return own

    def kept(self, value: Any) -> Any:
        """Return what a lent part has returned, while the call goes on. Parts are lent; clients end with the call."""
        self.check()
        if hasattr(value, "get_access_token"):
            return self.lend(value)
        if hasattr(value, "aclose") or (hasattr(value, "close") and hasattr(value, "request")):
            self._clients.add(value)
        return value


calling: Final[ContextVar[CallLife | None]] = ContextVar("calling", default=None)
"""The call whose code runs: a middleware, a handler, its thread, or work that goes on."""


def check_call() -> None:
    """Raise ToolFailure in the code of a call that is over."""
    if (life := calling.get()) is not None:
        life.check()


class _Lent:
    """A part of a context: its attributes and methods, while the call goes on."""

    __slots__ = ("_life", "_part")

    def __init__(self, life: CallLife, part: Any) -> None:
        self._life, self._part = life, part

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._part, name)
        return _while_it_lasts(self._life, found) if callable(found) else self._life.kept(found)

    def __repr__(self) -> str:
        return repr(self._part)


def _while_it_lasts(life: CallLife, method: Callable[..., Any]) -> Callable[..., Any]:
    async def later(awaited: Awaitable[Any]) -> Any:
        return life.kept(await awaited)

    @wraps(method)
    def called(*args: Any, **named: Any) -> Any:
        life.check()
        returned = method(*args, **named)
        return later(returned) if inspect.isawaitable(returned) else life.kept(returned)

    return called


async def cancelled(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel tasks and wait for their end."""
    waiting = list(tasks)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


def _end(client: Any) -> None:
    """Close an HTTP client. One without `await` may wait for the event loop, so it has a thread."""
    if hasattr(client, "aclose"):
        _keep(asyncio.create_task(client.aclose()))
    else:
        threading.Thread(target=client.close, daemon=True).start()


def _keep(task: asyncio.Task[Any]) -> None:
    _left.add(task)
    task.add_done_callback(_left.discard)
