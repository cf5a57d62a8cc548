"""The tool's client for code without `await`, which loads neither asyncio nor, for a Unix socket, TLS; and how all
clients without `await` stand on the async ones: their network and their pauses block the thread, so that a coroutine of
theirs runs to its end at once.

Most methods are made from the async one, so that signature and description stand in one place.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from functools import wraps
from types import ModuleType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from oauthbroker.client.address import bearer, parse_address
from oauthbroker.client.retries import OnWire, Wire
from oauthbroker.client.tool import DEFAULT, OAuth, Options
from oauthbroker.core.clock import Clock, ThreadClock
from oauthbroker.core.secret import Secret
from oauthbroker.model.token_request import AppRef
from oauthbroker.model.turn_token import AllowedApps

if TYPE_CHECKING:
    from oauthbroker.injection.http_libraries import HttpClient

A = TypeVar("A")
P = ParamSpec("P")
C = TypeVar("C", bound=OnWire)
T = TypeVar("T")


class _GivenClock:
    """A clock of the options. Its `sleep` may need an event loop, and gets one in a thread of its own."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.now = clock.now
        self.monotonic = clock.monotonic
        self.random_bytes = clock.random_bytes
        self.jitter = clock.jitter

    async def sleep(self, seconds: float) -> None:
        import asyncio  # for tests: a tool gives no clock
        from threading import Thread

        async def sleep() -> None:
            await self._clock.sleep(seconds)

        thread = Thread(target=asyncio.run, args=(sleep(),), name="oauthbroker-client-clock")
        thread.start()
        thread.join()


def blocking_wire(url: str, options: Options) -> Wire:
    """Return the network of a sync client."""
    from oauthbroker.client.sync_transport import BlockingTransport  # sockets and h11, for a client that is used

    address = parse_address(url, plain_http=options.plain_http)
    clock = ThreadClock() if options.clock is None else _GivenClock(options.clock)
    return Wire(address, BlockingTransport(address), timeout=options.timeout, locale=options.locale, clock=clock)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine of a blocking wire and return its result. It has its own deadline."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    coroutine.close()
    raise RuntimeError("a sync client waited for an event loop")


class Sync(Generic[A]):
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


def waits(method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """Make the method that waits for the result of the async one."""

    @wraps(method)
    def wait(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return run(method(self._async, *args, **kwargs))

    return wait


def collects(method: Callable[Concatenate[A, P], AsyncIterator[T]]) -> Callable[Concatenate[Any, P], list[T]]:
    """Make the method that returns all items of the async one at once."""

    @wraps(method)
    def collect(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> list[T]:
        async def every() -> list[T]:
            return [item async for item in method(self._async, *args, **kwargs)]

        return run(every())

    return collect


def same(method: Callable[Concatenate[A, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Make the method for one that sends no request."""

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return method(self._async, *args, **kwargs)

    return call


class SyncClient(Sync[C]):
    """A client whose connections close with its block."""

    __slots__ = ()

    def close(self) -> None:
        """Close the connections, which derived clients share."""
        run(self._async.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class SyncOAuth(SyncClient[OAuth]):
    """`OAuth` without `await`. `with` it, or `close()` it."""

    __slots__ = ()

    def __init__(self, url: str, turn_token: str | Secret, options: Options = DEFAULT) -> None:
        wire = blocking_wire(url, options)
        self._async = OAuth._on(wire, bearer(turn_token), options.locale)  # noqa: SLF001

    @classmethod
    def from_env(cls, options: Options = DEFAULT, env: Mapping[str, str] | None = None) -> Self:
        """Call `OAuth.from_env`."""
        return cls(*Options.of_turn(options, env))

    get_access_token = waits(OAuth.get_access_token)
    getAccessToken = waits(OAuth.getAccessToken)
    report_rejected = waits(OAuth.report_rejected)
    fetch = waits(OAuth.fetch)
    pending = waits(OAuth.pending)
    relay_code = waits(OAuth.relay_code)
    apps = waits(OAuth.apps)

    def client(
        self, app: AppRef, scopes: Sequence[str] | None = None, *, library: ModuleType | None = None
    ) -> HttpClient:
        """Return what `OAuth.client` returns, without `await`."""
        from oauthbroker.client.forwarding_clients import sync_client

        return sync_client(self._async._client_parts(app, scopes), library, run)  # noqa: SLF001

    def narrow(
        self, *, tool: str | None = None, apps: AllowedApps | None = None, expires_at: datetime | None = None
    ) -> Self:
        """Call `OAuth.narrow`: sends no request."""
        return self._of(self._async.narrow(tool=tool, apps=apps, expires_at=expires_at))

    @property
    def turn_token(self) -> Secret:
        """As `OAuth.turn_token`."""
        return self._async.turn_token
