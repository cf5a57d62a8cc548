"""The tool's client: `ctx.oauth` for a tool in another process. It holds only a turn token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self

from oauthbroker.client import tool_requests
from oauthbroker.client.address import LOCALE, TURN_TOKEN, URL, ClientSettingError, bearer, given, needed, parse_address
from oauthbroker.client.retries import ClientParts, OnWire, Wire
from oauthbroker.core.clock import Clock, SystemClock
from oauthbroker.core.dataclasses import dataclass, replace
from oauthbroker.core.errors import BrokerError, Locale, known_locale
from oauthbroker.core.secret import Secret
from oauthbroker.model.token_request import (
    AppRef,
    call_ref,
    concealed,
    is_seconds,
    kind_of,
    parse_request,
    scopes_listed,
)
from oauthbroker.model.token_results import AuthorizationRequired, Failed, SessionOutcome, TokenResult
from oauthbroker.model.turn_token import AllowedApps, narrow

if TYPE_CHECKING:
    from oauthbroker.client.forwarding import ApiAnswer
    from oauthbroker.injection.http_libraries import AsyncHttpClient

TIMEOUT = 60.0  # seconds: a refresh makes up to two provider calls of ten seconds each, and may queue first
LONGEST_TIMEOUT = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`timeout`: seconds for a call with all its tries, at most a day. `plain_http`: a weakening, http:// to another
    machine.

    `locale`: the language of errors where the turn has none; English without it.
    """

    timeout: float = TIMEOUT
    locale: Locale | None = None
    plain_http: bool = False
    clock: Clock | None = None

    def __post_init__(self) -> None:
        """Raises ClientSettingError for a timeout that no network can keep."""
        if not is_seconds(self.timeout, most=LONGEST_TIMEOUT):
            raise ClientSettingError(f"timeout is a number of seconds from 0 to {LONGEST_TIMEOUT}, such as 60")

    def wire(self, url: str) -> Wire:
        """Return the network of an async client."""
        from oauthbroker.client.async_transport import AsyncTransport  # asyncio and httpx2, for a client that is used

        address = parse_address(url, plain_http=self.plain_http)
        clock = self.clock or SystemClock()
        return Wire(address, AsyncTransport(address), timeout=self.timeout, locale=self.locale, clock=clock)

    @classmethod
    def of_turn(cls, options: Options, env: Mapping[str, str] | None) -> tuple[str, str, Options]:
        """Return what a tool's client is made of: the variables, and the options in the language of the turn."""
        locale = known_locale(given(LOCALE, env))
        options = options if locale is None else replace(options, locale=locale)
        return needed(URL, env), needed(TURN_TOKEN, env), options


DEFAULT = Options()


