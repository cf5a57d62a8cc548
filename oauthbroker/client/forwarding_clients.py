"""HTTP clients whose requests the broker forwards with the token: `OAuth.client` and `SyncOAuth.client`.

To a tool they are the clients of the broker's own process (`oauthbroker.injection`), with the same exceptions. Their
network is that of the `OAuth` which made them.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator, Sequence
from http import HTTPStatus
from types import ModuleType
from typing import TYPE_CHECKING, Any

import httpx2

from oauthbroker.client.async_transport import AsyncTransport
from oauthbroker.client.client_call import ORIGIN, Reply, reply_of, segment
from oauthbroker.client.forwarding import OURS, AskedByHead, consent
from oauthbroker.client.retries import PAUSES, BrokerAway, ClientParts, Wire, pause_of
from oauthbroker.client.sync_transport import BlockingTransport
from oauthbroker.client.transport import CONNECT_SECONDS, check_length
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code, Locale
from oauthbroker.core.header_names import OURS as BROKERS
from oauthbroker.core.header_names import check_field, spelled
from oauthbroker.core.secret import Secret
from oauthbroker.injection import http_libraries
from oauthbroker.injection.errors import InjectionError, raised
from oauthbroker.injection.http_libraries import length_of, library_of, patience_of
from oauthbroker.model.token_results import Failed

if TYPE_CHECKING:
    from oauthbroker.injection.http_libraries import AsyncHttpClient, HttpClient

ANY_HOST = "https://api.invalid/"  # where relative addresses begin: the broker knows the app's first host
FIRST_HOST = "-"  # this host's name in the proxy's path
KEPT_BODY = 64 * 1024  # bytes of a body that the broker itself sends again after a 401
STALL_SECONDS = 30.0  # for a step at the provider, where the tool says nothing
LONGEST_STALL_SECONDS = 300.0
NETWORK = "oauthbroker-network"  # the library's exception for the broker's own network


class OpenReply:
    """An open answer of the broker's."""

    def __init__(self, response: httpx2.Response) -> None:
        self.response = response
        self.is_forwarded = response.headers.get(ORIGIN) == "forwarded"

    async def chunks(self) -> AsyncIterator[bytes]:
        async for piece in self.response.aiter_raw():
            yield piece

    async def aclose(self) -> None:
        await self.response.aclose()

    async def reply(self) -> Reply:
        """Read the broker's own answer. Raises `brokerAnswerInvalid` for one that is too long."""
        body = bytearray()
        try:
            async for piece in self.chunks():
                body += piece
                check_length(body)
        finally:
            await self.aclose()
        return reply_of(self.response.status_code, bytes(body), self.response.headers)


