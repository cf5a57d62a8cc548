"""`ctx.oauth`: the manager as one turn and one tool may see it (specification 12.5.1)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, NoReturn

from oauthbroker.bridge import wait_on
from oauthbroker.errors import BrokerError, Locale
from oauthbroker.manager import OAuthManager
from oauthbroker.results import Failed, TokenResult
from oauthbroker.secret import Secret
from oauthbroker.token_call import Caller
from oauthbroker.token_request import app_name, concealed, parse_request

SYNC_SECONDS = 60.0


class OAuthContext:
    """Bound to a turn and narrowed to what a tool declared. A subject cannot be named here: it is the turn's."""

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
        """`app` is `"OAuthApp/name"`, the bare name, or `{kind, name}`. Ready, AuthorizationRequired or Failed.
        `switch_account` is the runtime's own: from a tool `notAllowed`."""
        try:
            name = app_name(app)
        except BrokerError as error:
            return Failed.from_error(error, self._locale)
        return await self._manager.get_access_token(
            self._caller, name, scopes, min_ttl_seconds, switch_account=switch_account
        )

    async def getAccessToken(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The same call in the specification's own form: JSON in, JSON out."""
        try:
            name, scopes, min_ttl = parse_request(request)
        except BrokerError as error:
            return Failed.from_error(error, self._locale).to_json()
        return (await self._manager.get_access_token(self._caller, name, scopes, min_ttl)).to_json()

    async def report_rejected(
        self, app: str | Mapping[str, str], access_token: str | Secret, scopes: Sequence[str] | None = None
    ) -> TokenResult:
        """The provider's API answered 401 to this token: a newer one if there is or can be one, else as above."""
        try:
            name = app_name(app)
            token = concealed(access_token)
        except BrokerError as error:
            return Failed.from_error(error, self._locale)
        return await self._manager.report_rejected(self._caller, name, token, scopes)

    @property
    def sync(self) -> SyncOAuthContext:
        """The same for tools without `await`, in a worker thread. RuntimeError where nobody told which loop it is."""
        if self._loop is None:
            raise RuntimeError("this context belongs to no event loop")
        return SyncOAuthContext(self, self._loop, self._locale)


class SyncOAuthContext:
    """`ctx.oauth` for a tool that runs in a thread of its own while the broker's event loop goes on.

    `timeout` bounds each call in seconds; what takes longer answers a retryable `brokerUnreachable`, while a renewal
    under way goes on. On the loop's own thread a call raises RuntimeError: it would wait for itself.
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
        """As `OAuthContext.get_access_token`."""
        asked = self._context.get_access_token(app, scopes, min_ttl_seconds, switch_account=switch_account)
        return self._answer(asked, timeout)

    def getAccessToken(self, request: Mapping[str, Any], *, timeout: float = SYNC_SECONDS) -> dict[str, Any]:
        """As `OAuthContext.getAccessToken`."""
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
        """As `OAuthContext.report_rejected`."""
        return self._answer(self._context.report_rejected(app, access_token, scopes), timeout)

    def _answer(self, asked: Coroutine[Any, Any, TokenResult], timeout: float) -> TokenResult:
        try:
            return wait_on(self._loop, asked, timeout)
        except BrokerError as error:
            return Failed.from_error(error, self._locale)
