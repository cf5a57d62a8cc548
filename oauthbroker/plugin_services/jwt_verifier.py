"""Verify JWTs of issuers that a plug-in names, such as the access tokens of its callers (RFC 7519, RFC 8725, RFC 9068).

The signatures are checked by the code that checks ID tokens.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import KW_ONLY, dataclass, field
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.core.strict_json import Json, decode_object
from oauthbroker.plugin_services.public_web import PublicWeb
from oauthbroker.protocol.discovery import DocumentCache
from oauthbroker.protocol.id_token import ASYMMETRIC, KEYS_OF_ITS_OWN, unverified_jwt
from oauthbroker.protocol.metadata import public_keys
from oauthbroker.protocol.network.transport import TransportFailed

if TYPE_CHECKING:
    from joserfc.jwk import Key

LEEWAY_SECONDS: Final = 30.0  # between the clocks of the issuer and of this host
KEPT_SECONDS: Final = 600.0  # of a key set: a key that its issuer has removed ends with it
MOST_KEY_BYTES: Final = 256 * 1024
_BEYOND: Final = 1e12  # seconds since 1970
# Claims of ID tokens (OpenID Connect Core 1.0 section 3.1.3.6) and of logout tokens, which are no access tokens.
_OTHER_USE: Final = frozenset({"at_hash", "c_hash", "events"})


@dataclass(frozen=True, slots=True)
class JwtIssuer:
    """An issuer whose JWTs are accepted when they are made for `audience`. Its public keys are `jwks`, a key set, or
    are fetched from `jwks_url`. `types` are the values of `typ` in the header that are accepted; add `jwt` for an
    issuer whose access tokens have no type of their own, or none at all."""

    issuer: str
    audience: str
    _: KW_ONLY
    jwks: Mapping[str, Any] | None = field(default=None, repr=False)
    jwks_url: str = ""
    algorithms: Collection[str] = ("RS256", "ES256")
    types: Collection[str] = ("at+jwt",)

    def __post_init__(self) -> None:
        if not self.issuer or not self.audience:
            raise ValueError("an issuer of JWTs has an `issuer` and an `audience`")
        if (self.jwks is None) == (not self.jwks_url):
            raise ValueError("an issuer of JWTs has either `jwks` or `jwks_url`")
        if self.jwks is not None and not _is_public(self.jwks.get("keys")):
            raise ValueError("`jwks` of an issuer of JWTs has a usable key, and public keys only")
        if isinstance(self.algorithms, str) or not self.algorithms or not ASYMMETRIC.keys() >= {*self.algorithms}:
            raise ValueError(f"`algorithms` of an issuer of JWTs are some of {', '.join(sorted(ASYMMETRIC))}")


class JwtVerifier:
    """Verifies the JWTs of some issuers. Belongs to the event loop of `web`, which fetches their keys."""

    def __init__(self, issuers: Sequence[JwtIssuer], web: PublicWeb, clock: Clock) -> None:
        self._issuers = {each.issuer: (each, _KeySet(each, web, clock)) for each in issuers}
        self._clock = clock

    async def claims(self, token: Secret) -> Mapping[str, Any]:
        """Return the claims of a token, all of them verified to come from their issuer and to be for its audience and
        for now. Raises `unauthenticated` for any other token, and `providerUnreachable` or `outgoingProxyRefused` while
        the keys of its issuer are missing."""
        header, unverified = _parts(token)
        said = unverified.get("iss")
        issuer, keys = self._issuers.get(said, (None, None)) if isinstance(said, str) else (None, None)
        if issuer is None or keys is None:
            raise _refused("iss")
        if header.get("alg") not in issuer.algorithms or {"crit", "b64", *KEYS_OF_ITS_OWN} & header.keys():
            raise _refused("header")
        if not _is_type(header.get("typ", "jwt"), issuer.types) or _OTHER_USE & unverified.keys():
            raise _refused("a token for another use")
        claims = await keys.signed(token, header)
        self._check(claims, issuer)
        return claims

    def _check(self, claims: Mapping[str, Json], issuer: JwtIssuer) -> None:
        now, audience = self._clock.now().timestamp(), claims.get("aud")
        if claims.get("iss") != issuer.issuer:
            raise _refused("iss")
        if issuer.audience not in (audience if isinstance(audience, list) else [audience]):
            raise _refused("aud")
        if not now < _seconds(claims.get("exp")) + LEEWAY_SECONDS:
            raise _refused("exp")
        if not _seconds(claims.get("nbf", 0)) - LEEWAY_SECONDS <= now:
            raise _refused("nbf")


class _KeySet:
    """The public keys of one issuer."""

    def __init__(self, issuer: JwtIssuer, web: PublicWeb, clock: Clock) -> None:
        self._issuer, self._web = issuer, web
        self._fetched: DocumentCache[tuple[Key, ...]] = DocumentCache(clock, good_seconds=KEPT_SECONDS)
        self._fixed = () if issuer.jwks is None else public_keys(issuer.jwks.get("keys"))

    async def signed(self, token: Secret, header: Mapping[str, Json]) -> dict[str, Json]:
        """Return the claims that one of the keys has signed."""
        from oauthbroker.protocol.id_token_signature import signed_payload  # imported here: no start needs joserfc

        keys, listed = await self._keys(header.get("kid")), [*self._issuer.algorithms]
        try:
            payload = signed_payload(token, str(header["alg"]), header.get("kid"), keys, listed)
            return decode_object(payload, Code.UNAUTHENTICATED)
        except BrokerError as error:
            note = error.note
        raise _refused(note)

    async def _keys(self, kid: str | None) -> tuple[Key, ...]:
        """Return the keys, fetched again for a key id that is new, at most once a minute."""
        if not self._issuer.jwks_url:
            return self._fixed
        keys = await self._fetched.get(self._fetch)
        if kid is not None and all(key.kid != kid for key in keys):
            keys = await self._fetched.refresh(keys, self._fetch)
        return keys

    async def _fetch(self) -> tuple[Key, ...]:
        found: Any = None
        code, why = Code.PROVIDER_UNREACHABLE, ""
        try:
            answer = await self._web.send("GET", self._issuer.jwks_url, seconds=10.0, most_bytes=MOST_KEY_BYTES)
            if answer.status == 200 and not answer.truncated:
                found = decode_object(answer.body, code).get("keys")
        except TransportFailed as error:
            code, why = error.code, f": {error.note}"  # the company's proxy may have refused
        except BrokerError:
            found = None
        if not isinstance(found, list):
            raise BrokerError(code, note=f"the key set of an issuer of JWTs{why}")
        return public_keys(found)


def _is_public(entries: Json) -> bool:
    """Tell whether a key set has a key that can be used, and neither a private nor a shared one."""
    return bool(public_keys(entries)) and not any(
        {"d", "k"} & each.keys() for each in entries if isinstance(each, dict)
    )


def _parts(token: Secret) -> tuple[dict[str, Json], dict[str, Json]]:
    """Return header and claims, which nothing has verified yet. Raises `unauthenticated`."""
    try:
        header, claims = unverified_jwt(token)
    except BrokerError:
        header = claims = {}
    if not isinstance(header.get("kid", ""), str) or not isinstance(header.get("alg"), str):
        raise _refused("no JWT")
    return header, claims


def _is_type(said: Json, types: Collection[str]) -> bool:
    """Tell access tokens from other JWTs of one issuer (RFC 8725 section 3.11, RFC 9068 section 4)."""
    return isinstance(said, str) and said.lower().removeprefix("application/") in {each.lower() for each in types}


def _seconds(value: Json) -> float:
    """Return a time; NaN, which no comparison holds for, in place of anything else."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value < _BEYOND else float("nan")


def _refused(note: str) -> BrokerError:
    return BrokerError(Code.UNAUTHENTICATED, note=f"a JWT: {note}")
