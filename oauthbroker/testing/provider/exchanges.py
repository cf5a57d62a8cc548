"""Meta's exchanges of access tokens, by GET: the first token for a lasting one, and a lasting one for the next."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from oauthbroker.testing.provider.dialects import lasting_answer, refusal
from oauthbroker.testing.provider.http import Answer, Request, json_answer
from oauthbroker.testing.provider.state import State
from oauthbroker.testing.provider.token_table import RefusedError, Token
from oauthbroker.testing.provider.types import Client

LASTING_SECONDS = 60 * 86_400
_YOUNG = timedelta(days=1)
_FIRST = {
    "fb_exchange_token": "fb_exchange_token",
    "ig_exchange_token": "access_token",
    "th_exchange_token": "access_token",
}
_NEXT = {"ig_refresh_token", "th_refresh_token"}


def exchange(state: State, request: Request) -> Answer:
    """`GET /access_token`: needs the client's secret, in the query."""
    return _answered(state, request, first=True)


def renew(state: State, request: Request) -> Answer:
    """`GET /refresh_access_token`: needs the token alone, a day old and alive."""
    return _answered(state, request, first=False)


def _answered(state: State, request: Request, *, first: bool) -> Answer:
    fields = dict(request.query_fields)
    try:
        token = _token_of(state, fields, first=first)
        client = _client_of(state, fields, token, first=first)
        lasting = replace(client, access_lifetime=LASTING_SECONDS)
        issued = state.token_table.issue(lasting, token.agreement, token.scopes, refresh=False)
    except RefusedError as refused:
        return refusal("meta", refused, request)
    return json_answer(lasting_answer(lasting, issued))


def _token_of(state: State, fields: dict[str, str], *, first: bool) -> Token:
    kind = fields.get("grant_type", "")
    if kind not in (_FIRST if first else _NEXT):
        raise RefusedError("invalid_request", "not an exchange that is offered here")
    token = state.token_table.living(fields.get(_FIRST.get(kind, "access_token"), ""))
    if token is None or token.until is None:
        raise RefusedError("invalid_grant", "Error validating access token")
    issued = token.until - timedelta(seconds=LASTING_SECONDS)
    if not first and state.clock.now() - issued < _YOUNG:
        raise RefusedError("invalid_request", "the token is not a day old")
    return token


def _client_of(state: State, fields: dict[str, str], token: Token, *, first: bool) -> Client:
    client = state.client(token.agreement.client_id)
    if first and not any(secret.matches(fields.get("client_secret", "")) for secret in client.secrets):
        raise RefusedError("invalid_client", "Error validating client secret.")
    return client
