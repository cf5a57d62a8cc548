"""HTTP clients whose requests carry a token that their holder never gets.

`InjectedRequests` sends a tool's request through the `Injector` and builds a new answer,
so that no object of the tool has the header.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine
from http import HTTPStatus
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code, Locale
from oauthbroker.core.sync_bridge import wait_on
from oauthbroker.injection import http_libraries
from oauthbroker.injection.errors import InjectionError, raised
from oauthbroker.injection.headers import Headers
from oauthbroker.injection.http_libraries import length_of, library_of, patience_of
from oauthbroker.injection.injector import ForwardedAnswer, Injector, TokenSource, ToolRequest
from oauthbroker.injection.targets import Target
from oauthbroker.model.token_results import Failed
from oauthbroker.protocol.network.transport import LATE, TransportFailed

if TYPE_CHECKING:
    from oauthbroker.injection.http_libraries import AsyncHttpClient, HttpClient

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
        name = network_failure(error)
        if not name:
            return raised(Failed.from_error(error, self.tokens.locale))
        failed: Exception = getattr(self.lib, name)(error.note, request=request)
        return failed

    async def _send(self, request: Any, body: bytes | AsyncIterable[bytes]) -> tuple[ForwardedAnswer, Headers]:
        target = self.tokens.target(request.method, str(request.url))
        length = None if isinstance(body, bytes) else length_of(request)
        sent = ToolRequest(headers=list(request.headers.raw), body=body, length=length)
        answer = await self.injector.within(patience_of(request)).send(self.tokens, target, sent)
        if not isinstance(answer, ForwardedAnswer):
            raise raised(answer)
        try:
            return answer, _headers(answer, sent)
        except BrokerError:
            await answer.aclose()
            raise


def network_failure(error: BrokerError) -> str:
    """Return the library's exception for a network that failed, which tells a tool whether it may retry; else empty."""
    if not isinstance(error, TransportFailed) or error.code is Code.OUTGOING_PROXY_REFUSED:
        return ""
    names = ("ReadTimeout", "ReadError") if error.sent else ("ConnectTimeout", "ConnectError")
    return names[error.note != LATE]


def async_client(injector: Injector, tokens: CheckedTokens, library: ModuleType | None) -> AsyncHttpClient:
    """Return an async client of httpx2, or of a library with the same names."""
    requests = InjectedRequests(injector, tokens, library_of(library))
    return http_libraries.async_client(requests, tokens.base_url)


def sync_client(
    injector: Injector, tokens: CheckedTokens, library: ModuleType | None, loop: asyncio.AbstractEventLoop
) -> HttpClient:
    """Return the same without `await`, for another thread than the loop's."""

    def wait(work: Coroutine[Any, Any, T], /) -> T:
        return wait_on(loop, work, SYNC_SECONDS)

    requests = InjectedRequests(injector, tokens, library_of(library))
    return http_libraries.sync_client(requests, tokens.base_url, wait)


def _headers(answer: ForwardedAnswer, sent: ToolRequest) -> Headers:
    if answer.status == HTTPStatus.UNAUTHORIZED and not sent.repeatable:
        raise BrokerError(Code.BODY_NOT_REPEATABLE)
    return answer.headers()
