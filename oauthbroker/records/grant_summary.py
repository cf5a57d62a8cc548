"""GrantSummary: a grant as operators see it, here and through the API. Never a token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Literal

from oauthbroker.apps import OAuthApp
from oauthbroker.clock import from_iso, printed
from oauthbroker.grant_health import health_of
from oauthbroker.records import Grant
from oauthbroker.records.provider_data import told_to_tools

Needs = Literal["consent", "renewal"]


@dataclass(frozen=True, slots=True)
class GrantSummary:
    """One grant without its tokens.

    `needs` is what has to happen before a tool gets a token: `consent`, a person agrees again; `renewal`, the next call
    renews it; None, nothing. `expiresAt` is None for a token that never ends and for one whose end nobody knows; that
    one needs a renewal. `refreshable`: there is something to renew it with.
    """

    grantId: str
    app: str
    provider: str
    subject: str
    scopes: tuple[str, ...]
    state: str
    needs: Needs | None
    expiresAt: str | None
    refreshable: bool
    createdAt: str
    updatedAt: str
    authorizedBy: str | None
    eventsToSend: int
    providerToTell: bool
    providerData: Mapping[str, Any]
    created_at: datetime = field(compare=False, repr=False)  # exact, for sorting

    @property
    def unended(self) -> bool:
        """There is something to end: here, or at the provider."""
        return self.state == "live" or self.providerToTell

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "created_at"}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> GrantSummary:
        """The inverse of `to_json`, for the client. Raises KeyError."""
        said = {name: data[name] for name in cls.__slots__ if name not in {"created_at", "providerData"}}
        return cls(
            **{**said, "scopes": tuple(said["scopes"])},
            providerData=data.get("providerData", {}),
            created_at=from_iso(said["createdAt"]),
        )

    @classmethod
    def of(cls, grant: Grant, app: OAuthApp | None, now: datetime) -> GrantSummary:
        """`app` is None where it is not configured, or its client id is not at hand: then the grant is judged for
        itself."""
        token = grant.token
        expires_at = token.expires_at if token is not None and not token.end_is_unknown else None
        return cls(
            grantId=grant.id,
            app=grant.app,
            provider=grant.provider,
            subject=grant.subject,
            scopes=grant.scopes,
            state="revoked" if grant.revoked else "live",
            needs=_needs(grant, app, now),
            expiresAt=printed(expires_at) if expires_at is not None else None,
            refreshable=bool(grant.refresh_tokens),
            createdAt=printed(grant.created_at),
            updatedAt=printed(grant.updated_at),
            authorizedBy=grant.authorized_by,
            eventsToSend=len(grant.outbox),
            providerToTell=grant.to_be_told,
            providerData=told_to_tools(app, grant),
            created_at=grant.created_at,
        )


def _needs(grant: Grant, app: OAuthApp | None, now: datetime) -> Needs | None:
    """Judged as the pages judge it."""
    health = health_of(grant, app, now)
    if health.state == "again":
        return "consent"
    alive = grant.token is None or grant.token.lives(0, now)
    return None if health.state == "ended" or alive else "renewal"
