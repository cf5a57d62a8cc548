"""Keys and JWTs of an issuer, good ones and bad ones."""

from __future__ import annotations

import hmac
import json
import warnings
from base64 import urlsafe_b64encode
from functools import cache
from typing import Any

from joserfc import jws
from joserfc.jwk import ECKey, RSAKey

ISSUER, AUDIENCE = "https://login.shop.example", "shop-flows"


@cache
def key(name: str) -> Any:
    """The pair of keys of a name, made once. Some RSA keys are too short."""
    with warnings.catch_warnings(action="ignore"):  # joserfc warns of such keys
        return (
            ECKey.generate_key("P-256")
            if name.startswith("ec")
            else RSAKey.generate_key(1024 if "short" in name else 2048)
        )


def key_set(*names: str, **more: Any) -> dict[str, Any]:
    return {"keys": [{**key(name).as_dict(private=False), "kid": name, **more} for name in names]}


def token(claims: dict[str, Any], *, signed_by: str = "rsa", **header: Any) -> str:
    """A JWT. A header member of None is left out."""
    usual = {"alg": "ES256" if signed_by.startswith("ec") else "RS256", "kid": signed_by, "typ": "at+jwt"}
    written = {**usual, **header}
    text = f"{encoded({name: value for name, value in written.items() if value is not None})}.{encoded(claims)}"
    signature = jws.JWSRegistry.algorithms[written["alg"]].sign(text.encode(), key(signed_by))
    return f"{text}.{urlsafe_b64encode(signature).decode().rstrip('=')}"


def unsigned(claims: dict[str, Any]) -> str:
    """The token of `alg: none`."""
    return f"{encoded({'alg': 'none'})}.{encoded(claims)}."


def public_pem(name: str = "rsa") -> bytes:
    pem: bytes = key(name).as_pem(private=False)
    return pem


def by_secret(claims: dict[str, Any], secret: bytes, kid: str = "rsa") -> str:
    """A token that is signed with a shared secret, such as a public key that is taken for one."""
    text = f"{encoded({'alg': 'HS256', 'kid': kid})}.{encoded(claims)}"
    signature = hmac.digest(secret, text.encode(), "sha256")
    return f"{text}.{urlsafe_b64encode(signature).decode().rstrip('=')}"


def encoded(value: Any) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")
