"""The arguments of a handler: the caller, the parsed request, and the services."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from oauthbroker.access.turn_token_cache import TurnTokenHolder
from oauthbroker.audit import CallMade, CallRefused
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.services import Services
from oauthbroker.web.api.authentication import Caller, id_of
from oauthbroker.web.api.fields import RequestModel
from oauthbroker.web.middleware.access_log import route_template

B = TypeVar("B", bound=RequestModel)
Q = TypeVar("Q", bound=RequestModel)
P = TypeVar("P", bound=RequestModel)


Still = Callable[[], Awaitable[None]]


@dataclass(slots=True, kw_only=True)
class ApiCall(Generic[B, Q, P]):
    """One call that may be made: the caller has the rights that the operation asks for, and the request is valid.
    `still` raises `unauthenticated`, `turnEnded` or `notAllowed` once that is over."""

    request: Request
    services: Services
    caller: Caller | None
    body: B
    query: Q
    path: P
    still: Still

    @property
    def token_holder(self) -> TurnTokenHolder:
        """The caller of an operation that is for turn tokens."""
        if not isinstance(self.caller, TurnTokenHolder):
            raise BrokerError(Code.NOT_ALLOWED)
        return self.caller

    async def made(self, target: str | None = None) -> None:
        """Write the change into the audit log, before the act. Raises `storeUnavailable`; then nothing may happen."""
        if self.caller is None:
            raise BrokerError(Code.UNAUTHENTICATED)
        entry = CallMade(route=_route(self.request), caller=id_of(self.caller), target=target)
        self.services.audit.write(entry, self.services.clock.now())

    async def refused(self, code: Code) -> None:
        """Write the refusal into the audit log."""
        await note_refused(self.services, self.caller, self.request, code)


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
AnyCall = ApiCall[Any, Any, Any]


async def note_refused(services: Services, caller: Caller | None, request: Request, code: Code) -> None:
    """Write a refusal into the audit log: the route as it is declared, and the caller as far as it is known."""
    token_holder = caller if isinstance(caller, TurnTokenHolder) else None
    entry = CallRefused(
        route=_route(request),
        code=code.value,
        caller=None if caller is None else id_of(caller),
        agent=None if token_holder is None else token_holder.turn.agent_name,
        tool=None if token_holder is None else token_holder.tool,
    )
    services.audit.write(entry, services.clock.now())


def _route(request: Request) -> str:
    return f"{request.method} {route_template(request.scope)}"


class JsonReply(Response):
    """JSON as bytes."""

    def __init__(self, body: bytes, status: int = 200) -> None:
        self.body, self.status_code, self.background = body, status, None
        self.raw_headers = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/json")]


def reply(body: Mapping[str, Any], status: int = 200) -> Response:
    """Return JSON, spelt as `json.dumps` of the same answer in Python with compact separators and no ASCII escapes."""
    return JsonReply(encoded(body), status)


def encoded(body: Mapping[str, Any]) -> bytes:
    """Return the bytes of `reply`."""
    return _ENCODER.encode(body).encode()


def nothing() -> Response:
    """Return 204, without a body."""
    return Response(status_code=204)
