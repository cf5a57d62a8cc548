"""How we prove at an endpoint which client we are (RFC 6749 section 2.3, RFC 7523). Authlib encodes and signs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote_plus

from authlib.oauth2.auth import ClientAuth
from authlib.oauth2.rfc7523 import private_key_jwt_sign
from joserfc.errors import InvalidKeyTypeError
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey, import_key

from oauthbroker.apps import Endpoints, OAuthApp
from oauthbroker.clock import Clock, random_text
from oauthbroker.errors import BrokerError, Code
from oauthbroker.protocol.messages import Request, Value
from oauthbroker.secret import Secret

ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_ASSERTION_SECONDS = 60
_CURVES = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
_RSA = ("RS256", "PS256", "RS384", "PS384", "RS512", "PS512")


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A private key with the one algorithm it signs with. `kid` is empty when the key has none."""

    key: Key
    algorithm: str
    kid: str

    def __repr__(self) -> str:
        return f"SigningKey({self.algorithm})"


def authenticated_post(
    app: OAuthApp, endpoints: Endpoints, url: str, form: Mapping[str, Value], clock: Clock
) -> Request:
    """`form` as a POST to `url`, with the app's own proof of being this client.

    client_secret_basic form-encodes id and secret first (RFC 6749 section 2.3.1). A client assertion names the
    issuer as its only audience, so that a lying endpoint cannot use it elsewhere. Raises `appMisconfigured`.
    """
    client = app.client
    if not url:
        raise BrokerError(Code.APP_MISCONFIGURED, note="the app has no such endpoint")
    match client.auth_method:
        case "client_secret_basic":
            return Request("POST", url, headers=_basic(app), form=dict(form))
        case "client_secret_post":
            return Request("POST", url, form={**form, "client_id": client.client_id, "client_secret": _secret(app)})
        case "private_key_jwt":
            proof = _assertion(app, endpoints.issuer, clock)
            members: dict[str, Value] = {"client_id": client.client_id, "client_assertion_type": ASSERTION_TYPE}
            return Request("POST", url, form={**form, **members, "client_assertion": proof})
        case "none":
            return Request("POST", url, form={**form, "client_id": client.client_id})


def signing_key(material: Secret) -> SigningKey:
    """The private key of `private_key_jwt`: a PEM (PKCS#8, SEC 1, PKCS#1) or one JWK, EC or RSA.

    An EC key signs with its curve's algorithm, an RSA key with its JWK's `alg`, else RS256. Raises
    `appMisconfigured` for anything else, a public key included.
    """
    text = material.reveal().strip()
    try:
        found = _from_jwk(text) if text.startswith("{") else _from_pem(text)
    except Exception:  # noqa: BLE001 - key libraries raise many kinds, and some quote what they were given
        found = None
    if found is None:
        raise BrokerError(Code.APP_MISCONFIGURED, note="the client's private key is not usable")
    return found


def _basic(app: OAuthApp) -> dict[str, str | Secret]:
    user, password = quote_plus(app.client.client_id), quote_plus(_secret(app).reveal())
    _, headers, _ = ClientAuth(user, password, "client_secret_basic").prepare("POST", "", {}, "")
    return {name: Secret(value) for name, value in headers.items()}


def _secret(app: OAuthApp) -> Secret:
    if not app.client.client_secret:
        raise BrokerError(Code.APP_MISCONFIGURED, note="the client secret is missing")
    return app.client.client_secret


def _assertion(app: OAuthApp, issuer: str, clock: Clock) -> Secret:
    if not issuer:
        raise BrokerError(Code.APP_MISCONFIGURED, note="private_key_jwt needs the issuer")
    signer = signing_key(_secret(app))
    signed = private_key_jwt_sign(
        signer.key,
        client_id=app.client.client_id,
        token_endpoint=issuer,
        alg=signer.algorithm,
        claims={"jti": random_text(clock, 256)},
        header={"kid": signer.kid} if signer.kid else None,
        issued_at=int(clock.now().timestamp()),
        expires_in=_ASSERTION_SECONDS,
    )
    return Secret(str(signed))


def _from_jwk(text: str) -> SigningKey | None:
    return _usable(import_key(json.loads(text)))


def _from_pem(text: str) -> SigningKey | None:
    for kind in ("EC", "RSA"):
        try:
            return _usable(import_key(text, kind))
        except InvalidKeyTypeError:  # a key, but of the other kind
            continue
    return None


def _usable(key: Key) -> SigningKey | None:
    if not isinstance(key, ECKey | RSAKey | OKPKey) or not key.is_private:
        return None
    kid = str(key.get("kid") or "")
    if isinstance(key, ECKey) and key.curve_name in _CURVES:
        return SigningKey(key, _CURVES[key.curve_name], kid)
    if isinstance(key, RSAKey) and key.raw_value.key_size >= 2048:
        algorithm = str(key.get("alg") or "RS256")
        return SigningKey(key, algorithm, kid) if algorithm in _RSA else None
    return None
