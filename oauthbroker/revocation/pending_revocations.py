"""Check pending revocations: who can tell a provider, in which order, and how the provider answered."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App
from oauthbroker.protocol.issued_tokens import IssuedTokens
from oauthbroker.protocol.revocation_messages import Hint
from oauthbroker.records import Grant, RefreshState, Retired, RevocationState, Token
from oauthbroker.repository.repository import Versioned
from oauthbroker.repository.versioned import PendingRevocation

RevocationOutcome = Literal["done", "refused", "none", "shared", "later"]
"""What the provider knows: it took note, it refused to (and is asked again for a week), it has no way to be told, it
is told when another living grant ends, which would have ended too, or it will be told later."""

KEPT: dict[RevocationOutcome, RevocationState] = {
    "done": "done",
    "refused": "refused",
    "shared": "shared",
    "none": "untold",
}
FURTHEST: tuple[RevocationOutcome, ...] = ("later", "refused", "none", "shared", "done")
_READ: dict[RevocationState, RevocationOutcome] = {kept: outcome for outcome, kept in KEPT.items()}


def can_tell(app: App | None, revocation: Grant | PendingRevocation) -> bool:
    """Return whether `app` is configured with the client that the tokens were issued to. During a reload, or
    after a mistyped client id, another worker may have it when this one does not."""
    return app is not None and app.at(revocation.params).registration == revocation.registration


def with_newer(there: Grant, seen: Grant, newer: Token) -> Grant:
    """Return the record with a tombstone's refreshed token. If a login has replaced the tombstone, it joins the other
    tokens to be revoked."""
    if there.token == seen.token:
        return replace(there, token=newer, refresh_state=RefreshState())
    late = Retired.of(newer.refresh_token, newer.access_token, there.updated_at)
    return there.owing(
        replace(late, registration=seen.registration, authorized_by=seen.authorized_by, params=seen.params)
    )


def outcome_by_others(versioned: Versioned[Grant] | None) -> RevocationOutcome:
    """Return the grant's state at the provider after another caller told it. A login that replaced the grant leaves
    nothing to tell."""
    if versioned is None or not versioned.record.revoked:
        return "done" if versioned is None or not versioned.record.revocation_pending else "later"
    return "later" if versioned.record.revocation_pending else _READ.get(versioned.record.revocation, "done")


def in_order(ended: Retired | IssuedTokens | None) -> list[tuple[Hint, Secret]]:
    """Return the tokens with their hints, refresh tokens first because they live longest."""
    refresh, access = (ended.refresh, ended.access) if ended is not None else ((), ())
    return [*(("refresh_token", token) for token in refresh), *(("access_token", token) for token in access)]
