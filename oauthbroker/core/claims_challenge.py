"""Read Microsoft's claims challenge: an API that wants a token with other claims says which ones."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Final

from oauthbroker.core.bearer_challenge import UNAUTHORIZED, bearer_challenge
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.strict_json import Json, decode_object

LONGEST_CLAIMS: Final = 4096  # characters, in base64 and as they become a part of a URL
_ONLY = "access_token"


def demanded_claims(status: int, headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the claims of a 401 with `error="insufficient_claims"` as `claims_of` does. Empty without them."""
    if status != UNAUTHORIZED:
        return ""
    said = b", ".join(value for name, value in headers if name.lower() == b"www-authenticate")
    challenge = bearer_challenge(said.decode("latin-1")) or {}
    return claims_of(challenge.get("claims", "")) if challenge.get("error") == "insufficient_claims" else ""


def claims_of(encoded: str) -> str:
    """Return base64 JSON as a claims request (OpenID Connect Core 1.0 section 5.5), in one spelling. Empty for text
    that is too long, or anything but an object about the access token alone: no API may ask for another ID token, by
    which accounts are told apart."""
    if len(encoded) > LONGEST_CLAIMS:
        return ""
    plain = encoded.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        body = base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
        claims = decode_object(body, Code.REQUEST_INVALID)
    except (BrokerError, ValueError):
        return ""
    if claims.keys() != {_ONLY} or not isinstance(claims[_ONLY], dict) or not claims[_ONLY]:
        return ""
    spelled = spelled_claims(claims)
    return spelled if len(spelled) <= LONGEST_CLAIMS else ""  # other letters are longer there


def merged_claims(own: str, demanded: str) -> str:
    """Return the claims request of an app's own options with the demanded claims in it. What the app says stays."""
    try:
        ours = decode_object(own.encode(), Code.REQUEST_INVALID) if own else {}
        theirs = decode_object(demanded.encode(), Code.REQUEST_INVALID)
    except BrokerError:
        return demanded
    about = ours.get(_ONLY)
    return spelled_claims({**ours, _ONLY: {**theirs[_ONLY], **(about if isinstance(about, dict) else {})}})


def checked_claims(reported: object) -> str:
    """Return what a tool reports, which is the text of the challenge, as `claims_of` does. Raises `requestInvalid`."""
    if reported is None:
        return ""
    claims = claims_of(reported) if isinstance(reported, str) else ""
    if not claims:
        raise BrokerError(Code.REQUEST_INVALID, note="claims")
    return claims


def spelled_claims(claims: dict[str, Json]) -> str:
    return json.dumps(claims, sort_keys=True, separators=(",", ":"))
