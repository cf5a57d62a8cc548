"""Meta's exchanges of access tokens, by GET: the first token for a lasting one, and a lasting one for the next."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from oauthbroker.testing.provider.dialects import lasting_answer, refusal
from oauthbroker.testing.provider.http import Answer, Request, json_answer
from oauthbroker.testing.provider.state import State
from oauthbroker.testing.provider.token_table import RefusedError

LASTING_SECONDS = 60 * 86_400
_LASTING, _YOUNG = timedelta(seconds=LASTING_SECONDS), timedelta(days=1)
_FIRST = {"fb_exchange_token": "fb_exchange_token"} | dict.fromkeys(
    ("ig_exchange_token", "th_exchange_token"), "access_token"
)
_NEXT = dict.fromkeys(("ig_refresh_token", "th_refresh_token"), "access_token")
EXCHANGES = frozenset((*_FIRST, *_NEXT))


def exchange(state: State, request: Request) -> Answer:
    """`GET /access_token`: needs the client's secret, in the query."""
    return _answered(state, request, _FIRST)


def renew(state: State, request: Request) -> Answer:
    """`GET /refresh_access_token`: needs the token alone, a day old and alive."""
    return _answered(state, request, _NEXT)


def _answered(state: State, request: Request, kinds: dict[str, str]) -> Answer:
    try:
        return json_answer(_exchanged(state, dict(request.query_fields), kinds))
    except RefusedError as refused:
        return refusal("meta", refused, request)


def _exchanged(state: State, fields: dict[str, str], kinds: dict[str, str]) -> dict[str, Any]:
    """Return a lasting token. `kinds`: the parameter with the token, by grant type. Raises RefusedError."""
    kind = fields.get("grant_type", "")
    if kind not in kinds:
        raise RefusedError("invalid_request", "not an exchange that is offered here")
    token = state.token_table.living(fields.get(kinds[kind], ""))
    if token is None or token.until is None:
        raise RefusedError("invalid_grant", "Error validating access token")
    client = state.client(token.agreement.client_id)
    if kinds is _FIRST and not any(secret.matches(fields.get("client_secret", "")) for secret in client.secrets):
        raise RefusedError("invalid_client", "Error validating client secret.")
    if kinds is _NEXT and token.until - state.clock.now() > _LASTING - _YOUNG:
        raise RefusedError("invalid_request", "the token is not a day old")
    lasting = replace(client, access_lifetime=LASTING_SECONDS)
    return lasting_answer(lasting, state.token_table.issue(lasting, token.agreement, token.scopes, refresh=False))
