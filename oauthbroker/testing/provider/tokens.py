"""The token and revocation endpoints (RFC 6749 3.2, RFC 7009) and the ID tokens (OIDC Core 2)."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from cryptography.hazmat.primitives import serialization

from oauthbroker.testing.provider.client_auth import authenticate, form_of
from oauthbroker.testing.provider.dialects import personal, refusal, split_scopes, token_answer
from oauthbroker.testing.provider.forge import IdTokenChange, changed, compact, flipped, signer
from oauthbroker.testing.provider.http import Answer, Request, json_answer
from oauthbroker.testing.provider.ledger import Agreement, Issued, RefusedError
from oauthbroker.testing.provider.nouns import Account, Client
from oauthbroker.testing.provider.state import State


def token(state: State, request: Request) -> Answer:
    """`POST /token`."""
    client: Client | None = None
    try:
        form = form_of(request)
        client = authenticate(state, request, form)
        issued = _redeem(state, client, form)
    except RefusedError as refused:
        known = client or state.clients.get(dict(request.form_fields).get("client_id", ""))
        return refusal(known.dialect if known else "oidc", refused, request)
    scopes = issued.access.scopes
    wants_id_token = client.dialect == "oidc" and "openid" in scopes and form["grant_type"] != "client_credentials"
    return token_answer(client, issued, _id_token(state, client, issued) if wants_id_token else "", request)


def _redeem(state: State, client: Client, form: dict[str, str]) -> Issued:
    match form.get("grant_type"):
        case "authorization_code":
            verifier = form.get("code_verifier", "")
            return state.ledger.redeem_code(client, form.get("code", ""), form.get("redirect_uri", ""), verifier)
        case "refresh_token":
            return state.ledger.redeem_refresh(
                client, form.get("refresh_token", ""), split_scopes(form.get("scope", ""))
            )
        case "client_credentials" if client.auth_method != "none":
            scopes = split_scopes(form.get("scope", "")) or tuple(sorted(client.scopes))
            machine = Agreement(client.client_id, _machine(client), scopes, "", state.clock.now())
            return state.ledger.issue(client, machine, scopes, refresh=False)
        case _:
            raise RefusedError("unsupported_grant_type", "not offered here")


def _machine(client: Client) -> Account:
    return Account(client.client_id, client.client_id, name=client.display)


def _id_token(state: State, client: Client, issued: Issued) -> str:
    agreement = issued.access.agreement
    claims = _claims(state, client, agreement, issued.access.text)
    change = state.script.token.next_id_token()
    text = state.keys.sign(client.id_token_alg, claims) if change is None else _forged(state, client, claims, change)
    state.canaries.add(text, "ID token")
    return text


def _claims(state: State, client: Client, agreement: Agreement, access_token: str) -> dict[str, Any]:
    now = int(state.clock.now().timestamp())
    account = agreement.account
    half = hashlib.sha256(access_token.encode()).digest()[:16]
    return {
        "iss": state.base_url,
        "sub": account.sub,
        "aud": client.client_id,
        "exp": now + 3600,
        "iat": now,
        "auth_time": int(agreement.at.timestamp()),
        "at_hash": base64.urlsafe_b64encode(half).rstrip(b"=").decode(),
        "team": account.team,
        **({"nonce": agreement.nonce} if agreement.nonce else {}),
        **account.claims,
        **personal(account, agreement.scopes),
    }


def _forged(state: State, client: Client, claims: dict[str, Any], change: IdTokenChange) -> str:
    honest = state.keys.key(client.id_token_alg)
    header = changed({"alg": client.id_token_alg, "kid": honest.kid, "typ": "JWT"}, change.header)
    alg = str(header.get("alg", ""))
    key = state.keys.strange_key(client.id_token_alg) if change.key == "strange" else honest
    secret = client.client_secret.reveal().encode() if client.client_secret else b""
    hmac_key = _public_pem(honest.private_key) if change.key == "public" else secret
    sign = signer(alg, key.private_key, hmac_key)
    if change.key == "cut":
        sign = signer("none", None, b"")
    return compact(header, changed(claims, change.claims), flipped(sign) if change.key == "flipped" else sign)


def _public_pem(private_key: Any) -> bytes:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return bytes(private_key.public_key().public_bytes(serialization.Encoding.PEM, form))


def revoke(state: State, request: Request) -> Answer:
    """`POST /revoke` (RFC 7009): 200 for known and unknown tokens alike."""
    try:
        form = form_of(request)
        client = authenticate(state, request, form)
    except RefusedError as refused:
        return refusal("oidc", refused, request)
    if "token" not in form:
        return refusal(client.dialect, RefusedError("invalid_request", "which token?"), request)
    state.ledger.revoke(client, form["token"])
    return Answer(200, (("cache-control", "no-store"),))


def slack_revoke(state: State, request: Request) -> Answer:
    """`POST /api/auth.revoke`: Slack's way, the token itself is the credential."""
    text = bearer(request) or dict(request.form_fields).get("token", "")
    token = state.ledger.tokens.get(text)
    if token is None or token.revoked or token.agreement.revoked:
        return json_answer({"ok": False, "error": "invalid_auth"})
    state.ledger.revoke(state.clients[token.agreement.client_id], text)
    return json_answer({"ok": True, "revoked": True})


def bearer(request: Request) -> str:
    """The token of the Authorization header (RFC 6750 2.1), or an empty text."""
    scheme, _, text = request.header("authorization").partition(" ")
    return text.strip() if scheme.lower() == "bearer" else ""
