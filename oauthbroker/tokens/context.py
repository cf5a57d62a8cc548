"""Provide `ctx.oauth`: the manager as one turn and one tool may use it (specification 12.5.1)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, NoReturn

from oauthbroker.core.errors import BrokerError, Locale
from oauthbroker.core.secret import Secret
from oauthbroker.core.sync_bridge import wait_on
from oauthbroker.model.results import Failed, TokenResult
from oauthbroker.model.token_request import AppRef, app_name, concealed, parse_request
from oauthbroker.tokens.injected_calls import InjectedCalls
from oauthbroker.tokens.manager import OAuthManager
from oauthbroker.tokens.token_call import Caller

SYNC_SECONDS = 60.0


class OAuthContext:
    """Bound to a turn and limited to a tool's declared apps and scopes. The subject is the turn's and cannot be
    named."""

    __slots__ = ("_caller", "_locale", "_loop", "_manager")

    def __init__(
        self,
        manager: OAuthManager,
        caller: Caller,
        locale: Locale,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._manager = manager
        self._caller = caller
        self._locale = locale
        self._loop = loop

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a context belongs to a running broker: it is neither pickled nor copied")

    async def get_access_token(
        self,
        app: str | Mapping[str, str],
        scopes: Sequence[str] | None = None,
        min_ttl_seconds: int | None = None,
        *,
        switch_account: bool = False,
    ) -> TokenResult:
        """Return a token, a request for consent, or an error: `Ready`, `AuthorizationRequired` or `Failed`.

        `app` is `"OAuthApp/name"`, the bare name, or `{kind, name}`. `switch_account` is for the runtime: a tool gets
        `notAllowed`.
        """
        try:
            name = app_name(app)
        except BrokerError as error:
            return Failed.from_error(error, self._locale)
        caller = self._caller
        if switch_account is False and (caller.turn_holds is None or await caller.goes_on()):
            ready = self._manager.issue_again(caller, name, scopes, min_ttl_seconds)
            if ready is not None:
                return ready
        return await self._manager.get_access_token(
            caller, name, scopes, min_ttl_seconds, switch_account=switch_account
        )

    async def getAccessToken(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Do the same in the specification's form: JSON in, JSON out."""
        try:
            name, scopes, min_ttl = parse_request(request)
        except BrokerError as error:
            return Failed.from_error(error, self._locale).to_json()
        return (await self.get_access_token(f"OAuthApp/{name}", scopes, min_ttl)).to_json()

    async def report_rejected(
        self, app: str | Mapping[str, str], access_token: str | Secret, scopes: Sequence[str] | None = None
    ) -> TokenResult:
        """Report that the provider's API answered 401 to this token. Return a newer token if there is one or a refresh
        yields one, else as `get_access_token`."""
        try:
            name = app_name(app)
            token = concealed(access_token)
        except BrokerError as error:
            return Failed.from_error(error, self._locale)
        return await self._manager.report_rejected(self._caller, name, token, scopes)

    def injected_calls(self, app: AppRef, scopes: Sequence[str] | None = None) -> InjectedCalls:
        """Return the tokens for requests to an app's API that the broker sends. Raises `requestInvalid` for another
        reference. For the client and the proxy: a tool does not get them."""
        return InjectedCalls(self._manager, self._caller, app_name(app), scopes, self._locale)

    @property
    def sync(self) -> SyncOAuthContext:
        """Return the same interface for tools without `await`, in a worker thread. RuntimeError without an event
        loop."""
        if self._loop is None:
            raise RuntimeError("this context belongs to no event loop")
        return SyncOAuthContext(self, self._loop, self._locale)


class SyncOAuthContext:
    """`ctx.oauth` for a tool that runs in its own thread while the broker's event loop runs.

    `timeout` bounds each call in seconds. After it the call returns a retryable `brokerUnreachable`, and a refresh
    under way continues. On the loop's own thread a call raises RuntimeError, because it would deadlock.
    """

    __slots__ = ("_context", "_locale", "_loop")

    def __init__(self, context: OAuthContext, loop: asyncio.AbstractEventLoop, locale: Locale) -> None:
        self._context = context
        self._loop = loop
        self._locale = locale

    def get_access_token(
        self,
        app: str | Mapping[str, str],
        scopes: Sequence[str] | None = None,
        min_ttl_seconds: int | None = None,
        *,
        switch_account: bool = False,
        timeout: float = SYNC_SECONDS,
    ) -> TokenResult:
        """Call `OAuthContext.get_access_token`."""
        asked = self._context.get_access_token(app, scopes, min_ttl_seconds, switch_account=switch_account)
        return self._answer(asked, timeout)

    def getAccessToken(self, request: Mapping[str, Any], *, timeout: float = SYNC_SECONDS) -> dict[str, Any]:
        """Call `OAuthContext.getAccessToken`."""
        try:
            return wait_on(self._loop, self._context.getAccessToken(request), timeout)
        except BrokerError as error:
            return Failed.from_error(error, self._locale).to_json()

    def report_rejected(
        self,
        app: str | Mapping[str, str],
        access_token: str | Secret,
        scopes: Sequence[str] | None = None,
        *,
        timeout: float = SYNC_SECONDS,
    ) -> TokenResult:
        """Call `OAuthContext.report_rejected`."""
        return self._answer(self._context.report_rejected(app, access_token, scopes), timeout)

    def _answer(self, asked: Coroutine[Any, Any, TokenResult], timeout: float) -> TokenResult:
        try:
            return wait_on(self._loop, asked, timeout)
        except BrokerError as error:
            return Failed.from_error(error, self._locale)
