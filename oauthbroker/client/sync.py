"""The clients for code without `await`: the async ones, run on one thread whose event loop sends for all of them.

Most methods are made from the async one, so that signature and description stand in one place.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack

from oauthbroker.client import calls
from oauthbroker.client.runtime import Delivery, RunningTurn, Runtime, TurnOptions
from oauthbroker.client.tool import DEFAULT, OAuth, Options
from oauthbroker.client.wire import OnWire
from oauthbroker.core.secret import Secret
from oauthbroker.core.sync_bridge import wait_on
from oauthbroker.model.results import SessionOutcome
from oauthbroker.model.turn import TurnLike
from oauthbroker.model.turn_token import AllowedApps

A = TypeVar("A")
P = ParamSpec("P")
C = TypeVar("C", bound=OnWire)
T = TypeVar("T")


@dataclass(slots=True)
class _Worker:
    """The shared loop thread. `process`: a forked child has the object and not the thread."""

    loop: asyncio.AbstractEventLoop
    process: int


_lock = threading.Lock()
_worker: _Worker | None = None


def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run the coroutine and return its result. It has its own deadline; Ctrl-C in the caller's thread cancels it."""
    return wait_on(_loop(), coroutine, None)


def _loop() -> asyncio.AbstractEventLoop:
    global _worker  # noqa: PLW0603  (one thread for the process, started by the first caller)
    with _lock:
        if _worker is None or _worker.process != os.getpid():
            loop = asyncio.new_event_loop()
            started = threading.Event()
            loop.call_soon(started.set)
            threading.Thread(target=loop.run_forever, name="oauthbroker-client", daemon=True).start()
            started.wait()
            _worker = _Worker(loop, os.getpid())
        return _worker.loop


def _after_fork() -> None:
    global _lock  # noqa: PLW0603  (another thread of the parent may have held it)
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class _Sync(Generic[A]):
    """A client or turn, by its async form."""

    __slots__ = ("_async",)
    _async: A

    @classmethod
    def _of(cls, form: A) -> Self:
        made = cls.__new__(cls)
        made._async = form  # noqa: SLF001
        return made

    def __repr__(self) -> str:
        return f"Sync{self._async!r}"


