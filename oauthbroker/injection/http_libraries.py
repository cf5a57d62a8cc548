"""The clients of httpx2 and httpx, as tools hold them: their transports pass each request to `RequestSender`, which
sends it and builds the answer. One set for the broker's own process and for the client over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterator
from functools import cache, partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar
from urllib.parse import urlsplit

from oauthbroker.core.checked_http_client import checked_client
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.path_steps import climbs
from oauthbroker.model.token_request import WrongArgument

if TYPE_CHECKING:
    import httpx2

    AsyncHttpClient = httpx2.AsyncClient
    HttpClient = httpx2.Client

MOST_SENT = 256 * 1024 * 1024  # bytes of a request's body
MOST_COLLECTED = 16 * 1024 * 1024  # bytes of a body of the sync client, which is collected before it is sent
T = TypeVar("T")


class OpenAnswer(Protocol):
    """An answer that is open until it is closed."""

    async def aclose(self) -> None: ...


class RequestSender(Protocol):
    """Sends the requests of one client of `lib`, which is httpx2 or httpx."""

    @property
    def lib(self) -> Any: ...

    async def send(self, request: Any, body: bytes | AsyncIterable[bytes], stream: Callable[[Any], Any]) -> Any:
        """Send a request and return the library's response. Raises `InjectionError`, or the library's exception where
        the network failed."""
        ...

    def pieces(self, answer: Any, request: Any) -> AsyncIterator[bytes]:
        """Yield the pieces of an answer's body. Raises as `send`."""
        ...

    def failure(self, error: BrokerError, request: Any) -> Exception:
        """Return the exception that the tool gets."""
        ...


class Wait(Protocol):
    """Runs a coroutine from a thread without an event loop."""

    def __call__(self, work: Coroutine[Any, Any, T], /) -> T: ...


class InjectingTransport:
    """The transport of a library's `AsyncClient`. Its connections are those of `requests`."""

    def __init__(self, requests: RequestSender) -> None:
        self.requests = requests

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def handle_async_request(self, request: Any) -> Any:
        content, stream_type = _content(request, self.requests.lib), _stream_types(self.requests.lib)[0]
        body = _bounded(request.stream) if content is None else content
        return await self.requests.send(request, body, lambda answer: stream_type(self.requests, answer, request))

    async def aclose(self) -> None: ...


class InjectingSyncTransport:
    """The transport of a library's `Client`. `wait` runs what sends the request and returns its result."""

    def __init__(self, requests: RequestSender, wait: Wait) -> None:
        self.requests, self._wait = requests, wait

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def handle_request(self, request: Any) -> Any:
        content, stream_type = _content(request, self.requests.lib), _stream_types(self.requests.lib)[1]
        body = self._collected(request) if content is None else content
        sent = self.requests.send(request, body, lambda answer: stream_type(self, answer, request))
        return self.wait(request, sent)

    def close(self) -> None: ...

    def pieces(self, answer: OpenAnswer, request: Any) -> Iterator[bytes]:
        """Yield the pieces of an answer's body. Raises as `RequestSender.send`."""
        pieces = self.requests.pieces(answer, request)
        while (piece := self.wait(request, _next(pieces))) is not None:
            yield piece

    def wait(self, request: Any, work: Coroutine[Any, Any, T]) -> T:
        """Wait for work of the requests. Raises as `RequestSender.send`."""
        try:
            return self._wait(work)
        except BrokerError as error:
            failed = self.requests.failure(error, request)
        raise failed

    def _collected(self, request: Any) -> bytes:
        body = bytearray()
        for piece in request.stream:
            body += piece
            if len(body) > MOST_COLLECTED:
                raise self.requests.failure(BrokerError(Code.REQUEST_TOO_LARGE), request)
        return bytes(body)


class _AsyncBody:
    def __init__(self, requests: RequestSender, answer: OpenAnswer, request: Any) -> None:
        self._requests, self._answer, self._request = requests, answer, request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._requests.pieces(self._answer, self._request):
            yield piece

    async def aclose(self) -> None:
        await self._answer.aclose()


class _SyncBody:
    def __init__(self, transport: InjectingSyncTransport, answer: OpenAnswer, request: Any) -> None:
        self._transport, self._answer, self._request = transport, answer, request

    def __iter__(self) -> Iterator[bytes]:
        return self._transport.pieces(self._answer, self._request)

    def close(self) -> None:
        self._transport.wait(self._request, self._answer.aclose())


def async_client(requests: RequestSender, base_url: str) -> AsyncHttpClient:
    """Return an async client of the library, whose relative addresses begin at `base_url`."""
    transport, check = InjectingTransport(requests), partial(_checked, base_url=base_url)
    client: AsyncHttpClient = checked_client(requests.lib.AsyncClient, transport, base_url, check)
    return client


def sync_client(requests: RequestSender, base_url: str, wait: Wait) -> HttpClient:
    """Return the same without `await`."""
    transport, check = InjectingSyncTransport(requests, wait), partial(_checked, base_url=base_url)
    client: HttpClient = checked_client(requests.lib.Client, transport, base_url, check)
    return client


def _checked(url: str, base_url: str) -> str:
    """Return an address with the scheme of `base_url` where it has only a host: the library would send it there. Raises
    `requestInvalid`, `apiHostForbidden`."""
    try:
        parts = urlsplit(url)
    except ValueError:  # the library refuses it
        return url
    if climbs(parts.path):
        raise WrongArgument("forwardedUrl", "path")
    if (parts.scheme or url.startswith("//")) and not parts.netloc:
        raise BrokerError(Code.API_HOST_FORBIDDEN)
    return f"{urlsplit(base_url).scheme or 'https'}:{url}" if url.startswith("//") else url


def library_of(library: ModuleType | None) -> Any:
    """Return the library: httpx2 where the tool names none."""
    if library is not None:
        return library
    import httpx2  # imported here: most contexts make no client

    return httpx2


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


def length_of(request: Any) -> int | None:
    """Return the length of a streamed body, if the tool says it."""
    said = request.headers.get("content-length", "")
    return int(said) if said.isascii() and said.isdigit() and len(said) < 16 else None


def patience_of(request: Any) -> float | None:
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
