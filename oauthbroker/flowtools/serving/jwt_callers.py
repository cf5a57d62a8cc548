"""JWTs of configured issuers: the signature by an algorithm that was fixed in advance, then the claims."""

from __future__ import annotations

import asyncio
import re
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from oauthbroker import BrokerError, Code, Turn, TurnAuth
from oauthbroker.flowtools.running.ports import AGENT
from oauthbroker.flowtools.serving.key_sets import PublicKeys, fitting_keys, is_signed, keys_of
from oauthbroker.flowtools.serving.kinds import IssuerSpec, filled, slots
from oauthbroker.flowtools.specification.failures import Actor
from oauthbroker.plugins import Clock, PublicWeb, decode_json

LONGEST: Final = 16 * 1024
LEEWAY: Final = 30.0  # seconds between the clocks of the issuer and of this host
KEPT_SECONDS, STALE_SECONDS, AGAIN_SECONDS = 600.0, 3600.0, 30.0  # of a key set: refreshed, unusable, asked again
_BEYOND: Final = 1e18  # seconds: longer integers may be no floats
_VALUE: Final = re.compile(r"[A-Za-z0-9._@|+=~-]{1,256}")  # without `:`, which parts ids and subjects
# Claims that an ID token (OpenID Connect Core 1.0 section 3.1.3.6) or a logout token has, and no access token.
_OTHER_USE: Final = frozenset({"at_hash", "c_hash", "events"})
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")


class JwtCallers:
    """Assesses the JWTs of the configured issuers."""

    def __init__(self, issuers: Sequence[IssuerSpec], web: PublicWeb, clock: Clock) -> None:
        self._issuers = {each.issuer: _Issuer(each, web, clock.monotonic) for each in issuers}
        self._clock = clock

    async def actor(self, token: str) -> Actor:
        """Return the caller that a token names. Raises `unauthenticated` for a token that is not good, without a
        reason, and `providerUnreachable` while the keys of its issuer are missing."""
        header, claims = _parts(token)
        said = claims.get("iss")
        issuer = self._issuers.get(said) if isinstance(said, str) else None
        if issuer is None or header.get("alg") not in issuer.spec.algorithms or "crit" in header:
            raise BrokerError(Code.UNAUTHENTICATED, note="issuer, algorithm or a critical header")
        if not _is_access_token(header, claims, issuer.spec.types):
            raise BrokerError(Code.UNAUTHENTICATED, note="a token for another use")
        await issuer.check_signature(token, header)
        self._check_claims(claims, issuer.spec)
        return _actor(claims, issuer.spec)

    def _check_claims(self, claims: Mapping[str, Any], spec: IssuerSpec) -> None:
        now, audience = self._clock.now().timestamp(), claims.get("aud")
        good = (
            spec.audience in (audience if isinstance(audience, list) else [audience])
            and now < _number(claims.get("exp")) + LEEWAY
            and _number(claims.get("nbf", 0)) - LEEWAY <= now
        )
        if not good:
            raise BrokerError(Code.UNAUTHENTICATED, note="claims")


