"""Decide one token call: `decision`, with what the call asks for beside a token, and the limit of forced refreshes."""

from __future__ import annotations

from datetime import datetime, timedelta

from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.settings import Settings
from oauthbroker.records import Grant
from oauthbroker.refresh.job import is_due, may_refresh
from oauthbroker.repository.repository import Versioned
from oauthbroker.tokens.decision import (
    Decision,
    RefreshToken,
    Refuse,
    RequestConsent,
    UseToken,
    decide,
    is_early,
)
from oauthbroker.tokens.token_call import TokenCall


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDecisions:
    """Decides calls by the grant of their subject, or of the team."""

    settings: Settings
    clock: Clock

    def decide(self, call: TokenCall, grant: Grant | None) -> Decision:
        if call.switch_account and not call.need.alone:
            return RequestConsent("noGrant")
        now = self.clock.now()
        decision = decide(grant, call.need, now)
        if grant is None:
            return decision
        if isinstance(decision, UseToken) and not grant.fits_fields_of(call.app):
            return RequestConsent("noGrant")
        if call.claims and isinstance(decision, UseToken | RefreshToken) and self.is_rejected(call, grant):
            return RequestConsent("expired")
        if isinstance(decision, UseToken) and self.is_rejected(call, grant):
            if call.app.credential is not None:  # its `verify` request has just found it good
                return Refuse(Code.TOKEN_UNCHANGED)
            if not may_refresh(call.app, grant, now) and not call.need.alone:
                return RequestConsent("revoked")
            return self._forced(grant, now)
        if isinstance(decision, UseToken) and grant.renews_itself and is_due(call.app, grant, now):
            return RefreshToken()
        if isinstance(decision, RefreshToken) and is_early(grant, call.need, now):
            return self._forced(grant, now)
        return decision

    def is_superseded(self, call: TokenCall, versioned: Versioned[Grant] | None, newest: Grant | None) -> bool:
        """Return whether a consent or an import has replaced the grant during its refresh, and the new one has to be
        refreshed, too."""
        if versioned is None or newest is None or newest.consent == versioned.record.consent:
            return False
        return isinstance(self.decide(call, newest), RefreshToken)

    def needs_consent(self, call: TokenCall, grant: Grant | None) -> bool:
        decision = self.decide(call, grant)
        given_up = isinstance(decision, RefreshToken) and grant is not None and grant.refresh_state.given_up
        return isinstance(decision, RequestConsent) or given_up

    def _forced(self, grant: Grant, now: datetime) -> Decision:
        """Refresh a token that seems valid, up to the hourly limit: no tool may flood a provider."""
        hour = timedelta(hours=1)
        forced = grant.refresh_state.forced_before(now)
        if len(forced) >= self.settings.limits.rejections_per_hour:
            return Refuse(Code.RATE_LIMITED, max(1, int((forced[0] + hour - now).total_seconds())))
        return RefreshToken()

    def is_rejected(self, call: TokenCall, grant: Grant | None) -> bool:
        """Return whether the grant still has the token that was reported."""
        token = grant.token if grant is not None else None
        return call.rejected is not None and token is not None and token.access_token == call.rejected


def refusal(refuse: Refuse, *, is_replaced: bool) -> BrokerError:
    if is_replaced and not refuse.code.retryable:  # perhaps a pause that concerns the replaced grant
        return BrokerError(Code.REFRESH_IN_PROGRESS, retry_after_seconds=1)
    return BrokerError(refuse.code, retry_after_seconds=refuse.retry_after_seconds)
