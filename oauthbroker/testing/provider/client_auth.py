"""Client authentication at the token endpoint: only by the registered method (RFC 6749 section 2.3, RFC 7523 section
3)."""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
from typing import Any
from urllib.parse import unquote_plus

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from oauthbroker.testing.provider.http import Request
from oauthbroker.testing.provider.state import State
from oauthbroker.testing.provider.token_table import RefusedError
from oauthbroker.testing.provider.types import Client

_ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


def form_of(request: Request) -> dict[str, str]:
    """Return the form of a token request. A repeated parameter raises RefusedError (RFC 6749 section 3.2)."""
    fields = request.form_fields
    if request.method != "POST":
        raise RefusedError("invalid_request", "POST only", 405)
    check_repeated(fields)
    if request.query:
        raise RefusedError("invalid_request", "parameters belong into the body")
    return dict(fields)


def check_repeated(fields: list[tuple[str, str]]) -> None:
    """Raise RefusedError for a repeated parameter. Only `resource` may repeat (RFC 8707 section 2)."""
    single = [name for name, _ in fields if name != "resource"]
    if len(set(single)) != len(single):
        raise RefusedError("invalid_request", "a parameter is there twice")


def authenticate(state: State, request: Request, form: dict[str, str]) -> Client:
    """Authenticate the client by its registered method. Raises RefusedError."""
    basic = _basic(request)
    used = {
        "client_secret_basic": basic is not None,
        "client_secret_post": "client_secret" in form,
        "private_key_jwt": "client_assertion" in form,
    }
    if sum(used.values()) > 1:
        raise RefusedError("invalid_request", "more than one way of client authentication")
    method = next((name for name, is_used in used.items() if is_used), "none")
    if method == "private_key_jwt":
        return _by_assertion(state, request, form)
    client = state.client(basic[0] if basic else form.get("client_id", ""))
    if method != client.auth_method:
        raise _not_you(f"registered for {client.auth_method}, came with {method}")
    given = basic[1] if basic else form.get("client_secret", "")
    if method != "none" and not any(secret.matches(given) for secret in client.secrets):
        raise _not_you("wrong secret")
    return client


def resources_of(request: Request) -> tuple[str, ...]:
    """Return every `resource` of a request, in order."""
    return tuple(value for name, value in request.query_fields + request.form_fields if name == "resource")


def who_says(state: State, request: Request) -> str:
    """Return the client that a request, its token or its sign-in names, unproven."""
    found = dict(request.query_fields + request.form_fields)
    with contextlib.suppress(RefusedError):
        if basic := _basic(request):
            return basic[0]
    if found.get("client_id"):
        return found["client_id"]
    if found.get("ticket") in state.pending:
        return state.pending[found["ticket"]].client.client_id
    if "client_assertion" in found:
        return _claimed_subject(found["client_assertion"])
    token = state.token_table.tokens.get(request.header("authorization").partition(" ")[2])
    return token.agreement.client_id if token else ""


def _claimed_subject(assertion: str) -> str:
    try:
        body = assertion.split(".")[1]
        return str(json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))["sub"])
    except (ValueError, LookupError, TypeError):
        return ""


def _not_you(why: str) -> RefusedError:
    return RefusedError("invalid_client", why, 401)


def _basic(request: Request) -> tuple[str, str] | None:
    scheme, _, credentials = request.header("authorization").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, _, password = base64.b64decode(credentials, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        raise _not_you("the Authorization header is not readable") from None
    return unquote_plus(name), unquote_plus(password)


def _by_assertion(state: State, request: Request, form: dict[str, str]) -> Client:
    """Authenticate by RFC 7523 with the audience rule of the Security BCP's update: the issuer, as one string; or
    the one address that the client is registered with."""
    if form.get("client_assertion_type") != _ASSERTION_TYPE:
        raise RefusedError("invalid_request", "client_assertion_type is missing or wrong")
    claims, client = _verified_assertion(state, form["client_assertion"])
    now = state.clock.now().timestamp()
    expires, serial = claims.get("exp"), claims.get("jti")
    if claims.get("sub") != client.client_id or claims.get("iss") != client.client_id:
        raise _not_you("iss and sub must be the client")
    wanted = {"issuer": "", "tokenEndpoint": "/token", "endpoint": request.path}[client.assertion_audience]
    if claims.get("aud") != state.base_url + wanted:
        raise _not_you(f"aud must be the {client.assertion_audience} and nothing else")
    if not isinstance(expires, int | float) or not now < expires <= now + 600:
        raise _not_you("exp is missing, past or too far away")
    if not isinstance(serial, str) or serial in state.assertions_seen:
        raise _not_you("jti is missing or was used before")
    state.assertions_seen.add(serial)
    return client


def _verified_assertion(state: State, assertion: str) -> tuple[dict[str, Any], Client]:
    for client in state.clients.values():
        if client.auth_method == "private_key_jwt" and client.public_keys:
            keys = KeySet.import_key_set({"keys": [dict(key) for key in client.public_keys]})
            try:
                return jwt.decode(assertion, keys, algorithms=["RS256", "ES256"]).claims, client
            except (JoseError, ValueError):
                continue
    raise _not_you("no registered key fits this assertion")
