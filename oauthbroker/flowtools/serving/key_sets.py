"""Public keys of an issuer of JWTs, and signatures by them. joserfc does the cryptography."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from collections.abc import Mapping
from typing import Any, Final

from joserfc import jws
from joserfc.jwk import JWKRegistry, Key

PublicKeys = list[tuple[Mapping[str, Any], Key]]
_UNUSABLE: Final = "oct"  # a shared secret
_LEAST_BITS: Final = 2048  # of an RSA key (RFC 7518 section 3.3)


def keys_of(jwks: Any) -> PublicKeys:
    """Return the public keys of a key set (RFC 7517). Keys of unknown types are left out, as section 5 asks, and so are
    RSA keys that are too short."""
    found: PublicKeys = []
    for each in jwks.get("keys", ()) if isinstance(jwks, dict) and isinstance(jwks.get("keys"), list) else ():
        if isinstance(each, dict) and each.get("use", "sig") == "sig" and each.get("kty") != _UNUSABLE:
            try:
                if each.get("kty") != "RSA" or _bits(each["n"]) >= _LEAST_BITS:
                    found.append((each, JWKRegistry.import_key(each)))
            except Exception:  # noqa: BLE001, S112  (joserfc says in several ways that it cannot use a key)
                continue
    return found


def _bits(modulus: str) -> int:
    return int.from_bytes(urlsafe_b64decode(modulus + "=" * (-len(modulus) % 4)), "big").bit_length()


def fitting_keys(keys: PublicKeys, algorithm: str, kid: Any) -> list[Key]:
    """Return the keys that can have signed a token with this header."""
    registry = jws.JWSRegistry(algorithms=[algorithm])
    return [
        key
        for said, key in keys
        if kid in {None, said.get("kid")}
        and said.get("alg", algorithm) == algorithm
        and _takes(registry, algorithm, key)
    ]


def _takes(registry: jws.JWSRegistry, algorithm: str, key: Key) -> bool:
    try:
        registry.get_alg(algorithm).check_key(key)
    except Exception:  # noqa: BLE001  (joserfc says no in several ways)
        return False
    return True


def is_signed(token: str, key: Key, algorithm: str) -> bool:
    """Tell whether a key has signed a token with exactly this algorithm."""
    registry = jws.JWSRegistry(algorithms=[algorithm], strict_check_header=False)
    registry.max_header_length = 2048
    try:
        jws.deserialize_compact(token, key, registry=registry)
    except Exception:  # noqa: BLE001  (its errors may hold parts of the token)
        return False
    return True