def _waits(method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """Make the method that waits for the result of the async one."""

    @wraps(method)
    def wait(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return _run(method(self._async, *args, **kwargs))

    return wait


def _collects(method: Callable[Concatenate[A, P], AsyncIterator[T]]) -> Callable[Concatenate[Any, P], list[T]]:
    """Make the method that returns all items of the async one at once."""

    @wraps(method)
    def collect(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> list[T]:
        async def every() -> list[T]:
            return [item async for item in method(self._async, *args, **kwargs)]

        return _run(every())

    return collect


def _same(method: Callable[Concatenate[A, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Make the method for one that sends no request."""

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return method(self._async, *args, **kwargs)

    return call


class _SyncClient(_Sync[C]):
    """A client whose connections close with its block."""

    __slots__ = ()

    def close(self) -> None:
        """Close the connections, which derived clients share."""
        _run(self._async.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class SyncOAuth(_SyncClient[OAuth]):
    """`OAuth` without `await`. `with` it, or `close()` it."""

    __slots__ = ()

    def __init__(self, url: str, turn_token: str | Secret, options: Options = DEFAULT) -> None:
        self._async = OAuth(url, turn_token, options)

    @classmethod
    def from_env(cls, options: Options = DEFAULT, env: Mapping[str, str] | None = None) -> Self:
        """Call `OAuth.from_env`."""
        return cls._of(OAuth.from_env(options, env))

    get_access_token = _waits(OAuth.get_access_token)
    getAccessToken = _waits(OAuth.getAccessToken)
    report_rejected = _waits(OAuth.report_rejected)
    pending = _waits(OAuth.pending)
    relay_code = _waits(OAuth.relay_code)
    apps = _waits(OAuth.apps)

    def narrow(
        self, *, tool: str | None = None, apps: AllowedApps | None = None, expires_at: datetime | None = None
    ) -> Self:
        """Call `OAuth.narrow`: sends no request."""
        return self._of(self._async.narrow(tool=tool, apps=apps, expires_at=expires_at))

    @property
    def turn_token(self) -> Secret:
        """As `OAuth.turn_token`."""
        return self._async.turn_token


@dataclass(frozen=True, slots=True, repr=False)
class SyncDelivery(calls.Leased):
    """A leased event. Settle it with `ack` or `nack`; an unsettled event is delivered again when the lease ends."""

    _delivery: Delivery

    @classmethod
    def _of(cls, delivery: Delivery) -> Self:
        leased = (delivery.event, delivery.attempt, delivery.lease, delivery.lease_expires_at)
        return cls(*leased, delivery)

    def ack(self) -> bool:
        """Call `Delivery.ack`."""
        return _run(self._delivery.ack())

    def nack(self) -> bool:
        """Call `Delivery.nack`."""
        return _run(self._delivery.nack())


class SyncRunningTurn(_Sync[RunningTurn]):
    """A turn that was begun. Its tokens end with it."""

    __slots__ = ()

    @property
    def turn_id(self) -> str:
        return self._async.turn_id

    @property
    def expires_at(self) -> datetime:
        return self._async.expires_at

    @property
    def token(self) -> Secret:
        """As `RunningTurn.token`. Give it to no tool."""
        return self._async.token

    token_for = _same(RunningTurn.token_for)
    env_for = _same(RunningTurn.env_for)
    pending = _waits(RunningTurn.pending)
    links = _waits(RunningTurn.links)
    relay_code = _waits(RunningTurn.relay_code)

    def oauth(self, tool: str | None = None) -> SyncOAuth:
        """Call `RunningTurn.oauth`."""
        return SyncOAuth._of(self._async.oauth(tool))  # noqa: SLF001


class SyncRuntime(_SyncClient[Runtime]):
    """`Runtime` without `await`. `with` it, or `close()` it."""

    __slots__ = ()

    def __init__(self, url: str, key: str | Secret | None = None, options: Options = DEFAULT) -> None:
        self._async = Runtime(url, key, options)

    @classmethod
    def from_env(cls, options: Options = DEFAULT, env: Mapping[str, str] | None = None) -> Self:
        """Call `Runtime.from_env`."""
        return cls._of(Runtime.from_env(options, env))

    def begin(self, turn: TurnLike, **options: Unpack[TurnOptions]) -> SyncRunningTurn:
        """Call `Runtime.begin`: `end` it."""
        return SyncRunningTurn._of(_run(self._async.begin(turn, **options)))  # noqa: SLF001

    def end(self, turn: SyncRunningTurn | str) -> None:
        """End a turn and its tokens. Idempotent."""
        _run(self._async.end(turn if isinstance(turn, str) else turn.turn_id))

    @contextmanager
    def turn(self, turn: TurnLike, **options: Unpack[TurnOptions]) -> Iterator[SyncRunningTurn]:
        """Call `Runtime.turn`: `begin` and `end` around a block."""
        running = self.begin(turn, **options)
        try:
            yield running
        finally:
            _run(self._async.end_if_reached(running.turn_id))

    def lease(self, agent: str, wait: float = 30) -> SyncDelivery | None:
        """Call `Runtime.lease`."""
        delivery = _run(self._async.lease(agent, wait))
        return None if delivery is None else SyncDelivery._of(delivery)  # noqa: SLF001

    def events(self, agent: str, wait: float = 30) -> Iterator[SyncDelivery]:
        """Call `Runtime.events`: for ever."""
        while True:
            yield SyncDelivery._of(_run(self._async.next_event(agent, wait)))  # noqa: SLF001

    def relay_code(self, turn: SyncRunningTurn, code: str | Secret) -> SessionOutcome:
        """Pass on the code (`channelCode`) that the user sent in the turn's conversation."""
        return turn.relay_code(code)

    session = _waits(Runtime.session)
    wait = _waits(Runtime.wait)
    cancel = _waits(Runtime.cancel)
    confirm = _waits(Runtime.confirm)
    connections_link = _waits(Runtime.connections_link)
    apps = _waits(Runtime.apps)
    grants = _collects(Runtime.grants)
    revoke = _waits(Runtime.revoke)
    grant_record = _waits(Runtime.grant_record)
    sessions = _collects(Runtime.sessions)
    session_record = _waits(Runtime.session_record)
    queues = _waits(Runtime.queues)
    dead_letters = _waits(Runtime.dead_letters)
    retry_dead_letter = _waits(Runtime.retry_dead_letter)
    drop_dead_letter = _waits(Runtime.drop_dead_letter)
    erase = _waits(Runtime.erase)
