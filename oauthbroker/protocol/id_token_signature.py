"""Check the signature of an ID token with the provider's keys. joserfc does the cryptography."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from joserfc import jws
from joserfc.errors import UnsupportedAlgorithmError
from joserfc.jwk import Key

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret


class _Registry(jws.JWSRegistry):
    """Allows exactly the listed algorithms, without joserfc's recommended set."""

    max_header_length = 2048

    def get_alg(self, name: str) -> Any:
        if name not in (self.allowed or ()) or name not in self.algorithms:
            raise UnsupportedAlgorithmError("not listed")
        return self.algorithms[name]


def signed_payload(
    id_token: Secret, algorithm: str, kid: str | None, keys: Sequence[Key], listed: Sequence[str]
) -> bytes:
    """Return the payload that one of the `keys` has signed with `algorithm`, which is one of those `listed`. Raises
    `idTokenInvalid`."""
    registry = _Registry(
        algorithms=list(listed), strict_check_header=False
    )  # unknown members are ignored (RFC 7515 section 4)
    key = _key_for(algorithm, kid, keys, registry)
    try:
        payload = jws.deserialize_compact(id_token.reveal(), key, registry=registry).payload
    except Exception:  # noqa: BLE001 - and its errors may hold parts of the token
        payload = None
    if payload is None:
        raise BrokerError(Code.ID_TOKEN_INVALID, note="signature")
    return payload


def _key_for(algorithm: str, kid: str | None, keys: Sequence[Key], registry: _Registry) -> Key:
    """Find the key by `kid`; without a `kid` only if exactly one key fits (section 10.1)."""
    fitting = [key for key in keys if (kid is None or key.kid == kid) and _fits(key, algorithm, registry)]
    if not fitting or (kid is None and len(fitting) > 1):
        raise BrokerError(Code.ID_TOKEN_INVALID, note="key")
    return fitting[0]


def _fits(key: Key, algorithm: str, registry: _Registry) -> bool:
    try:
        registry.get_alg(algorithm).check_key(key)
    except Exception:  # noqa: BLE001 - joserfc says no in several ways
        return False
    return True
