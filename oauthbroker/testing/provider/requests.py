"""Validate an authorization request (RFC 6749 section 4.1.1, RFC 7636), sent directly or pushed."""

from __future__ import annotations

import re

from oauthbroker.testing.provider.dialects import split_scopes
from oauthbroker.testing.provider.state import Pending
from oauthbroker.testing.provider.token_table import RefusedError
from oauthbroker.testing.provider.types import Client

_S256_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")


def validate(client: Client, redirect_uri: str, fields: list[tuple[str, str]]) -> Pending:
    """Return the request for the consent page. Raises RefusedError."""
    found = dict(fields)
    single = [name for name, _ in fields if name != "resource"]  # only this one may repeat (RFC 8707 section 2)
    if len(set(single)) != len(single):
        raise RefusedError("invalid_request", "a parameter is there twice")
    if found.get("response_type") != "code":
        raise RefusedError("unsupported_response_type", "only code")
    challenge = found.get("code_challenge", "")
    if client.pkce == "refused" and challenge:
        raise RefusedError("invalid_request", "PKCE is not offered")
    if client.pkce == "required" and not _has_s256(found):
        raise RefusedError("invalid_request", "PKCE with S256 is required")
    user_scopes = split_scopes(found.get("user_scope", "")) if client.dialect == "slack" else ()
    user_token = bool(user_scopes) and not found.get("scope")
    scopes = user_scopes if user_token else split_scopes(found.get("scope", ""))
    if client.scopes and not {*scopes, *user_scopes} <= client.scopes:
        raise RefusedError("invalid_scope", "not registered for this scope")
    again = "login" in found.get("prompt", "") or "select_account" in found.get("prompt", "")
    resources = tuple(value for name, value in fields if name == "resource")
    nonce, state = found.get("nonce", ""), found.get("state", "")
    return Pending(
        client=client,
        redirect_uri=redirect_uri,
        state=state,
        scopes=scopes,
        challenge=challenge,
        nonce=nonce,
        user_token=user_token,
        user_scopes=() if user_token else user_scopes,
        login_again=again,
        resources=resources,
    )


def _has_s256(found: dict[str, str]) -> bool:
    has_method = found.get("code_challenge_method") == "S256"
    return has_method and _S256_CHALLENGE.fullmatch(found.get("code_challenge", "")) is not None
