"""Nouns for tests that need no harness: an app, a turn, a grant, a session, made in one line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from oauthbroker import Turn, TurnAuth
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App, Client, Endpoints, IdentityRule, Owner, Redirect
from oauthbroker.records import Attempt, AuthSession, Grant, Token

NOW = datetime(2026, 1, 31, 9, 10, 1, tzinfo=UTC)


def app_with(**changes: Any) -> App:
    """An app in user mode at a provider that is never called."""
    fields: dict[str, Any] = {
        "name": "mail",
        "provider": "acme",
        "flow": "authorizationCode",
        "subject_mode": "user",
        "client": Client("an-id", Secret("a-client-secret")),
        "endpoints": Endpoints(
            authorization_url="https://acme.example/authorize", token_url="https://acme.example/token"
        ),
        "scopes": ("read", "write"),
        "redirect": Redirect("/oauth/callback/mail", "https://broker.example"),
        "owner": Owner(user_identity=IdentityRule("tokenResponse", "acme:user:{user.id}")),
    }
    return App(**{**fields, **changes})


def turn_with(**subjects: str) -> Turn:
    """A turn for these subjects: `turn_with(user="acme:user:1")`."""
    return Turn("planner", "1700000000.000100", auth=TurnAuth({"type": "user", "id": "chat:U1"}, subjects))


def token_with(lives: float | None = 3600, lifetime: int | None = 3600, **changes: Any) -> Token:
    """A token that lives `lives` seconds from NOW (None: for ever) and was issued for `lifetime`."""
    expires = None if lives is None else NOW + timedelta(seconds=lives)
    fields: dict[str, Any] = {"refresh_token": None, "expires_at": expires, "lifetime_seconds": lifetime}
    return Token(access_token=Secret("an-access-token"), token_type="bearer", **{**fields, **changes})


def grant_with(**changes: Any) -> Grant:
    fields: dict[str, Any] = {
        "app": "mail",
        "provider": "acme",
        "subject": "acme:user:1",
        "flow": "authorization_code",
        "scopes": ("read",),
        "token": token_with(),
        "created_at": NOW,
        "updated_at": NOW,
    }
    return Grant(**{**fields, **changes})


def session_with(**changes: Any) -> AuthSession:
    locator = "L" * 22
    attempt = Attempt(
        state=Secret(locator + "s" * 43), challenge="c" * 43, verifier=Secret("v" * 43), nonce=Secret("n" * 43)
    )
    fields: dict[str, Any] = {
        "locator": locator,
        "app": "mail",
        "provider": "acme",
        "subject_mode": "user",
        "subject": "acme:user:1",
        "scopes": ("read",),
        "resume": turn_with(user="acme:user:1").resume_target,
        "ticket": Secret(locator + "t" * 43),
        "attempt": attempt,
        "created_at": NOW,
        "expires_at": NOW + timedelta(seconds=600),
        "config_digest": "d" * 32,
    }
    return AuthSession(**{**fields, **changes})
