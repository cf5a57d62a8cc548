"""One request for a refresh: which grant, and what its caller saw of it."""

from __future__ import annotations

from datetime import datetime

from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App
from oauthbroker.model.grant_key import GrantKey, grant_id
from oauthbroker.protocol.access_exchange import exchange_of, is_old_enough
from oauthbroker.records import Grant
from oauthbroker.repository.repository import Versioned


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshJob:
    """`seen` is the grant as its caller read it, None where there was none.

    `rejected` is an access token that the provider's API refused. `early` asks for a new token long before the end of
    the present one.
    """

    app: App
    key: GrantKey
    seen: Versioned[Grant] | None
    rejected: Secret | None = None
    early: bool = False

    @property
    def grant(self) -> str:
        """The id of the grant: a pseudonym that logs may hold."""
        return grant_id(*self.key)

    @property
    def forced(self) -> bool:
        """Whether the present token seems to live. Such refreshes are counted and limited."""
        return self.rejected is not None or self.early

    def settled_by(self, newest: Versioned[Grant] | None) -> bool:
        """Return whether another caller has refreshed, ended or replaced the grant since it was `seen`."""
        if newest is None or self.seen is None:
            return newest is not self.seen
        now, before = newest.record, self.seen.record
        if self.rejected is not None:
            return now.token is None or now.token.access_token != self.rejected
        return (now.token, now.revoked, now.refresh_state.ended, now.refresh_state.rests_until) != (
            before.token,
            before.revoked,
            before.refresh_state.ended,
            before.refresh_state.rests_until,
        )

    def can_send(self, newest: Grant, now: datetime) -> bool:
        """Return whether there is a refresh token, issued to the client that the app has now."""
        return newest.registration == self.app.registration and may_refresh(self.app, newest, now)


def may_refresh(app: App, grant: Grant, now: datetime) -> bool:
    """Return whether there is a refresh token, or an access token that is exchanged itself and old enough for it."""
    if not grant.renews_itself:
        return bool(grant.refresh_tokens)
    way = exchange_of(app, grant)
    return way is not None and bool(grant.refresh_tokens) and is_old_enough(way, grant, now)


def is_due(app: App, grant: Grant, now: datetime) -> bool:
    """Return whether a living access token is to be exchanged: the first one at once, a later one when half its life is
    over. After its end nothing could be exchanged, and an agent may not come back in its last minutes."""
    token = grant.token
    if token is None or not grant.renews_itself or not may_refresh(app, grant, now):
        return False
    return grant.exchange_due or not token.lives((token.lifetime_seconds or 0) / 2, now)
