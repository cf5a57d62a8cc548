"""HTTP clients whose requests carry a token that their holder never gets.

`InjectedRequests` is the body of all of them: it sends a tool's request through the `Injector` and builds a new answer,
so that no object of the tool has the header. The transports fit it to the clients of `lib`, which is httpx2 or httpx.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from oauthbroker.core.errors import BrokerError, Code, Locale
from oauthbroker.core.sync_bridge import wait_on
from oauthbroker.injection.errors import InjectionError, raised
from oauthbroker.injection.headers import Headers
from oauthbroker.injection.injector import ForwardedAnswer, Injector, TokenSource, ToolRequest
from oauthbroker.injection.targets import Target
from oauthbroker.model.token_results import Failed
from oauthbroker.protocol.network.transport import LATE, TransportFailed

if TYPE_CHECKING:
    import httpx2

    AsyncHttpClient = httpx2.AsyncClient
    HttpClient = httpx2.Client

MOST_SENT = 256 * 1024 * 1024  # bytes of a request's body
MOST_COLLECTED = 16 * 1024 * 1024  # bytes of a body of the sync client, which is collected before it is sent
SYNC_SECONDS = 660.0  # longer than any request lasts
T = TypeVar("T")


class CheckedTokens(TokenSource, Protocol):
    """The tokens of one caller for one app, and the check of its requests."""

    @property
    def locale(self) -> Locale: ...

    @property
    def base_url(self) -> str: ...

    def target(self, method: str, url: str) -> Target: ...


@dataclass(frozen=True, slots=True)
class InjectedRequests:
    """The requests of one client. Each asks for its token anew."""

    injector: Injector
    tokens: CheckedTokens
    lib: Any

    async def send(
        self, request: Any, body: bytes | AsyncIterable[bytes], stream: Callable[[ForwardedAnswer], Any]
    ) -> Any:
        """Send a request and return the library's response. Raises `InjectionError`, or the library's exception where
        the network failed."""
        failed: BaseException
        try:
            answer, headers = await self._send(request, body)
            return self.lib.Response(answer.status, headers=headers, stream=stream(answer))
        except BrokerError as error:
            failed = self.failure(error, request)
        except (InjectionError, asyncio.CancelledError) as error:
            failed = error
        raise failed.with_traceback(None)  # its frames had the token

    async def pieces(self, answer: ForwardedAnswer, request: Any) -> AsyncIterator[bytes]:
        """Yield the pieces of an answer's body. Raises as `send`."""
        failed: Exception | None = None
        try:
            async for piece in answer.chunks():
                yield piece
        except BrokerError as error:
            failed = self.failure(error, request)
        if failed is not None:
            raise failed

    def failure(self, error: BrokerError, request: Any) -> Exception:
        """Return the library's exception for a network that failed, which a tool may retry; else ours."""
        if not isinstance(error, TransportFailed) or error.code is Code.OUTGOING_PROXY_REFUSED:
            return raised(Failed.from_error(error, self.tokens.locale))
        names = ("ReadTimeout", "ReadError") if error.sent else ("ConnectTimeout", "ConnectError")
        failed: Exception = getattr(self.lib, names[error.note != LATE])(error.note, request=request)
        return failed

    async def _send(self, request: Any, body: bytes | AsyncIterable[bytes]) -> tuple[ForwardedAnswer, Headers]:
        target = self.tokens.target(request.method, str(request.url))
        length = None if isinstance(body, bytes) else _length(request)
        sent = ToolRequest(headers=list(request.headers.raw), body=body, length=length)
        answer = await self.injector.within(_patience(request)).send(self.tokens, target, sent)
        if not isinstance(answer, ForwardedAnswer):
            raise raised(answer)
        try:
            return answer, _headers(answer, sent)
        except BrokerError:
            await answer.aclose()
            raise


class InjectingTransport:
    """The transport of a library's `AsyncClient`. Its connections are the broker's."""

    def __init__(self, requests: InjectedRequests) -> None:
        self._requests = requests

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def handle_async_request(self, request: Any) -> Any:
        content, stream_type = _content(request, self._requests.lib), _stream_types(self._requests.lib)[0]
        body = _bounded(request.stream) if content is None else content
        return await self._requests.send(request, body, lambda answer: stream_type(self._requests, answer, request))

    async def aclose(self) -> None: ...