class _Issuer:
    """An issuer and its public keys: a fixed set, or one that is fetched and kept for a while."""

    def __init__(self, spec: IssuerSpec, web: PublicWeb, monotonic: Callable[[], float]) -> None:
        self.spec, self._web, self._monotonic = spec, web, monotonic
        self._fetching = asyncio.Lock()
        self._keys = keys_of(spec.jwks) if spec.jwks is not None else []
        self._fetched, self._asked = float("-inf"), float("-inf")

    async def check_signature(self, token: str, header: Mapping[str, Any]) -> None:
        algorithm, kid = header["alg"], header.get("kid")
        fitting = fitting_keys(await self._current(), algorithm, kid)
        if not fitting:
            fitting = fitting_keys(await self._current(unknown_key=True), algorithm, kid)
        if len(fitting) != 1 or not is_signed(token, fitting[0], algorithm):
            raise BrokerError(Code.UNAUTHENTICATED, note="key or signature")

    async def _current(self, *, unknown_key: bool = False) -> PublicKeys:
        """Return the keys, fetched again if they are old, or if a token names another one; not more often than each
        AGAIN_SECONDS."""
        is_fresh = not unknown_key and self._monotonic() - self._fetched <= KEPT_SECONDS
        if self.spec.jwks_url is None or is_fresh:  # then it waits for no fetch that another token has caused
            return self._keys
        async with self._fetching:
            now = self._monotonic()
            if (unknown_key or now - self._fetched > KEPT_SECONDS) and now - self._asked > AGAIN_SECONDS:
                self._asked = now
                if found := await self._fetch(self.spec.jwks_url):
                    self._keys, self._fetched = found, now
            if now - self._fetched > STALE_SECONDS:
                raise BrokerError(Code.PROVIDER_UNREACHABLE, note="the key set of an issuer of JWTs")
            return self._keys

    async def _fetch(self, url: str) -> PublicKeys:
        try:
            answer = await self._web.send("GET", url, seconds=10.0, most_bytes=256 * 1024)
            return keys_of(decode_json(answer.body, Code.REQUEST_INVALID)) if answer.status == 200 else []
        except BrokerError:
            return []


def _parts(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return header and claims, which nothing has verified yet. Raises `unauthenticated`."""
    found: list[Any] = []
    if len(token) <= LONGEST and _TOKEN.fullmatch(token):
        try:
            found = [decode_json(_decoded(each), Code.UNAUTHENTICATED) for each in token.split(".")[:2]]
        except (BrokerError, ValueError):
            found = []
    if (
        len(found) != 2
        or not all(isinstance(each, dict) for each in found)
        or not isinstance(found[0].get("kid", ""), str)
    ):
        raise BrokerError(Code.UNAUTHENTICATED, note="no JWT")
    return found[0], found[1]


def _is_access_token(header: Mapping[str, Any], claims: Mapping[str, Any], types: Sequence[str]) -> bool:
    """Tell access tokens from ID tokens and other JWTs of one issuer (RFC 8725 section 3.11, RFC 9068 section 4)."""
    written = header.get("typ", "JWT")
    said = written.lower().removeprefix("application/") if isinstance(written, str) else ""
    return said in map(str.lower, types) and not _OTHER_USE & claims.keys()


def _decoded(part: str) -> bytes:
    return urlsafe_b64decode(part + "=" * (-len(part) % 4))


def _actor(claims: Mapping[str, Any], spec: IssuerSpec) -> Actor:
    named = {name for text in (spec.id, *spec.subjects.values()) for name in slots(text)}
    values = {name: claims.get(name) for name in named}
    texts = {name: value for name, value in values.items() if isinstance(value, str) and _VALUE.fullmatch(value)}
    if set(slots(spec.id)) - texts.keys():
        raise BrokerError(Code.UNAUTHENTICATED, note="the claim with the caller's id")
    subjects = {mode: filled(text, texts) for mode, text in spec.subjects.items() if set(slots(text)) <= texts.keys()}
    return actor_of(filled(spec.id, texts), _roles(claims, spec.roles), subjects)


def actor_of(caller: str, roles: Any, subjects: Mapping[Any, str]) -> Actor:
    """Return a caller. Its turn is a conversation of its own, so that the limits of consents count for each caller."""
    turn = Turn(AGENT, caller, auth=TurnAuth(subjects=dict(subjects))) if subjects else None
    return Actor(id=caller, roles=frozenset(roles), turn=turn)


def _roles(claims: Mapping[str, Any], path: str) -> list[str]:
    """Return the roles: a list of texts, or words of one text. A URL is the name of one claim, as in identity
    templates. Any other name is a path: a claim that has its dots in its own name, which
    a user may be able to set, gives no role."""
    found: Any = claims
    for step in [path] if "://" in path else path.split("."):
        found = found.get(step) if isinstance(found, dict) else None
    if isinstance(found, str):
        return found.split()
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def _number(value: Any) -> float:
    """Return a number; NaN, which no comparison holds for, in place of anything else."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) < _BEYOND else float("nan")
