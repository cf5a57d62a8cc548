"""Provide `ctx.oauth`: the manager as one turn and one tool may use it (specification 12.5.1)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from oauthbroker.core.claims_challenge import checked_claims
from oauthbroker.core.errors import BrokerError, Locale
from oauthbroker.core.secret import Secret
from oauthbroker.core.sync_bridge import wait_on
from oauthbroker.injection.errors import raised
from oauthbroker.injection.http_clients import async_client, sync_client
from oauthbroker.injection.injector import Injector
from oauthbroker.model.token_request import AppRef, call_ref, concealed, parse_request
from oauthbroker.model.token_results import AuthorizationRequired, Failed, TokenResult
from oauthbroker.tokens.injected_calls import InjectedCalls
from oauthbroker.tokens.issuance import words_of
from oauthbroker.tokens.manager import OAuthManager
from oauthbroker.tokens.token_call import Caller

if TYPE_CHECKING:
    from oauthbroker.injection.http_libraries import AsyncHttpClient, HttpClient

SYNC_SECONDS = 60.0
T = TypeVar("T")


class OAuthContext:
    """Bound to a turn and limited to a tool's declared apps and scopes. The subject is the turn's and cannot be
    named."""

    __slots__ = ("_caller", "_injector", "_locale", "_loop", "_manager")

    def __init__(
        self,
        *,
        manager: OAuthManager,
        caller: Caller,
        locale: Locale,
        loop: asyncio.AbstractEventLoop,
        injector: Injector,
    ) -> None:
        self._manager = manager
        self._caller = caller
        self._locale = locale
        self._loop = loop
        self._injector = injector

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a context belongs to a running broker: it is neither pickled nor copied")

    async def get_access_token(
        self,
        app: str | Mapping[str, str],
        scopes: Sequence[str] | None = None,
        min_ttl_seconds: int | None = None,
        *,
        account: str | None = None,
        switch_account: bool = False,
    ) -> TokenResult:
        """Return a token, a request for consent, or an error: `Ready`, `AuthorizationRequired` or `Failed`.

        `app` is `"OAuthApp/name"`, the bare name, or `{kind, name}`. `account` is one that the turn lists; it may also
        be written behind the name: `"google@work"`. `switch_account` is for the runtime: a tool gets
        `notAllowed`.
        """
        try:
            name = call_ref(app, account, self._manager.calls.apps)
        except BrokerError as error:
            return Failed.from_error(error, self._locale)
        caller = self._caller
        if switch_account is False and caller.issued and caller.turn_holds is None:
            issuance = self._manager.issuer.reissue(caller, words_of(name, scopes, min_ttl_seconds))
            if issuance is not None:
                return issuance.fresh()
        return await self._manager.get_access_token(
            caller, name, scopes, min_ttl_seconds, switch_account=switch_account
        )

    async def getAccessToken(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Do the same in the specification's form: JSON in, JSON out."""
        try:
            name, scopes, min_ttl = parse_request(request, self._manager.calls.apps)
        except BrokerError as error:
            return Failed.from_error(error, self._locale).to_json()
        return (await self.get_access_token({"name": name}, scopes, min_ttl)).to_json()

    async def report_rejected(
        self,
        app: str | Mapping[str, str],
        access_token: str | Secret,
        scopes: Sequence[str] | None = None,
        claims: str | None = None,
    ) -> TokenResult:
        """Report that the provider's API answered 401 to this token. Return a newer token if there is one or a refresh
        yields one, else as `get_access_token`. `claims`: the text of that name in a challenge `insufficient_claims`,
        for which the user has to sign in."""
        try:
            name = call_ref(app, apps=self._manager.calls.apps)
            token = concealed(access_token)
            wanted = checked_claims(claims)
        except BrokerError as error:
            return Failed.from_error(error, self._locale)
        return await self._manager.report_rejected(self._caller, name, token, scopes, claims=wanted)

    async def missing_consent(
        self, app: AppRef, scopes: Sequence[str] | None = None
    ) -> AuthorizationRequired | Failed | None:
        """Return a request for consent, or an error, if a token call would answer so; None if there is a token, which
        nothing gets. For runtimes that ask the user before they call a tool."""
        try:
            name = call_ref(app, apps=self._manager.calls.apps)
        except BrokerError as error:
            return Failed.from_error(error, self._locale)
        return await self._manager.missing_consent(self._caller, name, scopes)

    async def first_scopes(self, app: AppRef) -> tuple[str, ...] | None:
        """Return the scopes with which a session with the app's MCP server begins; None for all of the app's. For
        `McpTransport`. Raises BrokerError."""
        return await self._manager.first_scopes(self._caller, call_ref(app, apps=self._manager.calls.apps))

    def connection(self, app: AppRef) -> str:
        """Return which connection a call for an app gets: `name`, or `name@account`. Raises as a token call."""
        return self._manager.calls.connection(self._caller, call_ref(app, apps=self._manager.calls.apps))

    def injected_calls(self, app: AppRef, scopes: Sequence[str] | None = None) -> InjectedCalls:
        """Return the tokens for requests to an app's API that the broker sends. Raises `requestInvalid` for another
        reference. For the client and the proxy: a tool does not get them."""
        return InjectedCalls(
            manager=self._manager,
            caller=self._caller,
            app_name=call_ref(app, apps=self._manager.calls.apps),
            scopes=scopes,
            locale=self._locale,
        )

    def client(
        self, app: AppRef, scopes: Sequence[str] | None = None, *, library: ModuleType | None = None
    ) -> AsyncHttpClient:
        """Return an HTTP client whose requests to the app's `api.hosts` carry the token, which the tool never gets.

        A request raises `AuthorizationRequiredError` if a user must consent, `RequestRefusedError` for another failure
        of the broker, and the library's exceptions for those of the network. This method raises `RequestRefusedError`
        for a wrong reference. `library`: the module `httpx`, in place of httpx2.
        """
        return async_client(self._injector, self.client_calls(app, scopes), library)

    def client_calls(self, app: AppRef, scopes: Sequence[str] | None) -> InjectedCalls:
        """Return `injected_calls` for a client. Raises RequestRefusedError for a wrong reference."""
        try:
            return self.injected_calls(app, scopes)
        except BrokerError as error:
            refused = Failed.from_error(error, self._locale)
        raise raised(refused)

    @property
    def sync(self) -> SyncOAuthContext:
        """Return the same interface for tools without `await`, in a worker thread."""
        return SyncOAuthContext(context=self, loop=self._loop, locale=self._locale, injector=self._injector)