class InjectingSyncTransport:
    """The transport of a library's `Client`, on a thread of its own. The broker's event loop sends the request."""

    def __init__(self, requests: InjectedRequests, loop: asyncio.AbstractEventLoop) -> None:
        self._requests, self._loop = requests, loop

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def handle_request(self, request: Any) -> Any:
        content, stream_type = _content(request, self._requests.lib), _stream_types(self._requests.lib)[1]
        body = self._collected(request) if content is None else content
        sent = self._requests.send(request, body, lambda answer: stream_type(self, answer, request))
        return self.wait(request, sent)

    def close(self) -> None: ...

    def pieces(self, answer: ForwardedAnswer, request: Any) -> Iterator[bytes]:
        """Yield the pieces of an answer's body. Raises as `InjectedRequests.send`."""
        pieces = self._requests.pieces(answer, request)
        while (piece := self.wait(request, _next(pieces))) is not None:
            yield piece

    def wait(self, request: Any, work: Coroutine[Any, Any, T]) -> T:
        """Wait for work on the broker's event loop. Raises as `InjectedRequests.send`."""
        try:
            return wait_on(self._loop, work, SYNC_SECONDS)
        except BrokerError as error:
            failed = self._requests.failure(error, request)
        raise failed

    def _collected(self, request: Any) -> bytes:
        body = bytearray()
        for piece in request.stream:
            body += piece
            if len(body) > MOST_COLLECTED:
                raise self._requests.failure(BrokerError(Code.REQUEST_TOO_LARGE), request)
        return bytes(body)


class _AsyncBody:
    def __init__(self, requests: InjectedRequests, answer: ForwardedAnswer, request: Any) -> None:
        self._requests, self._answer, self._request = requests, answer, request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._requests.pieces(self._answer, self._request):
            yield piece

    async def aclose(self) -> None:
        await self._answer.aclose()


class _SyncBody:
    def __init__(self, transport: InjectingSyncTransport, answer: ForwardedAnswer, request: Any) -> None:
        self._transport, self._answer, self._request = transport, answer, request

    def __iter__(self) -> Iterator[bytes]:
        return self._transport.pieces(self._answer, self._request)

    def close(self) -> None:
        self._transport.wait(self._request, self._answer.aclose())


def async_client(injector: Injector, tokens: CheckedTokens, library: ModuleType | None) -> AsyncHttpClient:
    """Return an async client of httpx2, or of a library with the same names."""
    lib = _library(library)
    transport = InjectingTransport(InjectedRequests(injector, tokens, lib))
    client: AsyncHttpClient = lib.AsyncClient(
        transport=transport, base_url=tokens.base_url, trust_env=False, timeout=None
    )
    return client


def sync_client(
    injector: Injector, tokens: CheckedTokens, library: ModuleType | None, loop: asyncio.AbstractEventLoop
) -> HttpClient:
    """Return the same without `await`, for another thread than the loop's."""
    lib = _library(library)
    transport = InjectingSyncTransport(InjectedRequests(injector, tokens, lib), loop)
    client: HttpClient = lib.Client(transport=transport, base_url=tokens.base_url, trust_env=False, timeout=None)
    return client


def _library(library: ModuleType | None) -> Any:
    if library is not None:
        return library
    import httpx2  # imported here: most contexts make no client

    return httpx2


def _headers(answer: ForwardedAnswer, sent: ToolRequest) -> Headers:
    if answer.status == HTTPStatus.UNAUTHORIZED and not sent.repeatable:
        raise BrokerError(Code.BODY_NOT_REPEATABLE)
    return answer.headers()


@cache
def _stream_types(lib: Any) -> tuple[Any, Any]:
    """Return the library's kinds of answer bodies: its responses accept no others."""
    return (
        type("InjectedBody", (_AsyncBody, lib.AsyncByteStream), {}),
        type("InjectedSyncBody", (_SyncBody, lib.SyncByteStream), {}),
    )


def _content(request: Any, lib: Any) -> bytes | None:
    """Return a body that can be sent twice, None for a stream."""
    try:
        return bytes(request.content)
    except lib.RequestNotRead:
        return None


def _length(request: Any) -> int | None:
    said = request.headers.get("content-length", "")
    return int(said) if said.isascii() and said.isdigit() and len(said) < 16 else None


def _patience(request: Any) -> float | None:
    """Return the longest wait for a step that the tool allows."""
    said = (request.extensions.get("timeout") or {}).values()
    return max((seconds for seconds in said if isinstance(seconds, int | float)), default=None)


async def _bounded(stream: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    size = 0
    async for piece in stream:
        size += len(piece)
        if size > MOST_SENT:
            raise BrokerError(Code.REQUEST_TOO_LARGE)
        yield piece


async def _next(pieces: AsyncIterator[bytes]) -> bytes | None:
    return await anext(pieces, None)
