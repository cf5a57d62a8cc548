"""Tokens for the requests that the broker sends for a caller, who never gets them."""

from __future__ import annotations

from collections.abc import Sequence

from oauthbroker.audit import InjectedAnswer
from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.core.errors import BrokerError, Locale
from oauthbroker.core.secret import Secret
from oauthbroker.injection.targets import Target, target_at, target_of
from oauthbroker.model.apps import App
from oauthbroker.model.subject import resolve_key
from oauthbroker.model.token_request import split_ref
from oauthbroker.model.token_results import Failed, Ready, TokenResult
from oauthbroker.records import grant_id
from oauthbroker.tokens.issuance import Carrier, words_of
from oauthbroker.tokens.manager import OAuthManager
from oauthbroker.tokens.token_call import Caller


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectedCalls:
    """The requests of one caller to one app's API. The same turn, scopes, limits and audit log as for a token call."""

    manager: OAuthManager
    caller: Caller
    app_name: str
    scopes: Sequence[str] | None
    locale: Locale
    _grants: list[str] = field(default_factory=list)

    @property
    def base_url(self) -> str:
        """Return where a client's relative addresses begin. Empty for an unknown app: its requests are refused."""
        app = self.manager.calls.apps.get(split_ref(self.app_name)[0])
        return app.api.base_url if app is not None else ""

    def target(self, method: str, url: str) -> Target:
        """Check a request. Raises the codes of a token call, and those of `target_of`."""
        return target_of(self._app, method, url)

    def target_at(self, method: str, authority: str, path: str) -> Target:
        """Check a request as `target_at` does. Raises the codes of a token call, too."""
        return target_at(self._app, method, authority, path)

    async def token(self, target: Target) -> TokenResult:
        """Return a token for a request, or why there is none. It must not reach the caller."""
        carrier = Carrier(target.method, target.host.authority)
        if self.caller.issued and self.caller.turn_holds is None:
            words = words_of(self.app_name, self.scopes, None, carrier)
            issuance = self.manager.issuer.reissue(self.caller, words)
            if issuance is not None:
                return self._fitting(target, issuance.fresh())
        result = await self.manager.get_access_token(self.caller, self.app_name, self.scopes, carrier=carrier)
        return self._fitting(target, result)

    async def rejected(self, target: Target, token: Secret, demanded: frozenset[str], claims: str) -> TokenResult:
        """Report that the provider answered 401 to a token, and which scopes and claims it demanded. Return another
        token, or why there is none."""
        carrier = Carrier(target.method, target.host.authority)
        result = await self.manager.report_rejected(
            self.caller, self.app_name, token, self.scopes, carrier=carrier, demanded=demanded, claims=claims
        )
        return self._fitting(target, result)

    def answered(self, target: Target, status: int, sent: int, received: int) -> None:
        """Write into the audit log that the API has answered."""
        caller, host = self.caller, target.host.authority
        entry = InjectedAnswer(
            app=target.app.name,
            grant=self.account(target),
            agent=caller.turn.agent_name,
            tool=caller.tool,
            method=target.method,
            host=host,
            status=status,
            sent=sent,
            received=received,
            turn=caller.turn_id,
            instance=caller.turn.instance_key,
        )
        self.manager.audit.write(entry, self.manager.clock.now())

    def account(self, target: Target) -> str:
        """Return the grant's id, as it was first resolved: a runtime may change the turn during a request."""
        if not self._grants:
            key = resolve_key(target.app, self.caller.turn, split_ref(self.app_name)[1])
            self._grants.append(grant_id(*key))
        return self._grants[0]

    def _fitting(self, target: Target, result: TokenResult) -> TokenResult:
        """Refuse a token of another account than the target's."""
        if not isinstance(result, Ready):
            return result
        try:
            target.check_account(result.provider_data)
        except BrokerError as error:
            return Failed.from_error(error, self.locale)
        return result

    @property
    def _app(self) -> App:
        """Return the app, after the caller was checked as for a token call."""
        call = self.manager.calls.validate(self.caller, self.app_name, self.scopes, carrier=Carrier("", ""))
        return call.app
