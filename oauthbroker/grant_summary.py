"""GrantSummary: a grant as operators see it, here and through the API. Never a token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from oauthbroker.clock import to_iso
from oauthbroker.records import Grant


@dataclass(frozen=True, slots=True)
class GrantSummary:
    """One grant without its tokens."""

    grantId: str
    app: str
    provider: str
    subject: str
    scopes: tuple[str, ...]
    state: str
    expiresAt: str | None
    refreshable: bool
    createdAt: str
    updatedAt: str
    authorizedBy: str | None
    eventsToSend: int
    providerToTell: bool

    @property
    def unended(self) -> bool:
        """There is something to end: here, or at the provider."""
        return self.state == "live" or self.providerToTell

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> GrantSummary:
        """The inverse of `to_json`, for the client. Raises KeyError."""
        said = {name: data[name] for name in cls.__slots__}
        return cls(**{**said, "scopes": tuple(said["scopes"])})

    @classmethod
    def of(cls, grant: Grant) -> GrantSummary:
        token = grant.token
        return cls(
            grantId=grant.id,
            app=grant.app,
            provider=grant.provider,
            subject=grant.subject,
            scopes=grant.scopes,
            state="revoked" if grant.revoked else "live",
            expiresAt=to_iso(token.expires_at) if token is not None and token.expires_at is not None else None,
            refreshable=token is not None and token.refresh_token is not None,
            createdAt=to_iso(grant.created_at),
            updatedAt=to_iso(grant.updated_at),
            authorizedBy=grant.authorized_by,
            eventsToSend=len(grant.outbox),
            providerToTell=grant.to_be_told,
        )
