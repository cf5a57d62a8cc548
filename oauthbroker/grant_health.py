"""How a grant is doing, for the people who look at it: does it work, does it end soon, must somebody agree again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from oauthbroker.apps import OAuthApp
from oauthbroker.records import Grant

State = Literal["alive", "ending", "again", "ended"]
SOON_SECONDS = 24 * 3600


@dataclass(frozen=True, slots=True)
class GrantHealth:
    """`alive`, `ending` (soon, and nothing renews it), `again` (a person has to agree again) or `ended` (revoked).

    `until` is the end of a token that nothing renews; None where there is no such end, or nobody knows it.
    """

    state: State
    until: datetime | None = None


def health_of(grant: Grant, app: OAuthApp | None, now: datetime) -> GrantHealth:
    """Judged like a token call would be (docs/embedding.md), as if it asked for nothing in particular.

    `app` is None when it is not configured any more: then the grant is judged for itself.
    """
    token = grant.token
    if grant.revoked:
        return GrantHealth("ended")
    if token is None or grant.renewal.ended == "quarantined":
        return GrantHealth("again")
    if app is not None and app.registration != grant.registration:
        return GrantHealth("again")
    if grant.flow == "client_credentials" or grant.refresh_tokens or token.expires_at is None:
        return GrantHealth("alive")
    if not token.lives(0, now):
        return GrantHealth("again", None if token.end_is_unknown else token.expires_at)
    soon = not token.lives(SOON_SECONDS, now)
    return GrantHealth("ending" if soon else "alive", token.expires_at)
