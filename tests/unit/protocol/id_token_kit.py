"""Keys and claims of ID tokens."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

from joserfc.jwk import ECKey, Key, OKPKey, RSAKey

from oauthbroker.core.secret import Secret

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


T = int(NOW.timestamp())


NONCE = Secret("nonce-1")


def named(key: Any, kid: str) -> Any:
    return type(key).import_key({**key.as_dict(private=True), "kid": kid})


RSA = named(RSAKey.generate_key(2048), "r1")


EC = named(ECKey.generate_key("P-256"), "e1")


ED = named(OKPKey.generate_key("Ed25519"), "o1")


def public(key: Any) -> Key:
    return type(key).import_key(key.as_dict(private=False))  # type: ignore[no-any-return]


KEYS = (public(RSA), public(EC), public(ED))


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
