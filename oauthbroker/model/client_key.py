"""The private key with which a client signs what proves that it is itself (`private_key_jwt`).

joserfc is imported by the functions that need it: most clients have no key.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret

if TYPE_CHECKING:
    from joserfc.jwk import Key

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


def signing_key(material: Secret) -> SigningKey:
    """Return the private key of `private_key_jwt`: a PEM (PKCS#8, SEC 1, PKCS#1) or one JWK, EC or RSA.

    An EC key signs with its curve's algorithm, an RSA key (2048 bits at least) with its JWK's `alg`, else RS256.
    Raises `appMisconfigured` for anything else, a public key included.
    """
    text = material.reveal().strip()
    try:
        found = _from_jwk(text) if text.startswith("{") else _from_pem(text)
    except Exception:  # noqa: BLE001 - key libraries raise many kinds, and some quote their input
        found = None
    if found is None:
        raise BrokerError(Code.APP_MISCONFIGURED, note="the client's private key is not usable")
    return found


def public_jwk(signer: SigningKey) -> dict[str, object]:
    """Return the public half of a key as a JWK (RFC 7517), for a client's metadata."""
    return {**signer.key.as_dict(private=False), "use": "sig", "alg": signer.algorithm}


def _from_jwk(text: str) -> SigningKey | None:
    from joserfc.jwk import import_key

    return _usable(import_key(json.loads(text)))


def _from_pem(text: str) -> SigningKey | None:
    from joserfc.errors import InvalidKeyTypeError
    from joserfc.jwk import import_key

    for kind in ("EC", "RSA"):
        try:
            return _usable(import_key(text, kind))
        except InvalidKeyTypeError:  # a key, but of the other kind
            continue
    return None


def _usable(key: Key) -> SigningKey | None:
    from joserfc.jwk import ECKey, OKPKey, RSAKey

    if not isinstance(key, ECKey | RSAKey | OKPKey) or not key.is_private:
        return None
    kid = str(key.get("kid") or "")
    if isinstance(key, ECKey) and key.curve_name in _CURVES:
        return SigningKey(key, _CURVES[key.curve_name], kid)
    if isinstance(key, RSAKey) and key.raw_value.key_size >= 2048:
        algorithm = str(key.get("alg") or "RS256")
        return SigningKey(key, algorithm, kid) if algorithm in _RSA else None
    return None
