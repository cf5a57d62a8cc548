"""Send a caller's request to a provider's API with the token, and return the answer without it."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Sequence
from http import HTTPStatus
from typing import Protocol

from oauthbroker.core.bearer_challenge import demanded_scopes
from oauthbroker.core.bounded_cache import Bounded
from oauthbroker.core.claims_challenge import demanded_claims
from oauthbroker.core.dataclasses import dataclass, field, replace
from oauthbroker.core.secret import Secret
from oauthbroker.injection.headers import TEAM, Headers, incoming, outgoing
from oauthbroker.injection.targets import Target
from oauthbroker.injection.token_masking import Maskers
from oauthbroker.model.apps import App
from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready, TokenResult
from oauthbroker.protocol.credential_placement import placed
from oauthbroker.protocol.network.api_request import ApiRequest
from oauthbroker.protocol.network.api_transport import ApiLimits, ApiResponse, ApiTransport

LONGEST_STALL_SECONDS = 300.0  # for a tool that waits for slow answers
MOST_MASKED = 4  # tokens of one account: each costs a search of its answers
MOST_ACCOUNTS = 1_000  # whose last tokens are kept in memory
_BODILESS = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})


class TokenSource(Protocol):
    """Issues tokens for the requests of one caller, and writes each into the audit log before it returns it."""

    async def token(self, target: Target) -> TokenResult: ...

    async def rejected(self, target: Target, token: Secret, demanded: frozenset[str], claims: str) -> TokenResult: ...

    def answered(self, target: Target, status: int, sent: int, received: int) -> None:
        """Write the answer into the audit log."""

    def account(self, target: Target) -> str:
        """Return the grant's id. Connections are shared within an account."""


@dataclass(slots=True, kw_only=True)
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
    """A provider's answer without the secrets. Close it, which writes its sizes into the audit log."""

    def __init__(
        self,
        *,
        response: ApiResponse,
        secrets: Sequence[Secret],
        source: TokenSource,
        target: Target,
        request: ToolRequest,
        is_team: bool,
    ) -> None:
        self._is_team = is_team
        self._response, self._source, self._target, self._request = response, source, target, request
        self._masker = Maskers(secrets)
        self._received, self._closed = 0, False
        self.status, self.demanded = response.status, demanded_scopes(response.status, response.headers)
        self.claims = demanded_claims(response.status, response.headers)

    def headers(self) -> Headers:
        """Return the headers that the tool gets. Raises `providerUnreachable` for an answer that cannot be masked."""
        bodiless = self.status in _BODILESS
        kept = [(self._masker.name(name), self._masker.once(value)) for name, value in incoming(self._response.headers)]
        passed = [each for each in kept if not (bodiless and each[0] == b"content-length")]
        return [*passed, *TEAM] if self._is_team else passed

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


SentSecrets = Bounded[str, tuple[Sequence[Secret], ...]]  # by account: what requests carried, the newest first


class Injector:
    """Sends requests with tokens. A provider's 401 is reported, and a repeatable request is sent once more with the
    next token. Where there is none just now, the answer says so: the API did nothing."""

    def __init__(self, transport: ApiTransport, limits: ApiLimits, sent: SentSecrets | None = None) -> None:
        self._transport, self._limits = transport, limits
        self._sent_secrets = SentSecrets(MOST_ACCOUNTS) if sent is None else sent

    def within(self, stall_seconds: float | None) -> Injector:
        """Return an injector whose steps may take as long as the tool says, up to LONGEST_STALL_SECONDS."""
        said = self._limits.stall_seconds if stall_seconds is None else max(0.0, stall_seconds)
        limits = replace(self._limits, stall_seconds=min(said, LONGEST_STALL_SECONDS))
        return Injector(self._transport, limits, self._sent_secrets)

    async def send(
        self, source: TokenSource, target: Target, request: ToolRequest
    ) -> ForwardedAnswer | AuthorizationRequired | Failed:
        """Return the head of the answer, or why there is no token. Raises what `outgoing` and `ApiTransport.send`
        raise."""
        app = target.app
        usual = app.habits.headers_for_api(app.client.client_id)
        headers = outgoing(request.headers, app.api.headers, carriers=app.carriers, usual=usual)
        result = await source.token(target)
        if not isinstance(result, Ready):
            return result
        answer = await self._sent(source, target, request, headers, result)
        if answer.status != HTTPStatus.UNAUTHORIZED:
            return answer
        try:
            again = await source.rejected(target, result.access_token, answer.demanded, answer.claims)
        except BaseException:
            await answer.aclose()
            raise
        if (isinstance(again, Failed) and not again.retryable) or (isinstance(again, Ready) and not request.repeatable):
            return answer
        await answer.aclose()
        if isinstance(again, Ready):
            return await self._sent(source, target, request, headers, again)
        return again

    async def _sent(
        self, source: TokenSource, target: Target, request: ToolRequest, headers: Headers, ready: Ready
    ) -> ForwardedAnswer:
        path = target.path_for(ready.provider_data)
        host, app, account = target.host, target.app, source.account(target)
        draft = ApiRequest(
            method=target.method, scheme=host.scheme, host=host.name, port=host.port, path=path, headers=headers,
            body=request.passed_on(), length=request.length, account=account, app=app.name, ca=app.provider_ca,
            direct=app.direct,
        )  # fmt: skip
        forwarded, secrets = carrying(app, ready, draft)
        self._masked(account, secrets)  # also where no answer comes
        response = await self._transport.send(forwarded, self._limits)
        secrets = self._masked(account, secrets)
        return ForwardedAnswer(
            response=response, secrets=secrets, source=source, target=target, request=request, is_team=ready.is_team
        )

    def _masked(self, account: str, secrets: Sequence[Secret]) -> Sequence[Secret]:
        """Return what an answer must not repeat: what its request carried, and what the account's last requests did. An
        API tells a token after its refresh, such as that of a first try."""
        others = (each for each in self._sent_secrets.get(account, ()) if each != secrets)
        last = (secrets, *others)[:MOST_MASKED]
        self._sent_secrets.keep(account, last)
        return [secret for each in last for secret in each]


def carrying(app: App, ready: Ready, request: ApiRequest) -> tuple[ApiRequest, Sequence[Secret]]:
    """Return the request with the app's token or credential, and the texts that its answer must not repeat. Raises as
    `placed`."""
    token = ready.access_token
    if app.credential is None:
        name, value = app.habits.token_proof(token)
        proof = (name.encode("ascii"), value.reveal().encode("utf-8"))
        return replace(request, headers=[*request.headers, proof]), (token,)
    there = app.at({param.name: str(ready.provider_data.get(param.name, "")) for param in app.connect_params})
    opened = (there.credential or app.credential).opened(token)
    return placed(opened, request), opened.masked
