"""Send a caller's request to a provider's API with the token, and return the answer without it."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Protocol

from oauthbroker.core.secret import Secret
from oauthbroker.injection.answer_masking import Masker
from oauthbroker.injection.headers import Headers, incoming, outgoing
from oauthbroker.injection.targets import Target
from oauthbroker.model.results import AuthorizationRequired, Failed, Ready, TokenResult
from oauthbroker.protocol.api_request import ApiRequest
from oauthbroker.protocol.api_transport import ApiLimits, ApiResponse, ApiTransport

_BODILESS = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})


class TokenSource(Protocol):
    """Issues tokens for the requests of one caller, and writes each into the audit log before it returns it."""

    async def token(self, target: Target) -> TokenResult: ...

    async def rejected(self, target: Target, token: Secret) -> TokenResult: ...

    def answered(self, target: Target, status: int, sent: int, received: int) -> None:
        """Write the answer into the audit log."""

    def account(self, target: Target) -> str:
        """Return the grant's id. Connections are shared within an account."""


@dataclass(slots=True)
class ToolRequest:
    """A request as the tool sent it. `body` is repeatable as bytes, else of `length` bytes or of as many as come.
    `sent` counts the bytes of the body that were passed on."""

    headers: Headers = field(repr=False)
    body: bytes | AsyncIterable[bytes] = field(default=b"", repr=False)
    length: int | None = None
    sent: int = 0

    @property
    def repeatable(self) -> bool:
        return isinstance(self.body, bytes)

    def passed_on(self) -> bytes | AsyncIterable[bytes]:
        """Return the body to send, counted."""
        if isinstance(self.body, bytes):
            self.sent = len(self.body)
            return self.body
        return self._counted(self.body)

    async def _counted(self, body: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
        async for piece in body:
            self.sent += len(piece)
            yield piece


class ForwardedAnswer:
    """A provider's answer without the token. Close it, which writes its sizes into the audit log."""

    def __init__(
        self, response: ApiResponse, token: Secret, source: TokenSource, target: Target, request: ToolRequest
    ) -> None:
        self._response, self._source, self._target, self._request = response, source, target, request
        self._masker = Masker(token)
        self._received, self._closed = 0, False
        self.status = response.status

    def headers(self) -> Headers:
        """Return the headers that the tool gets. Raises `providerUnreachable` for an answer that cannot be masked."""
        bodiless = self.status in _BODILESS
        kept = [(name, self._masker.once(value)) for name, value in incoming(self._response.headers)]
        return [each for each in kept if not (bodiless and each[0] == b"content-length")]

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body's pieces. Raises `TransportFailed`."""
        async for piece in self._response.chunks():
            self._received += len(piece)
            if text := self._masker.feed(piece):
                yield text
        if text := self._masker.end():
            yield text

    async def aclose(self) -> None:
        """Free the connection. Raises `storeUnavailable` if the audit log cannot be written."""
        if self._closed:
            return
        self._closed = True
        await self._response.aclose()
        self._source.answered(self._target, self.status, self._request.sent, self._received)


class Injector:
    """Sends requests with tokens. A provider's 401 is reported, and the request is sent once more with the next token
    if its body is repeatable."""

    def __init__(self, transport: ApiTransport, limits: ApiLimits) -> None:
        self._transport, self._limits = transport, limits

    def within(self, stall_seconds: float | None) -> Injector:
        """Return the same with shorter waits for each step, if they are shorter."""
        if stall_seconds is None or stall_seconds >= self._limits.stall_seconds:
            return self
        return Injector(self._transport, replace(self._limits, stall_seconds=max(0.0, stall_seconds)))

    async def send(
        self, source: TokenSource, target: Target, request: ToolRequest
    ) -> ForwardedAnswer | AuthorizationRequired | Failed:
        """Return the head of the answer, or why there is no token. Raises what `outgoing` and `ApiTransport.send`
        raise."""
        headers = outgoing(request.headers)
        result = await source.token(target)
        if not isinstance(result, Ready):
            return result
        answer = await self._sent(source, target, request, headers, result.access_token)
        if answer.status != HTTPStatus.UNAUTHORIZED:
            return answer
        again = await self._rejected(source, target, answer, result.access_token)
        if isinstance(again, Failed):
            return answer
        if isinstance(again, Ready) and not request.repeatable:
            return answer
        await answer.aclose()
        if isinstance(again, Ready):
            return await self._sent(source, target, request, headers, again.access_token)
        return again

    async def _rejected(
        self, source: TokenSource, target: Target, answer: ForwardedAnswer, token: Secret
    ) -> TokenResult:
        try:
            return await source.rejected(target, token)
        except BaseException:
            await answer.aclose()
            raise

    async def _sent(
        self, source: TokenSource, target: Target, request: ToolRequest, headers: Headers, token: Secret
    ) -> ForwardedAnswer:
        credentials = (b"Authorization", b"Bearer " + token.reveal().encode("utf-8"))
        host, app = target.host, target.app
        response = await self._transport.send(
            ApiRequest(
                target.method,
                host.scheme,
                host.name,
                host.port,
                target.path,
                [*headers, credentials],
                request.passed_on(),
                request.length,
                account=source.account(target),
                app=app.name,
                ca=app.provider_ca,
            ),
            self._limits,
        )
        return ForwardedAnswer(response, token, source, target, request)
