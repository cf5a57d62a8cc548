"""Who calls a flow tool over HTTP: by a JWT of a configured issuer, or an API key of the broker."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import Request

from oauthbroker import Broker, BrokerError, Code, Secret, Turn, TurnAuth
from oauthbroker.flowtools.running.ports import AGENT
from oauthbroker.flowtools.serving.kinds import FlowServiceSpec, IssuerSpec, filled, slots
from oauthbroker.flowtools.specification.failures import Actor
from oauthbroker.plugins import Clock, JwtVerifier, PublicWeb

_KEY: Final = "oabk."
_VALUE: Final = re.compile(r"[A-Za-z0-9._@|+=~-]{1,256}")  # without `:`, which parts ids and subjects


class FlowCallers:
    """Authenticates the callers of one configuration."""

    def __init__(self, spec: FlowServiceSpec, broker: Broker, web: PublicWeb, *, clock: Clock) -> None:
        self._broker, self._keys = broker, spec.api_keys
        self._issuers = {each.issuer: each for each in spec.issuers}
        self._verifier = JwtVerifier([each.verified() for each in spec.issuers], web, clock)

    async def authenticate(self, request: Request) -> str | None:
        """Keep the caller in the request's state, and return the id by which its limit counts; None for a stranger.
        Raises `unauthenticated`, and `notAllowed` for a key that the configuration does not name."""
        request.state.actor = None
        sent = request.headers.getlist("authorization")
        if not sent:
            return None
        scheme, _, text = sent[0].partition(" ") if len(sent) == 1 else ("", "", "")
        if scheme.lower() != "bearer":
            raise BrokerError(Code.UNAUTHENTICATED)
        if not text.startswith(_KEY):
            actor = request.state.actor = await self.of_token(text)
            return f"jwt-{actor.id}"
        key = await self._broker.api_keys.check(text)
        if key.name not in self._keys:
            raise BrokerError(Code.NOT_ALLOWED, note="the FlowService does not name this API key")
        known = self._keys[key.name]
        request.state.actor = actor_of(f"key:{key.name}", known.roles, known.subjects)
        return key.id

    async def of_token(self, token: str) -> Actor:
        """Return the caller that a JWT of an issuer names. Raises as `JwtVerifier.claims`."""
        claims = await self._verifier.claims(Secret(token))
        return _actor(claims, self._issuers[claims["iss"]])


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
    """Return the roles: a list of texts, or words of one text. A URL names one claim, and any other name is a path: a
    claim with dots in its own name, which a user may be able to set, gives no role."""
    found: Any = claims
    for step in [path] if "://" in path else path.split("."):
        found = found.get(step) if isinstance(found, dict) else None
    if isinstance(found, str):
        return found.split()
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []
