"""The provider's ID tokens (OIDC Core section 2), honest or forged by the script."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from typing import Any

from joserfc.jws import JWSRegistry

from oauthbroker.testing.provider.dialects import personal
from oauthbroker.testing.provider.script import Claims, IdTokenChange
from oauthbroker.testing.provider.state import State
from oauthbroker.testing.provider.token_table import Agreement, Issued, base64url
from oauthbroker.testing.provider.types import Client


def id_token(state: State, client: Client, issued: Issued, grant_type: str) -> str:
    """Build a fresh ID token for an answer's access token; the script may forge it."""
    agreement = issued.access.agreement
    claims = _claims(state, client, agreement, issued.access.text)
    change = state.script.chain("token", client.client_id, grant_type).next_id_token()
    text = state.keys.sign(client.id_token_alg, claims) if change is None else _forged(state, client, claims, change)
    state.canaries.add(text, "ID token")
    return text


def _claims(state: State, client: Client, agreement: Agreement, access_token: str) -> Claims:
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
        "at_hash": base64url(half),
        "team": account.team,
        **({"nonce": agreement.nonce} if agreement.nonce else {}),
        **account.claims,
        **personal(account, agreement.scopes),
    }


def _forged(state: State, client: Client, claims: Claims, change: IdTokenChange) -> str:
    """Build a token with any header, claims and signature, unchecked."""
    honest = state.keys.key(client.id_token_alg)
    header = _changed({"alg": client.id_token_alg, "kid": honest.kid, "typ": "JWT"}, change.header)
    parts = (json.dumps(each).encode() for each in (header, _changed(claims, change.claims)))
    signed = ".".join(map(base64url, parts))
    signature = _signature(state, client, signed.encode(), str(header.get("alg", "")).upper(), change.key)
    return f"{signed}.{base64url(signature)}"


def _changed(members: Claims, change: Mapping[str, Any] | Callable[[Claims], Claims]) -> Claims:
    """Return the members after a change: merged, None removes one."""
    if callable(change):
        return change(dict(members))
    return {name: value for name, value in {**members, **change}.items() if value is not None}


def _signature(state: State, client: Client, data: bytes, alg: str, key: str) -> bytes:
    """Sign with the algorithm of a header: RSA and EC by the client's one, HMAC by a text. Empty for all others."""
    honest, signature = client.id_token_alg, b""
    if alg.startswith("HS"):
        secret = client.client_secret.reveal().encode() if client.client_secret else b""
        hmac_key = state.keys.key(honest).as_pem(private=False) if key == "public" else secret
        signature = hmac.digest(hmac_key, data, {"HS384": "sha384", "HS512": "sha512"}.get(alg, "sha256"))
    elif alg[:2] == honest[:2] and key != "cut":
        signing_key = state.keys.strange_key(honest) if key == "strange" else state.keys.key(honest)
        signature = JWSRegistry.algorithms[honest].sign(data, signing_key)
    return bytes([signature[0] ^ 0x80]) + signature[1:] if key == "flipped" else signature
