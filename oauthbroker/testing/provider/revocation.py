"""Revocation by RFC 7009 and by some providers' own requests."""

from __future__ import annotations

import json

from oauthbroker.testing.provider.client_auth import authenticate, form_of
from oauthbroker.testing.provider.dialects import refusal
from oauthbroker.testing.provider.history import Revocation
from oauthbroker.testing.provider.http import Answer, Request, json_answer
from oauthbroker.testing.provider.resources import bearer, no_token
from oauthbroker.testing.provider.state import State
from oauthbroker.testing.provider.token_table import RefusedError
from oauthbroker.testing.provider.types import Client


def revoke(state: State, request: Request) -> Answer:
    """`POST /revoke` (RFC 7009): 200 for known and unknown tokens alike."""
    try:
        form = form_of(request)
        client = authenticate(state, request, form)
    except RefusedError as refused:
        return refusal("oidc", refused, request)
    if "token" not in form:
        return refusal(client.dialect, RefusedError("invalid_request", "which token?"), request)
    _end(state, client, form["token"])
    return Answer(200, (("cache-control", "no-store"),))


def slack_revoke(state: State, request: Request) -> Answer:
    """`POST /api/auth.revoke`: Slack's request, authenticated by the token itself."""
    text = bearer(request) or dict(request.form_fields).get("token", "")
    token = state.token_table.tokens.get(text)
    if token is None or token.revoked or token.agreement.family.ended_by:
        return json_answer({"ok": False, "error": "invalid_auth"})
    _end(state, state.clients[token.agreement.client_id], text)
    return json_answer({"ok": True, "revoked": True})


def bearer_revoke(state: State, request: Request) -> Answer:
    """`POST /api/token/revoke`: end the token in the Authorization header, which also authenticates. 401 if it is
    dead."""
    token = state.token_table.living(bearer(request))
    if token is None or request.method != "POST":
        return no_token(request)
    _end(state, state.clients[token.agreement.client_id], token.text)
    return Answer(204)


def application_revoke(state: State, request: Request) -> Answer:
    """`DELETE /applications/{client_id}/token`: GitHub's request, with Basic and a JSON body `{access_token}`. With
    `/grant`: the same for all the user's tokens of the client."""
    try:
        client = authenticate(state, request, {})
    except RefusedError:
        return json_answer({"message": "Requires authentication"}, 401)
    if request.method != "DELETE" or request.path.split("/")[2] != client.client_id:
        return json_answer({"message": "Not Found"}, 404)
    try:
        text = json.loads(request.body)["access_token"]
    except (ValueError, LookupError, TypeError):
        return json_answer({"message": "Problems parsing JSON"}, 422)
    token = state.token_table.tokens.get(text)
    if token is None or token.agreement.client_id != client.client_id or not token.is_alive(state.clock.now()):
        return json_answer({"message": "Not Found"}, 404)
    _end(state, client, text, whole_grant=request.path.endswith("/grant"))
    return Answer(204)


def _end(state: State, client: Client, text: str, *, whole_grant: bool = False) -> None:
    before = state.token_table.alive()
    token = state.token_table.revoke(client, text)
    if token is not None and whole_grant:
        state.token_table.revoke_all(client.client_id, token.agreement.account)
    login, kind = (token.agreement.account.login, token.kind) if token else ("", "")
    ended = before - state.token_table.alive()
    state.revocations.append(
        Revocation(client_id=client.client_id, login=login, kind=kind, ended=ended, at=state.clock.now())
    )