class SyncOAuthContext:
    """`ctx.oauth` for a tool that runs in its own thread while the broker's event loop runs.

    `timeout` bounds each call in seconds. After it the call returns a retryable `brokerUnreachable`, and a refresh
    under way continues. On the loop's own thread a call raises RuntimeError, because it would deadlock.
    """

    __slots__ = ("_context", "_injector", "_locale", "_loop")

    def __init__(
        self,
        *,
        context: OAuthContext,
        loop: asyncio.AbstractEventLoop,
        locale: Locale,
        injector: Injector,
    ) -> None:
        self._context = context
        self._injector = injector
        self._loop = loop
        self._locale = locale

    def get_access_token(
        self,
        app: str | Mapping[str, str],
        scopes: Sequence[str] | None = None,
        min_ttl_seconds: int | None = None,
        *,
        account: str | None = None,
        switch_account: bool = False,
        timeout: float = SYNC_SECONDS,
    ) -> TokenResult:
        """Call `OAuthContext.get_access_token`."""
        asked = self._context.get_access_token(
            app, scopes, min_ttl_seconds, account=account, switch_account=switch_account
        )
        return self._answer(asked, timeout)

    def getAccessToken(self, request: Mapping[str, Any], *, timeout: float = SYNC_SECONDS) -> dict[str, Any]:
        """Call `OAuthContext.getAccessToken`."""
        answer = self._answer(self._context.getAccessToken(request), timeout)
        return answer.to_json() if isinstance(answer, Failed) else answer

    def client(
        self, app: AppRef, scopes: Sequence[str] | None = None, *, library: ModuleType | None = None
    ) -> HttpClient:
        """Return what `OAuthContext.client` returns, without `await`."""
        calls = self._context.client_calls(app, scopes)
        return sync_client(self._injector, calls, library, self._loop)

    def report_rejected(
        self,
        app: str | Mapping[str, str],
        access_token: str | Secret,
        scopes: Sequence[str] | None = None,
        claims: str | None = None,
        *,
        timeout: float = SYNC_SECONDS,
    ) -> TokenResult:
        """Call `OAuthContext.report_rejected`."""
        return self._answer(self._context.report_rejected(app, access_token, scopes, claims), timeout)

    def _answer(self, asked: Coroutine[Any, Any, T], timeout: float) -> T | Failed:
        try:
            return wait_on(self._loop, asked, timeout)
        except BrokerError as error:
            return Failed.from_error(error, self._locale)
