"""Authorization requests (RFC 6749 section 4.1.1, RFC 7636), sent directly or pushed (RFC 9126)."""

from __future__ import annotations

import re
import secrets
from datetime import timedelta

from oauthbroker.testing.provider.client_auth import authenticate, check_repeated, form_of
from oauthbroker.testing.provider.dialects import refusal, split_scopes
from oauthbroker.testing.provider.http import Answer, Request, json_answer
from oauthbroker.testing.provider.state import Pending, Pushed, State
from oauthbroker.testing.provider.token_table import RefusedError
from oauthbroker.testing.provider.types import Client

_S256_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")
_LIFETIME = 60
_CREDENTIALS = frozenset({"client_secret", "client_assertion", "client_assertion_type"})


def push(state: State, request: Request) -> Answer:
    """`POST /par` (section 2): authenticate the client, and validate the parameters as at `/authorize`."""
    try:
        form = form_of(request)
        client = authenticate(state, request, form)
        fields = [pair for pair in request.form_fields if pair[0] not in _CREDENTIALS]
        _check(client, form, fields)
    except RefusedError as refused:
        return refusal("oidc", refused, request)
    name = f"urn:ietf:params:oauth:request_uri:{secrets.token_urlsafe(32)}"
    until = state.clock.now() + timedelta(seconds=_LIFETIME)
    state.pushed[name] = Pushed(client.client_id, tuple(fields), until)
    return json_answer({"request_uri": name, "expires_in": _LIFETIME}, 201)


def _check(client: Client, form: dict[str, str], fields: list[tuple[str, str]]) -> None:
    if "request_uri" in form:
        raise RefusedError("invalid_request", "request_uri cannot be pushed")  # section 2.1
    if form.get("redirect_uri") not in client.redirect_uris:
        raise RefusedError("invalid_request", "an address that this client did not register")
    if form.get("client_id", client.client_id) != client.client_id:
        raise RefusedError("invalid_request", "client_id of another client")
    validate(client, form["redirect_uri"], fields)


def pulled(state: State, fields: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the parameters of an authorization request; pushed ones end with their first use (section 4).

    Raises RefusedError, after which there is no redirect.
    """
    found = dict(fields)
    if "request_uri" not in found:
        if state.par == "required":
            raise RefusedError("invalid_request", "Authorization requests have to be pushed here.")
        return fields
    if set(found) != {"client_id", "request_uri"} or len(fields) != len(found):
        raise RefusedError("invalid_request", "Only client_id may stand beside request_uri.")
    pushed = state.pushed.pop(found["request_uri"], None)
    if pushed is None or pushed.client_id != found["client_id"] or pushed.until <= state.clock.now():
        raise RefusedError("invalid_request", "This request_uri is unknown, used or expired.")
    return [("client_id", pushed.client_id), *(pair for pair in pushed.fields if pair[0] != "client_id")]


def validate(client: Client, redirect_uri: str, fields: list[tuple[str, str]]) -> Pending:
    """Return the request for the consent page. Raises RefusedError."""
    found = dict(fields)
    check_repeated(fields)
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
