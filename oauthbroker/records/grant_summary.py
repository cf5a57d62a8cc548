"""GrantSummary: a GrantView as the API and `broker.grants` spell it, in Python and in JSON."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from oauthbroker.core.clock import LONG_AGO, from_iso, printed
from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.records.grant_view import GrantView

_LEFT_OUT = ("account", "label", "accountName", "slots")  # where there is none: of tokens, of an unnamed account
Needs = Literal["consent", "refresh"]
GrantState = Literal["live", "revoked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantSummary:
    """One grant without its tokens.

    `needs` is the step before a tool can get a token: `consent`, the user consents again; `refresh`, the next call
    refreshes it; None, none. `endsAt` is when the grant ends although it is refreshed, as far as that is known.
    `expiresAt` is None for a token that never expires and for an unknown end; the latter
    needs a refresh. `refreshable`: there is a refresh token or another way to refresh. `unverified`: it was imported,
    and its provider has not confirmed the account. `accountName` is what people call the provider's account. `slots`,
    of a static credential: `credential`, or `credential next`.
    """

    grantId: str
    app: str
    provider: str
    subject: str
    scopes: tuple[str, ...]
    state: GrantState
    needs: Needs | None
    expiresAt: str | None
    endsAt: str | None = None
    refreshable: bool
    createdAt: str
    updatedAt: str
    account: str = ""
    label: str = ""
    accountName: str = ""
    slots: str = ""
    authorizedBy: str | None
    eventsToSend: int
    providerToTell: bool
    providerData: Mapping[str, Any]
    unverified: bool = False
    created_at: datetime = field(compare=False, repr=False)  # exact, for sorting

    @property
    def unended(self) -> bool:
        """Tell whether the grant or its tokens can still be revoked, here or at the provider."""
        return self.state == "live" or self.providerToTell

    @property
    def key(self) -> GrantKey:
        """Return app, subject and account, which name the grant."""
        return GrantKey(self.app, self.subject, self.account)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON of `GET /v1/grants`, without empty members that an app rarely has."""
        body = {name: getattr(self, name) for name in self.__slots__ if name != "created_at"}
        return {name: value for name, value in body.items() if value or name not in _LEFT_OUT}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> GrantSummary:
        """Parse the form of `to_json`, for the client. Raises KeyError."""
        later = {"created_at", "providerData", "unverified", "endsAt", *_LEFT_OUT}  # an older broker lacks them
        said = {name: data[name] for name in cls.__slots__ if name not in later}
        return cls(
            **{**said, "scopes": tuple(said["scopes"])},
            providerData=data.get("providerData", {}),
            unverified=data.get("unverified", False),
            endsAt=data.get("endsAt"),
            **{name: data.get(name, "") for name in _LEFT_OUT},
            created_at=from_iso(said["createdAt"]),
        )

    @classmethod
    def of(cls, view: GrantView) -> GrantSummary:
        """Return the summary of a grant's view."""
        expires_at = None if view.expires_at == LONG_AGO else view.expires_at
        return cls(
            grantId=view.id,
            app=view.app,
            provider=view.provider,
            subject=view.subject,
            scopes=view.scopes,
            state="revoked" if view.revoked else "live",
            needs=_needs(view),
            expiresAt=printed(expires_at) if expires_at is not None else None,
            endsAt=printed(view.ends_at) if view.ends_at is not None else None,
            refreshable=view.refreshable,
            createdAt=printed(view.created_at),
            updatedAt=printed(view.updated_at),
            account=view.account,
            label=view.label,
            accountName=view.account_name,
            slots=view.slots,
            authorizedBy=view.authorized_by,
            eventsToSend=view.unsent,
            providerToTell=view.revocation_pending,
            providerData=view.provider_data,
            unverified=view.unverified,
            created_at=view.created_at,
        )


def _needs(view: GrantView) -> Needs | None:
    if view.health == "again":
        return "consent"
    return None if view.revoked or view.token_lives else "refresh"