class BlockingReply(OpenReply):
    """An open answer whose pieces block the thread."""

    async def chunks(self) -> AsyncIterator[bytes]:
        for piece in self.response.iter_raw():
            yield piece

    async def aclose(self) -> None:
        self.response.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardedRequests:
    """The requests of one client to an app's API. `lib` is httpx2, or a library with the same names."""

    wire: Wire
    bearer: Secret
    locale: Locale
    app: str
    scopes: Sequence[str] | None
    lib: Any

    async def send(self, request: Any, body: bytes | AsyncIterable[bytes], stream: Callable[[OpenReply], Any]) -> Any:
        """Send a request as `RequestSender` says. A body of bytes is sent again after a 401 for which the broker could
        not repeat it, after 429, and where it never reached the broker."""
        failed: Exception
        try:
            answer = await self._settled(request, body)
            headers = [each for each in answer.response.headers.raw if each[0].lower() != ORIGIN.encode()]
            return self.lib.Response(answer.response.status_code, headers=headers, stream=stream(answer))
        except BrokerError as error:
            failed = self.failure(error, request)
        except httpx2.TransportError as error:
            failed = self._lost(error, request)
        except InjectionError as error:
            failed = error
        raise failed.with_traceback(None)  # its frames had the turn token

    async def pieces(self, answer: OpenReply, request: Any) -> AsyncIterator[bytes]:
        """Yield the pieces of an answer's body. Raises as `send`."""
        failed: Exception | None = None
        try:
            async for piece in answer.chunks():
                yield piece
        except httpx2.TransportError as error:
            failed = self._lost(error, request)
        if failed is not None:
            raise failed

    def failure(self, error: BrokerError, request: Any) -> Exception:
        """Return the library's exception where the broker could not reach the provider, else ours."""
        if isinstance(error, _ProviderLost):
            lost: Exception = getattr(self.lib, error.name)(error.note, request=request)
            return lost
        return raised(Failed.from_error(error, self.locale))

    async def _settled(self, request: Any, body: bytes | AsyncIterable[bytes]) -> OpenReply:
        """Return the provider's answer; after a 401, the answer to the next token. The broker repeats a short body
        itself. Raises as `_answer`, and `bodyNotRepeatable`."""
        answer = await self._answer(request, body)
        if answer.response.status_code != HTTPStatus.UNAUTHORIZED or (
            isinstance(body, bytes) and len(body) <= KEPT_BODY
        ):
            return answer
        await answer.aclose()
        if not isinstance(body, bytes):
            raise BrokerError(Code.BODY_NOT_REPEATABLE)
        return await self._answer(request, body)

    async def _answer(self, request: Any, body: bytes | AsyncIterable[bytes]) -> OpenReply:
        """Return the provider's answer. Raises `AuthorizationRequiredError`, BrokerError and httpx2's exceptions."""
        pauses = iter(PAUSES if isinstance(body, bytes) else ())
        while True:
            outgoing, reply = self._outgoing(request, body), None
            try:
                answer = await opened(self.wire, outgoing)
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                pass  # the request never left this machine
            else:
                if answer.is_forwarded:
                    return answer
                reply = await answer.reply()
            wait = self._wait(pauses, reply)
            if wait is None:
                raise BrokerAway(self.wire.url) if reply is None else await self._refused(reply)
            await self.wire.clock.sleep(wait)

    def _wait(self, pauses: Iterator[float], reply: Reply | None) -> float | None:
        """Return the seconds until the next try: of a request that did not arrive, or was refused unread."""
        if reply is not None and reply.status != HTTPStatus.TOO_MANY_REQUESTS:
            return None
        pause = next(pauses, None)
        wait = None if pause is None else pause_of(pause * self.wire.clock.jitter(0.5, 1.5), reply)
        return None if wait is None or wait > self.wire.timeout else wait

    async def _refused(self, reply: Reply) -> Exception:
        """Return why the broker did not forward a request."""
        name = (reply.headers or {}).get(NETWORK)
        if name in {"ReadTimeout", "ReadError", "ConnectTimeout", "ConnectError"}:
            return _ProviderLost(name)
        try:
            asked = consent(reply)
            return raised(await self.wire.send(asked.found, self.bearer) if isinstance(asked, AskedByHead) else asked)
        except BrokerError as error:
            return error

    def _outgoing(self, request: Any, body: bytes | AsyncIterable[bytes]) -> httpx2.Request:
        headers = [(name, said.strip(b" \t")) for name, said in request.headers.raw if not _is_dropped(name)]
        for each in headers:
            check_field(*each)
        headers += [(b"Authorization", f"Bearer {self.bearer.reveal()}".encode()), (b"Accept-Encoding", b"identity")]
        if self.scopes is not None:
            headers.append((b"OAuthBroker-Scopes", " ".join(self.scopes).encode()))
        if not isinstance(body, bytes) and (length := length_of(request)) is not None:
            headers.append((b"Content-Length", str(length).encode()))
        stall = patience_of(request)
        seconds = STALL_SECONDS if stall is None else max(0.001, min(stall, LONGEST_STALL_SECONDS))
        if stall is not None:
            headers.append((b"OAuthBroker-Timeout", f"{seconds:.3f}".encode()))
        timeout = httpx2.Timeout(self.wire.timeout + seconds, connect=CONNECT_SECONDS)
        return httpx2.Request(
            request.method, self._url(request.url), headers=headers, content=body,
            extensions={"timeout": timeout.as_dict()},
        )  # fmt: skip

    def _url(self, url: Any) -> httpx2.URL:
        """Return the proxy's address of a request, its path and query byte for byte. Raises `apiHostForbidden`."""
        if url.userinfo:
            raise BrokerError(Code.API_HOST_FORBIDDEN, note="a user in the URL")
        authority = url.netloc.decode("ascii")
        if (url.host, url.port) == ("api.invalid", None):
            authority = FIRST_HOST
        elif url.scheme == "http" and url.port is None:
            authority += ":80"
        base = httpx2.URL(self.wire.base)
        path = f"{base.path.rstrip('/')}/v1/proxy/{segment(self.app)}/{segment(authority)}".encode()
        return base.copy_with(raw_path=path + url.raw_path)

    def _lost(self, error: httpx2.TransportError, request: Any) -> Exception:
        """Return the library's exception for the network to the broker."""
        name = type(error).__name__
        known = getattr(self.lib, name, None) if name != "RemoteProtocolError" else None
        text = str(error) or f"no whole answer from the broker at {self.wire.url}"
        lost: Exception = (known or self.lib.ReadError)(text, request=request)
        return lost


class _ProviderLost(BrokerError):
    """The broker's own network failed. `name`: the library's exception for it."""

    def __init__(self, name: str) -> None:
        super().__init__(Code.PROVIDER_UNREACHABLE, note="the provider's API")
        self.name = name


async def opened(wire: Wire, request: httpx2.Request) -> OpenReply:
    """Send a request, and return the answer as soon as it begins: in the thread of a client without `await`."""
    network = wire.transport
    if isinstance(network, BlockingTransport):
        return BlockingReply(network.http().send(request, stream=True))
    assert isinstance(network, AsyncTransport)  # noqa: S101  (there are these two)
    return OpenReply(await network.http().send(request, stream=True))


def async_client(parts: ClientParts, library: ModuleType | None) -> AsyncHttpClient:
    """Return an async client of httpx2, or of a library with the same names."""
    return http_libraries.async_client(_requests(parts, library), ANY_HOST)


def sync_client(parts: ClientParts, library: ModuleType | None, wait: http_libraries.Wait) -> HttpClient:
    """Return the same without `await`."""
    return http_libraries.sync_client(_requests(parts, library), ANY_HOST, wait)


def _requests(parts: ClientParts, library: ModuleType | None) -> ForwardedRequests:
    wire, bearer, locale, app, scopes = parts
    return ForwardedRequests(wire=wire, bearer=bearer, locale=locale, app=app, scopes=scopes, lib=library_of(library))


def _is_dropped(name: bytes) -> bool:
    said = spelled(name)
    return said.startswith(BROKERS) or said.decode("latin-1") in OURS
