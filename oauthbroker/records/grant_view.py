"""GrantView: the one projection of a grant, for lists, pages, the diagnostics and the API. It holds no token."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.model.apps import App
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.static_credential import FLOW
from oauthbroker.model.turn_titles import agent_title
from oauthbroker.records.grant import Grant
from oauthbroker.records.provider_data import visible_to_tools
from oauthbroker.records.refresh_state import Ended
from oauthbroker.records.unrevoked_tokens import parts_of

GrantHealth = Literal["alive", "ending", "again", "ended"]
"""`alive`, `ending` (soon, and nothing refreshes it), `again` (a person has to agree again) or `ended` (revoked)."""
SOON_SECONDS = 24 * 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantView:
    """One grant, checked at one moment.

    `until` is the end of a token that nothing refreshes, None where it has no end or an unknown one. `identity` is the
    provider's name for the user, `account_name` what people call the account, `agent` the agent that asked last.
    `alone` marks a client's own grant, without a user. `lost` counts answers to refreshes that never came.
    `clients_to_tell` are registrations with tokens to revoke. `unverified`: imported, its account not confirmed by its
    provider. `used_at` is only set by readers that look it up. `given_up`: its refresh token is kept, and the user is
    asked. `gives_no_time`: its newest token had ended when it came. `ends_at` is when it ends although it is refreshed.
    `endings` are the last characters of a static credential's values, by the titles of its fields, `slots` those that
    have one: `credential`, or `credential next`.
    """

    app: str
    provider: str
    registration: str
    subject: str
    account: str
    label: str
    account_name: str
    identity: str | None
    authorized_by: str | None
    scopes: tuple[str, ...]
    unlisted: tuple[str, ...]
    unusual: tuple[str, ...]
    agent: str | None
    agent_title: str | None
    health: GrantHealth
    until: datetime | None
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None
    refreshable: bool
    ends_at: datetime | None = None
    alone: bool
    imported: bool
    unverified: bool
    revoked: bool
    revocation_pending: bool
    unsent: int
    ended: Ended
    lost: int
    refused_at: datetime | None
    given_up: bool
    token_lives: bool
    gives_no_time: bool = False
    provider_data: Mapping[str, Any]
    used_at: datetime | None = None
    clients_to_tell: tuple[str, ...] = ()
    slots: str = ""
    endings: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, grant: Grant, app: App | None, now: datetime, used_at: datetime | None = None) -> GrantView:
        """Project a grant. `app` is None where it is not configured, or its client id is not at hand: then the grant
        is checked for itself."""
        app = None if app is None else app.at(grant.params)
        token, refresh, resume = grant.token, grant.refresh_state, grant.resume
        health, until = _health_of(grant, app, now)
        return cls(
            app=grant.app,
            provider=grant.provider,
            registration=grant.registration,
            subject=grant.subject,
            account=grant.account,
            label=grant.label,
            account_name=grant.account_name,
            identity=grant.identity,
            authorized_by=grant.authorized_by,
            scopes=grant.scopes,
            unlisted=grant.unlisted,
            unusual=grant.unusual,
            agent=resume.agent_name if resume is not None else None,
            agent_title=agent_title(resume) if resume is not None else None,
            health=health,
            until=until,
            created_at=grant.created_at,
            updated_at=grant.updated_at,
            expires_at=token.expires_at if token is not None else None,
            refreshable=_is_refreshable(grant),
            ends_at=grant.ends.at if grant.ends is not None and grant.ends_by_itself else None,
            alone=grant.flow == "client_credentials",
            imported=bool(grant.imported),
            unverified=grant.unverified and not grant.revoked,
            revoked=grant.revoked,
            revocation_pending=grant.revocation_pending,
            unsent=len(grant.outbox),
            ended=refresh.ended,
            lost=refresh.intent.lost if refresh.intent is not None else 0,
            refused_at=refresh.refused_at,
            given_up=refresh.given_up,
            token_lives=token is not None and token.lives(0, now),
            gives_no_time=token is not None and token.lifetime_seconds == 0,
            provider_data=visible_to_tools(app, grant),
            used_at=used_at,
            clients_to_tell=tuple(part.registration for part in parts_of(grant)),
            slots=_slots_of(grant),
            endings=_endings_of(grant, app),
        )

    @property
    def id(self) -> str:
        return self.key.id

    @property
    def key(self) -> GrantKey:
        return GrantKey(self.app, self.subject, self.account)

    @property
    def person(self) -> str:
        """Who agreed, as far as it is known."""
        return self.authorized_by or self.subject


def _endings_of(grant: Grant, app: App | None) -> Mapping[str, str]:
    if app is None or app.credential is None or grant.token is None or grant.flow != FLOW:
        return {}
    return app.credential.endings(grant.token.access_token)


def _slots_of(grant: Grant) -> str:
    """Return the slots of a static credential that have one. Empty for a grant of tokens."""
    if grant.kind == "OAuthApp" or grant.token is None:
        return ""
    return "credential" if grant.next_credential is None else "credential next"


def _is_refreshable(grant: Grant) -> bool:
    return bool(grant.refresh_tokens) and not grant.refresh_state.given_up


def _health_of(grant: Grant, app: App | None, now: datetime) -> tuple[GrantHealth, datetime | None]:
    """Check a grant as a token call would (docs/embedding.md), as if it asked for nothing in particular."""
    token = grant.token
    if grant.revoked:
        return "ended", None
    if token is None or grant.refresh_state.ended == "quarantined" or grant.needs_choice or grant.rejected:
        return "again", None
    if app is not None and not (app.registration == grant.registration and grant.fits_fields_of(app)):
        return "again", None
    ends = grant.ends
    if ends is not None and _is_refreshable(grant):
        return ("ending" if ends.is_near(now) else "alive"), ends.at
    if grant.flow == "client_credentials" or token.expires_at is None or _is_refreshable(grant):
        return "alive", None
    unsure = grant.refresh_state.ended and token.is_from_the_future(now, grant.updated_at)
    if unsure or not token.lives(0, now):
        return "again", None if token.end_is_unknown else token.expires_at
    return "alive" if token.lives(SOON_SECONDS, now) else "ending", token.expires_at
