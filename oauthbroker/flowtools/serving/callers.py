"""Who calls a flow tool over HTTP: the bearer of a JWT, or of an API key of the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oauthbroker import BrokerError, Code
from oauthbroker.flowtools.serving.jwt_callers import JwtCallers, actor_of
from oauthbroker.flowtools.serving.kinds import FlowIdentitySpec, FlowServiceSpec
from oauthbroker.flowtools.specification.failures import Actor
from oauthbroker.plugins import PublicWeb, SystemClock

if TYPE_CHECKING:
    from starlette.requests import Request

    from oauthbroker import Broker

_KEY = "oabk."


class FlowCallers:
    """Authenticates the callers of one configuration."""

    def __init__(self, spec: FlowServiceSpec, broker: Broker, web: PublicWeb) -> None:
        self._broker, self._keys = broker, spec.api_keys
        self._tokens = JwtCallers(spec.issuers, web, SystemClock())

    async def authenticate(self, request: Request) -> str | None:
        """Keep the caller in the request's state, and return the id by which its limit counts; None for a stranger, who
        may call public tools. Raises `unauthenticated`, and `notAllowed` for a key that the configuration does not
        name."""
        request.state.actor = None
        sent = request.headers.getlist("authorization")
        if not sent:
            return None
        scheme, _, text = sent[0].partition(" ") if len(sent) == 1 else ("", "", "")
        if scheme.lower() != "bearer":
            raise BrokerError(Code.UNAUTHENTICATED)
        if not text.startswith(_KEY):
            actor = request.state.actor = await self._tokens.actor(text)
            return f"jwt-{actor.id}"
        key = await self._broker.api_keys.check(text)
        if key.name not in self._keys:
            raise BrokerError(Code.NOT_ALLOWED, note="the FlowService does not name this API key")
        request.state.actor = identity(f"key:{key.name}", self._keys[key.name])
        return key.id


def identity(caller: str, spec: FlowIdentitySpec) -> Actor:
    """Return the caller that the configuration describes."""
    return actor_of(caller, spec.roles, spec.subjects)


def actor_in(request: Any) -> Actor | None:
    """Return the caller that `authenticate` found."""
    found: Actor | None = request.state.actor
    return found
