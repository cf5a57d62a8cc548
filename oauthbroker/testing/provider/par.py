"""Pushed authorization requests (RFC 9126)."""

from __future__ import annotations

import secrets
from datetime import timedelta

from oauthbroker.testing.provider.client_auth import authenticate, form_of
from oauthbroker.testing.provider.dialects import refusal
from oauthbroker.testing.provider.http import Answer, Request, json_answer
from oauthbroker.testing.provider.requests import validate
from oauthbroker.testing.provider.state import Pushed, State
from oauthbroker.testing.provider.token_table import RefusedError
from oauthbroker.testing.provider.types import Client

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
