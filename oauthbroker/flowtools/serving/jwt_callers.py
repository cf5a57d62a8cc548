"""Callers with JWTs of the configured issuers: their ids, roles and subjects, by verified claims."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from oauthbroker import BrokerError, Code, Secret, Turn, TurnAuth
from oauthbroker.flowtools.running.ports import AGENT
from oauthbroker.flowtools.serving.kinds import IssuerSpec, filled, slots
from oauthbroker.flowtools.specification.failures import Actor
from oauthbroker.plugins import Clock, JwtIssuer, JwtVerifier, PublicWeb

_VALUE: Final = re.compile(r"[A-Za-z0-9._@|+=~-]{1,256}")  # without `:`, which parts ids and subjects


class JwtCallers:
    """Names the callers of JWTs of the configured issuers."""

    def __init__(self, issuers: Sequence[IssuerSpec], web: PublicWeb, clock: Clock) -> None:
        self._issuers = {each.issuer: each for each in issuers}
        self._verifier = JwtVerifier([_verified(each) for each in issuers], web, clock)

    async def actor(self, token: str) -> Actor:
        """Return the caller that a token names. Raises as `JwtVerifier.claims`."""
        claims = await self._verifier.claims(Secret(token))
        return _actor(claims, self._issuers[claims["iss"]])


def _verified(spec: IssuerSpec) -> JwtIssuer:
    return JwtIssuer(
        spec.issuer,
        spec.audience,
        jwks=spec.jwks,
        jwks_url=spec.jwks_url or "",
        algorithms=spec.algorithms,
        types=spec.types,
    )


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
