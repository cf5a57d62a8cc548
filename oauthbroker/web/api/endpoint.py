"""One path of the API: who calls, how often, may they, and is it sent as the call expects; then its handler."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from oauthbroker.access.turn_token_cache import TurnTokenHolder
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code, Locale
from oauthbroker.services import Services
from oauthbroker.web.api.authentication import Caller, Callers, known, known_to_plugin, may
from oauthbroker.web.api.call_table import Operation
from oauthbroker.web.api.handler_call import ApiCall, note_refused
from oauthbroker.web.api.request_models import NoParameters
from oauthbroker.web.api.request_parsing import RequestInvalid, read_body, read_path, read_query
from oauthbroker.web.gate import error_responses
from oauthbroker.web.middleware.rate_limits import RequestLimits

_NOTHING = NoParameters()


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """All operations of one path. What costs little is checked first: nothing of a body is read for a stranger."""

    operations: Mapping[str, Operation]
    services: Services
    callers: Callers
    limits: RequestLimits
    locale: Locale

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a call: (1) its caller (2) the rate limit (3) the caller's rights (4) path and query (5) body (6) the
        rights again (7) the handler. Always JSON. Raises HTTPException for a method that the path does not have."""
        request, operation = Request(scope, receive, send), self.operations.get(scope["method"])
        if operation is None:
            raise HTTPException(405, headers={"allow": ", ".join(self.operations)})
        caller, call = None, None
        try:
            if operation.who:
                caller = await known(request, self.callers, self.limits)
                _validate(caller, operation)
            else:
                await known_to_plugin(request, operation.authenticate, self.limits)
            call = await self._read(request, operation, caller)
            assert operation.handler is not None  # noqa: S101  (only operations with one are routed)
            response = await operation.handler(call)
        except BrokerError as error:
            if operation.is_token_call and call is None:  # the context counts what comes later
                self.services.contexts.count_refused(error.code)
            response = await self._refusal(request, caller, error)
        await response(scope, receive, send)

    async def _read(self, request: Request, operation: Operation, caller: Caller | None) -> ApiCall[Any, Any, Any]:
        path = _NOTHING if operation.parameters is NoParameters else read_path(request, operation.parameters)
        is_bare = operation.query is NoParameters and not request.scope["query_string"]
        query = _NOTHING if is_bare else read_query(request, operation.query)
        kinds = operation.bodies
        kind = kinds[-1 if isinstance(caller, TurnTokenHolder) else 0] if kinds else None
        still = partial(self._still, request, operation)
        body = _NOTHING if kind is None else await read_body(request, kind, still)
        return ApiCall(
            request=request, services=self.services, caller=caller, body=body, query=query, path=path, still=still
        )

    async def _still(self, request: Request, operation: Operation) -> None:
        """Check the caller's rights again in a long call: keys and turns end meanwhile. Raises as at first."""
        if operation.who:
            _validate(await self.callers.who(request), operation)

    async def _refusal(self, request: Request, caller: Caller | None, error: BrokerError) -> Response:
        """Return the refusal. A caller that reached beyond its rights is audited, above all one that tried to name a
        subject."""
        reached = error.code in {Code.NOT_ALLOWED, Code.TURN_ENDED} or (
            isinstance(caller, TurnTokenHolder) and isinstance(error, RequestInvalid) and error.unknown
        )
        if reached:
            await note_refused(self.services, caller, request, error.code)
        default = (caller.turn.locale if isinstance(caller, TurnTokenHolder) else None) or self.locale
        return error_responses.refusal(error, request, default)


def _validate(caller: Caller, operation: Operation) -> None:
    if not may(caller, operation.who):
        raise BrokerError(Code.NOT_ALLOWED)
