"""Redeem a grant's refresh token for a new access token, and validate the answer."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass, replace
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App, Endpoints
from oauthbroker.model.owner_check import OwnerFacts, check_owner, check_same_owner
from oauthbroker.model.scope_ceiling import granted_scopes
from oauthbroker.protocol.access_exchange import exchange_of, exchange_request, next_token_of
from oauthbroker.protocol.client_requests import ClientRequests
from oauthbroker.protocol.identity import OwnerReader
from oauthbroker.protocol.messages import ProviderRequest
from oauthbroker.protocol.network.crash_guard import crashed
from oauthbroker.protocol.network.transport import TransportFailed
from oauthbroker.protocol.refresh_messages import RefreshRefused, refresh_request, refresh_response
from oauthbroker.protocol.token_endpoint import TokenResponse
from oauthbroker.records import Grant, Token
from oauthbroker.records.provider_data import kept_facts
from oauthbroker.records.refresh_end import RefreshEnd, next_end


@dataclass(frozen=True, slots=True, kw_only=True)
class Redeemed:
    """The changes of one valid answer to a grant. `refresh_token` is the one in the answer, or None; if the result
    is not used, revoke it with the access token. `verified`: the provider named the owner of an unverified grant.
    `unusual`: of the form of its answer."""

    token: Token
    scopes: tuple[str, ...]
    refresh_token: Secret | None
    provider_data: Mapping[str, Any]
    verified: bool = False
    unusual: tuple[str, ...] = ()
    ends: RefreshEnd | None = None


class MaySend(Protocol):
    """Tell whether a refresh token may be sent now. It is asked right before the request."""

    async def __call__(self, secret: Secret) -> bool: ...


@dataclass(frozen=True, slots=True)
class Redeemer:
    """Redeems refresh tokens. It stores nothing; the caller writes the result down."""

    asker: ClientRequests
    owners: OwnerReader
    clock: Clock

    async def redeem(self, app: App, endpoints: Endpoints, grant: Grant, may_send: MaySend) -> Redeemed | None:
        """Send the newest refresh token that the provider accepts. The new token's lifetime counts from the sending.
        None as soon as `may_send`, which is asked before each request, forbids it.

        Raises what `may_send` raises, and else `RefreshRefused` alone: what `refresh_response` raises;
        `providerUnreachable` without an answer; `subjectMismatch`, `idTokenInvalid`, `scopeExceeded`,
        `tokenUnchanged` for what `_validate` refuses.
        """
        refused: RefreshRefused | None = None
        for secret in grant.refresh_tokens:
            if not await may_send(secret):
                return None
            sent_at = self.clock.now()
            try:
                tokens = await self._ask(app, endpoints, grant, secret)
                return await self._validate(app, grant, tokens, secret, sent_at)
            except RefreshRefused as error:
                refused = error
            if refused.code is not Code.REAUTH_REQUIRED:
                break
        refused = refused or RefreshRefused(Code.REAUTH_REQUIRED, spent=False)
        raise refused.with_traceback(None)  # its frames hold the answer

    async def _ask(self, app: App, endpoints: Endpoints, grant: Grant, secret: Secret) -> TokenResponse:
        way = exchange_of(app, grant)

        def build(known: App) -> ProviderRequest:
            if way is not None:
                return exchange_request(known, endpoints, way, secret)
            return refresh_request(known, endpoints, secret, clock=self.clock, scopes=grant.scopes)

        try:
            answer = await self.asker.ask(app, build, kind="refresh")
        except TransportFailed as failed:
            refused = RefreshRefused(failed.code, spent=failed.sent, note=failed.note, reached=failed.sent)
        except BrokerError as error:
            refused = RefreshRefused(error.code, spent=False, note=error.note, reached=False)
        else:
            return refresh_response(app, answer, worked=grant.refresh_state.worked)
        raise refused

    async def _validate(
        self, app: App, grant: Grant, tokens: TokenResponse, sent: Secret, sent_at: datetime
    ) -> Redeemed:
        """Validate the answer: (1) the same owner (2) no scope beyond the app's (3) no ended token without a new end.

        Values that the answer does not repeat are kept: refresh token (RFC 6749 section 6), lifetime, scopes.
        """
        old = grant.token
        try:
            facts = await self.owners.read_again(app, tokens, sent_at)
            check_same_owner(app, grant.key, grant.pinned, grant.authorized_by, facts)  # (1)
            scopes, _ = granted_scopes(app, grant.scopes, tokens.scopes)  # (2)
            _check_not_ended(old, tokens, sent_at)  # (3)
            verified = grant.unverified and await self._verifies(app, grant, tokens, facts)
        except BrokerError as error:
            refused = _refused(tokens, error)
        except Exception as error:  # noqa: BLE001 - the tokens that came along must not be lost with it
            refused = _refused(tokens, crashed(error))
        else:
            if tokens.lifetime_seconds is None and old is not None:
                tokens = replace(tokens, lifetime_seconds=old.lifetime_seconds)
            following = next_token_of(app, tokens, is_first=False) or (None if grant.renews_itself else sent)
            token = tokens.token(sent_at, following)
            data, fresh = kept_facts(app, tokens.facts), tokens.refresh_token
            ends = next_end(grant.ends, token, tokens.ends, sent_at)
            return Redeemed(
                token=token,
                scopes=scopes,
                refresh_token=fresh,
                provider_data=data,
                verified=verified,
                unusual=tokens.unusual,
                ends=ends,
            )
        raise refused

    async def _verifies(self, app: App, grant: Grant, tokens: TokenResponse, facts: OwnerFacts) -> bool:
        """Tell whether the provider names the owner of an unverified grant: in its answer, which was compared, or asked
        now. A provider that cannot say it now is asked again at the next refresh. Raises `subjectMismatch`."""
        if (facts.global_identity if app.subject_mode == "global" else facts.user_identity) is not None:
            return True
        try:
            asked = await self.owners.ask(app, tokens.access_token)
            if asked is None:
                return False
            check_owner(app, grant.subject, asked, confirmed=True, account=grant.account)
        except BrokerError as error:
            if error.code is Code.SUBJECT_MISMATCH:
                raise
            return False
        return True


def _refused(tokens: TokenResponse, error: BrokerError) -> RefreshRefused:
    spare, access = tokens.refresh_token, tokens.access_token
    return RefreshRefused(error.code, spent=True, note=error.note, spare=spare, access=access)


def _check_not_ended(old: Token | None, came: TokenResponse, now: datetime) -> None:
    """Refuse the token that has ended, by the provider's own statement, and that comes back without a new end. Where we
    only assumed that end, the provider's answer overrules it, and we assume the next one."""
    if old is None or came.access_token != old.access_token or old.lives(0, now):
        return
    if came.lifetime_seconds == 0 if came.end_stated else old.end_stated:
        raise BrokerError(Code.TOKEN_UNCHANGED, note="the token that has ended came back, without a new end")
