"""The provider's signing keys, its JWKS, and honest ID tokens. Forged ones are made in `forge`."""

from __future__ import annotations

from functools import cache
from typing import Any

from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

SigningKey = RSAKey | ECKey


@cache
def rsa_key(number: int) -> RSAKey:
    """Return the process's n-th RSA key. Generating one takes a tenth of a second, and tests create hundreds of
    providers."""
    return RSAKey.generate_key(2048, {"kid": f"rs-{number}", "use": "sig", "alg": "RS256"}, private=True)


@cache
def ec_key(number: int) -> ECKey:
    return ECKey.generate_key("P-256", {"kid": f"es-{number}", "use": "sig", "alg": "ES256"}, private=True)


class SigningKeys:
    """One RS256 and one ES256 key at a time. `extra` are more entries for the published set, also broken ones."""

    def __init__(self) -> None:
        self._number = self._oldest = 1
        self.extra: list[Any] = []

    def key(self, alg: str) -> SigningKey:
        """Return the current key for `RS256` or `ES256`."""
        return ec_key(self._number) if alg == "ES256" else rsa_key(self._number)

    def strange_key(self, alg: str) -> SigningKey:
        """Return a key outside the JWKS, under the current key's id: for bad signatures."""
        return ec_key(-1) if alg == "ES256" else rsa_key(-1)

    def rotate(self, *, keep: bool = False) -> None:
        """Sign with new keys from now on; the old ones leave the JWKS, or stay in it (`keep`)."""
        self._number += 1
        if not keep:
            self._oldest = self._number

    def jwks(self) -> dict[str, Any]:
        """Return the public keys (RFC 7517), the current ones first."""
        numbers = range(self._number, self._oldest - 1, -1)
        keys = [make(number) for number in numbers for make in (rsa_key, ec_key)]
        return {"keys": [*self.extra, *(key.as_dict(private=False) for key in keys)]}

    def sign(self, alg: str, claims: dict[str, Any]) -> str:
        key = self.key(alg)
        return jwt.encode({"alg": alg, "kid": str(key.kid), "typ": "JWT"}, claims, key, algorithms=[alg])