class OAuth(OnWire):
    """A tool's `ctx.oauth` over HTTP. Use `async with`, or `aclose()` it.

    `get_access_token`, `report_rejected` and `fetch` always return a result: an unreachable broker is a retryable
    `brokerUnreachable`, an ended turn is `turnEnded`. `pending` does not raise either. Requests of `client` raise
    InjectionError. The other calls raise BrokerError.
    """

    __slots__ = ()
    _bearer: Secret

    def __init__(self, url: str, turn_token: str | Secret, options: Options = DEFAULT) -> None:
        """Raises `configInvalid`, which is a ValueError too, for an invalid address or token."""
        self._wire = options.wire(url)
        self._bearer = bearer(turn_token)
        self._locale = options.locale

    @classmethod
    def from_env(cls, options: Options = DEFAULT, env: Mapping[str, str] | None = None) -> Self:
        """Create a client from OAUTHBROKER_URL, OAUTHBROKER_TURN_TOKEN and, where the turn has one, OAUTHBROKER_LOCALE.
        Raises `configInvalid`, which names a missing variable."""
        return cls(*Options.of_turn(options, env))

    async def get_access_token(
        self,
        app: str | Mapping[str, str],
        scopes: Sequence[str] | None = None,
        min_ttl_seconds: int | None = None,
        *,
        account: str | None = None,
        switch_account: bool = False,
    ) -> TokenResult:
        """Return the result: Ready, AuthorizationRequired or Failed.

        `app` is `"OAuthApp/name"`, the bare name, or `{kind, name}`. `account` is one that the turn lists; it may also
        be written behind the name in any call: `"google@work"`. `switch_account` needs a turn's own token: with a
        narrowed one it is `notAllowed`.
        """
        try:
            name = call_ref(app, account)
            return await self._send(
                tool_requests.token(name, scopes, min_ttl_seconds, switch_account=switch_account, kind=kind_of(app))
            )
        except BrokerError as error:
            return self._failed(error)

    async def getAccessToken(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Call `get_access_token` in the specification's own form: JSON in, JSON out. The token in it is in clear."""
        try:
            words, kind = parse_request(request), kind_of(request["oauthAppRef"])
            return (await self._send(tool_requests.token(*words, switch_account=False, kind=kind))).to_json()
        except BrokerError as error:
            return self._failed(error).to_json()

    async def report_rejected(
        self,
        app: str | Mapping[str, str],
        access_token: str | Secret,
        scopes: Sequence[str] | None = None,
        claims: str | None = None,
    ) -> TokenResult:
        """Report that the provider's API answered 401 to this token. Returns a newer token if possible, else the
        same results as `get_access_token`: pass the `scopes` of that call. `claims`: the text of that name in its
        challenge `insufficient_claims`."""
        try:
            name, token = call_ref(app), concealed(access_token)
            return await self._send(tool_requests.rejected(name, token, scopes, claims, kind=kind_of(app)))
        except BrokerError as error:
            return self._failed(error)

    async def fetch(
        self,
        app: str | Mapping[str, str],
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        scopes: Sequence[str] | None = None,
    ) -> ApiAnswer | AuthorizationRequired | Failed:
        """Send a request to the provider's API through the broker, which adds the token. Returns the API's answer with
        any status, or why there is none. After `brokerUnreachable` and `providerUnreachable` the provider may have
        acted. An answer longer than 4 MiB is `brokerAnswerInvalid`."""
        from oauthbroker.client.forwarding import AskedByHead, forwarded  # for a tool that has a token, rarely needed

        try:
            answer = await self._send(forwarded(call_ref(app), method, url, headers, content, scopes))
            return await self._send(answer.found) if isinstance(answer, AskedByHead) else answer
        except BrokerError as error:
            return self._failed(error)

    def client(
        self, app: AppRef, scopes: Sequence[str] | None = None, *, library: ModuleType | None = None
    ) -> AsyncHttpClient:
        """Return an HTTP client whose requests to the app's `api.hosts` carry the token, which the tool never gets.

        It is the client that the broker's own process gives to a tool, with the same exceptions: docs/injection.md. Its
        connections are this object's. `library`: the module `httpx`, in place of httpx2.
        """
        from oauthbroker.client.forwarding_clients import async_client  # for a tool that has a token, never needed

        return async_client(self._client_parts(app, scopes), library)

    def _client_parts(self, app: AppRef, scopes: Sequence[str] | None) -> ClientParts:
        """Return what a client is made of. Raises RequestRefusedError for a wrong reference or wrong scopes."""
        try:
            listed = None if scopes is None else scopes_listed(scopes)
            return self._wire, self._bearer, self._locale or "en", call_ref(app), listed
        except BrokerError as error:
            refused = self._failed(error)
        from oauthbroker.injection.errors import raised

        raise raised(refused)

    async def pending(self, links: tool_requests.Links = "inline") -> dict[str, Any] | None:
        """Return the turn's `auth.pending` block for the apps of this token; None if nothing is pending.

        `apart` has no links in it, for a transcript. If the block cannot be read, returns None and warns in the logger
        `oauthbroker.client`, so that the turn continues.
        """
        try:
            return await self._send(tool_requests.pending(links))
        except BrokerError as error:
            import logging  # a tenth of the start of a tool, and rarely needed

            log = logging.getLogger("oauthbroker.client")
            log.warning("an auth.pending block could not be read: %s", error.code.value)
            return None

    async def relay_code(self, code: str | Secret) -> SessionOutcome:
        """Pass on the code that the user sent in the conversation (`channelCode`). Raises `notAllowed` for a
        narrowed token, `stateUnknown`, `rateLimited`."""
        return await self._send(tool_requests.relay_code(code if isinstance(code, Secret) else Secret(code)))

    async def apps(self) -> list[tool_requests.AppInfo]:
        """Return the apps that this token may use."""
        return await self._send(tool_requests.apps())

    def narrow(
        self, *, tool: str | None = None, apps: AllowedApps | None = None, expires_at: datetime | None = None
    ) -> Self:
        """Create a client with fewer rights, for a sub-tool: only `tool`, only these apps (app -> scopes, None: all
        allowed so far), only until `expires_at`. Sends no request. Raises `requestInvalid` at the 17th narrowing."""
        return self._on(self._wire, narrow(self._bearer, tool=tool, apps=apps, expires_at=expires_at), self._locale)

    @property
    def turn_token(self) -> Secret:
        """Return the token itself, to pass to another process: `reveal()` it there and nowhere else."""
        return self._bearer

    def _failed(self, error: BrokerError) -> Failed:
        return Failed.from_error(error, self._locale or "en")
