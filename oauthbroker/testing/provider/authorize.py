"""The authorization endpoint (RFC 6749 section 3.1, RFC 9207) and its pages."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import Any

from oauthbroker.testing.provider import device, pages
from oauthbroker.testing.provider.http import Answer, Request, redirect
from oauthbroker.testing.provider.requests import pulled, validate
from oauthbroker.testing.provider.state import Pending, State
from oauthbroker.testing.provider.token_table import Agreement, RefusedError
from oauthbroker.testing.provider.types import Account, Client

_COOKIE = "idp_session"


def authorize(state: State, request: Request) -> Answer:
    """`GET /authorize`: check the request, then ask the user. Errors go back only to a registered redirect_uri."""
    try:
        fields = pulled(state, request.query_fields + request.form_fields)
        found = dict(fields)
        client, redirect_uri = _addressee(state, found)
    except RefusedError as refused:
        return pages.error_page(refused.why)
    if found.get("state"):
        _remember(state, found["state"], "state")
    try:
        pending = validate(client, redirect_uri, fields)
    except RefusedError as refused:
        return _back(state, redirect_uri, found.get("state"), error=refused.error, error_description=refused.why)
    if pending.nonce:
        _remember(state, pending.nonce, "nonce")
    if state.auto_consent is not None:
        return _agree(state, pending, state.accounts[state.auto_consent], pending.scopes)
    ticket = secrets.token_urlsafe(16)
    state.pending[ticket] = pending
    return _next_page(state, request, ticket)


def _remember(state: State, text: str, kind: str) -> None:
    if len(text) >= 16:
        state.canaries.add(text, kind)


def _addressee(state: State, found: dict[str, str]) -> tuple[Client, str]:
    client = state.clients.get(found.get("client_id", ""))
    if client is None:
        raise RefusedError("invalid_request", "This application is not registered here.")
    if found.get("redirect_uri") not in client.redirect_uris:
        raise RefusedError("invalid_request", "The return address is not one that this application registered.")
    return client, found["redirect_uri"]


def _next_page(state: State, request: Request, ticket: str) -> Answer:
    account = _who(state, request)
    if account is None or state.pending[ticket].login_again:
        return pages.login_page(state.pending[ticket].client, ticket, list(state.accounts.values()))
    return pages.consent_page(state.pending[ticket].client, ticket, account, state.pending[ticket].scopes)


def _who(state: State, request: Request) -> Account | None:
    return state.accounts.get(state.logins.get(request.cookies.get(_COOKIE, ""), ""))


def login(state: State, request: Request) -> Answer:
    """`GET /login` shows the accounts; `POST /login` signs one in."""
    found = dict(request.query_fields + request.form_fields)
    ticket = found.get("ticket", "")
    if ticket not in state.pending:
        return pages.error_page("This sign-in is over. Go back to where you came from.")
    pending = state.pending[ticket]
    account = state.accounts.get(found.get("login", ""))
    if request.method != "POST" or account is None:
        return pages.login_page(pending.client, ticket, list(state.accounts.values()))
    session = state.canaries.mint("provider session").reveal()
    state.logins[session] = account.login
    cookie = ("set-cookie", f"{_COOKIE}={session}; Path=/; HttpOnly; SameSite=Lax")
    return pages.consent_page(pending.client, ticket, account, pending.scopes).with_headers(cookie)


def consent(state: State, request: Request) -> Answer:
    """`POST /consent`: return the user's decision to the client, with the scopes still ticked, and `openid`."""
    fields = request.form_fields
    found = dict(fields)
    account = _who(state, request)
    if request.method != "POST" or account is None or found.get("ticket") not in state.pending:
        return pages.error_page("This sign-in is over. Go back to where you came from.")
    pending = state.pending.pop(found["ticket"])
    ticked = {value for name, value in fields if name == "scope"}
    scopes = tuple(scope for scope in pending.scopes if scope in ticked or scope == pages.NO_CHOICE)
    allowed = found.get("decision") == "allow"
    if pending.device is not None:
        device.decide(pending.device, account, scopes if allowed else None)
        return pages.device_done_page(allowed=allowed)
    if not allowed:
        return _back(state, pending.redirect_uri, pending.state, error="access_denied")
    return _agree(state, pending, account, scopes)


def _agree(state: State, pending: Pending, account: Account, scopes: tuple[str, ...]) -> Answer:
    now = state.clock.now()
    agreement = Agreement(
        client_id=pending.client.client_id,
        account=account,
        scopes=scopes,
        nonce=pending.nonce,
        at=now,
        user_token=pending.user_token,
        resources=pending.resources,
    )
    if pending.user_scopes:
        agreement.beside = replace(agreement, scopes=pending.user_scopes, user_token=True)
    code = state.token_table.issue_code(agreement, pending.redirect_uri, pending.challenge)
    return _back(state, pending.redirect_uri, pending.state, code=code)


def _back(state: State, redirect_uri: str, client_state: str | None, **fields: str) -> Answer:
    """Redirect back with `iss` (RFC 9207), against provider mix-up."""
    sent: dict[str, Any] = {**fields, "state": client_state or None, "iss": state.base_url}
    return redirect(redirect_uri, sent)
