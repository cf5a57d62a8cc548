"""The provider's ID tokens (OIDC Core section 2), honest or forged by the script."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from cryptography.hazmat.primitives import serialization

from oauthbroker.testing.provider.dialects import personal
from oauthbroker.testing.provider.forged_id_tokens import IdTokenChange, changed, compact, flipped, signer
from oauthbroker.testing.provider.state import State
from oauthbroker.testing.provider.token_table import Agreement, Issued
from oauthbroker.testing.provider.types import Client


def id_token(state: State, client: Client, issued: Issued, grant_type: str) -> str:
    """Build a fresh ID token for an answer's access token; the script may forge it."""
    agreement = issued.access.agreement
    claims = _claims(state, client, agreement, issued.access.text)
    change = state.script.chain("token", client.client_id, grant_type).next_id_token()
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
