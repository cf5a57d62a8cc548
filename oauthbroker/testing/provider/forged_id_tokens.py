"""Forged ID tokens, with any header, claims and signature."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

Claims = dict[str, Any]


@dataclass(frozen=True, slots=True)
class IdTokenChange:
    """The change to the next ID token.

    `header` and `claims` are merged over the honest ones (None removes a member; `claims` may be a function instead).
    `key` is "strange" (an unpublished key), "secret" (the client secret as an HMAC key), "public" (the PEM of the
    public key as an HMAC key), "cut" (no signature), "flipped" (one bit wrong) or "" (the honest key). The algorithm is
    the one in the final header.
    """

    header: Mapping[str, Any]
    claims: Mapping[str, Any] | Callable[[Claims], Claims]
    key: str = ""


def changed(members: Mapping[str, Any], change: Mapping[str, Any] | Callable[[Claims], Claims]) -> Claims:
    """Return the members after a change: merged, None removes one."""
    if callable(change):
        return change(dict(members))
    merged = {**members, **change}
    return {name: value for name, value in merged.items() if value is not None}


def compact(header: Mapping[str, Any], claims: Mapping[str, Any], sign: Callable[[bytes], bytes]) -> str:
    """Return header.claims.signature, unchecked."""
    signed = f"{_b64(json.dumps(header).encode())}.{_b64(json.dumps(claims).encode())}"
    return f"{signed}.{_b64(sign(signed.encode()))}"


def signer(alg: str, key: Any, hmac_key: bytes) -> Callable[[bytes], bytes]:
    """Return a signing function for an algorithm: RSA and EC by `key`, HMAC by `hmac_key`, `none` and others empty."""
    name = alg.upper()
    if name.startswith("HS"):
        digest = {"HS384": hashlib.sha384, "HS512": hashlib.sha512}.get(name, hashlib.sha256)
        return lambda data: hmac.digest(hmac_key, data, digest)
    if isinstance(key, rsa.RSAPrivateKey) and name.startswith("RS"):
        return lambda data: key.sign(data, padding.PKCS1v15(), hashes.SHA256())
    if isinstance(key, ec.EllipticCurvePrivateKey) and name.startswith("ES"):
        return lambda data: _raw_ecdsa(key.sign(data, ec.ECDSA(hashes.SHA256())))
    return lambda _: b""


def flipped(sign: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """Return a signing function whose first bit is flipped."""

    def sign_badly(data: bytes) -> bytes:
        signature = sign(data)
        return bytes([signature[0] ^ 0x80]) + signature[1:]

    return sign_badly


def _raw_ecdsa(der: bytes) -> bytes:
    r, s = decode_dss_signature(der)
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
