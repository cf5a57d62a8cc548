"""Verify an ID token (OpenID Connect Core 1.0 section 3.1.3.7): `id_token_signature` checks the signature, this module
the claims."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, NewType

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.core.strict_json import Json, decode_object
from oauthbroker.model.apps import App
from oauthbroker.protocol.network.crash_guard import validator

if TYPE_CHECKING:
    from joserfc.jwk import Key

VerifiedClaims = NewType("VerifiedClaims", dict[str, Json])
"""The claims of a verified ID token. Only `verify_id_token` creates them."""

EXPIRY_LEEWAY_SECONDS = 60
CLOCK_LEEWAY_SECONDS = 600  # a provider whose clock is ten minutes off still works
_BY_CLOCK = "by this host's clock"
MAX_LENGTH = 64 * 1024
MAX_SUB = 255
# The asymmetric algorithms, the only ones for any configuration, with their hashes. With HS* every holder of the client
# secret could sign, or a public key could pass for a secret; `none` has no signature.
ASYMMETRIC = {f"{family}{bits}": f"sha{bits}" for family in ("RS", "PS", "ES") for bits in (256, 384, 512)}
ASYMMETRIC |= {"EdDSA": "sha512", "Ed25519": "sha512"}
KEYS_OF_ITS_OWN = frozenset({"jwk", "jku", "x5u", "x5c"})
_BASE64URL = re.compile(r"[A-Za-z0-9_-]+")
_PLACEHOLDER = re.compile(r"\{([A-Za-z0-9_]+)\}")
_ISSUER_PART = re.compile(r"[A-Za-z0-9._-]{1,128}")


class UnverifiedIdToken(NamedTuple):
    """An ID token with its header. The `kid` is for finding keys only."""

    token: Secret
    header: Mapping[str, Json]
    kid: str | None


@validator(Code.ID_TOKEN_INVALID)
def read_id_token(id_token: Secret) -> UnverifiedIdToken:
    """Read the header of an ID token. Raises `idTokenInvalid`."""
    header = _header(id_token)
    kid = header.get("kid")
    if kid is not None and not isinstance(kid, str):
        raise _invalid("kid")
    return UnverifiedIdToken(id_token, header, kid)


@validator(Code.ID_TOKEN_INVALID)
def verify_id_token(
    app: App,
    id_token: UnverifiedIdToken,
    *,
    issuer: str,
    keys: Sequence[Key],
    nonce: Secret | None,
    access_token: Secret,
    now: datetime,
    sent_at: datetime | None = None,
) -> VerifiedClaims:
    """Verify the ID token and return its claims (case 32). Raises `idTokenInvalid`, whose note names the failed check
    and no value.

    (1) size, header, and no key or critical extension in the token (2) an algorithm on the app's list
    (3) one of the provider's keys (4) its signature (5) `iss` byte for byte, or the preset's template filled from the
    claims (6) `aud` is our client alone (7) `azp`, if present, is our client (8) `exp`, `nbf`, `iat` (9) `sub`
    (10) `nonce`, if one was sent (11) `at_hash`, if present.

    `sent_at` is when the token request was sent. A token issued long before is refused as a replay.
    """
    from oauthbroker.protocol.id_token_signature import signed_payload  # imported here: no start needs joserfc

    header = id_token.header  # (1)
    if "crit" in header or "b64" in header or KEYS_OF_ITS_OWN & header.keys():
        raise _invalid("header")
    listed = [name for name in app.habits.id_token_algorithms if name in ASYMMETRIC]
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in listed:  # (2)
        raise _invalid("alg")
    payload = signed_payload(id_token.token, algorithm, id_token.kid, keys, listed)  # (3) (4)
    claims = decode_object(payload, Code.ID_TOKEN_INVALID)
    _check_issuer(claims, issuer, app.habits.issuer_template)  # (5)
    if claims.get("aud") not in (app.client.client_id, [app.client.client_id]):  # (6)
        raise _invalid("aud")
    if claims.get("azp", app.client.client_id) != app.client.client_id:  # (7)
        raise _invalid("azp")
    _check_times(claims, now, sent_at)  # (8)
    _check_sub(claims.get("sub"))  # (9)
    if nonce is not None and not _is_same(claims.get("nonce"), nonce):  # (10)
        raise _invalid("nonce")
    if "at_hash" in claims and not _is_same(claims["at_hash"], _half_hash(access_token, ASYMMETRIC[algorithm])):  # (11)
        raise _invalid("at_hash")
    return VerifiedClaims(claims)


@validator(Code.ID_TOKEN_INVALID)
def unverified_jwt(token: Secret) -> tuple[dict[str, Json], dict[str, Json]]:
    """Return the header and the claims of a JWT, which nothing has verified. Raises `idTokenInvalid`."""
    return _header(token), _object(token.reveal().split(".")[1])


def _header(id_token: Secret) -> dict[str, Json]:
    text = id_token.reveal()
    if len(text) > MAX_LENGTH or text.count(".") != 2:
        raise _invalid("form")
    return _object(text.partition(".")[0])


def _object(segment: str) -> dict[str, Json]:
    if not _BASE64URL.fullmatch(segment) or len(segment) % 4 == 1:
        raise _invalid("form")
    return decode_object(base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4)), Code.ID_TOKEN_INVALID)


def _check_issuer(claims: Mapping[str, Json], issuer: str, template: str) -> None:
    expected = _filled(template, claims) if template else issuer
    if not expected or claims.get("iss") != expected:
        raise _invalid("iss")


def _filled(template: str, claims: Mapping[str, Json]) -> str:
    """Fill the template with the token's claims, such as `https://login.example/{tid}/v2.0`. A value that could be a
    path is refused."""
    for name in _PLACEHOLDER.findall(template):
        value = claims.get(name)
        if not isinstance(value, str) or not _ISSUER_PART.fullmatch(value):
            raise _invalid("iss")
        template = template.replace(f"{{{name}}}", value)
    return template


def _check_times(claims: Mapping[str, Json], now: datetime, sent_at: datetime | None) -> None:
    moment = now.timestamp()
    if (expires := _seconds(claims, "exp")) <= moment - EXPIRY_LEEWAY_SECONDS:
        raise _invalid(f"exp is {moment - expires:.0f} s ago, {_BY_CLOCK}")
    if "nbf" in claims and (begins := _seconds(claims, "nbf")) > moment + CLOCK_LEEWAY_SECONDS:
        raise _invalid(f"nbf is {begins - moment:.0f} s ahead, {_BY_CLOCK}")
    issued = _seconds(claims, "iat")
    if issued > moment + CLOCK_LEEWAY_SECONDS:
        raise _invalid(f"iat is {issued - moment:.0f} s ahead, {_BY_CLOCK}")
    if sent_at is not None and issued < sent_at.timestamp() - CLOCK_LEEWAY_SECONDS:
        raise _invalid(f"iat is {sent_at.timestamp() - issued:.0f} s before the request, {_BY_CLOCK}")


def _seconds(claims: Mapping[str, Json], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise _invalid(name)
    return float(value)


def _check_sub(sub: Json) -> None:
    if not isinstance(sub, str) or not 0 < len(sub) <= MAX_SUB or not sub.isprintable():
        raise _invalid("sub")


def _half_hash(token: Secret, name: str) -> Secret:
    """Return the `at_hash` (section 3.1.3.6): the left half of the hash, base64url."""
    digest = hashlib.new(name, token.reveal().encode("ascii")).digest()
    return Secret(base64.urlsafe_b64encode(digest[: len(digest) // 2]).rstrip(b"=").decode("ascii"))


def _is_same(value: Json, expected: Secret) -> bool:
    return isinstance(value, str) and expected.matches(value)


def _invalid(check: str) -> BrokerError:
    return BrokerError(Code.ID_TOKEN_INVALID, note=check)
