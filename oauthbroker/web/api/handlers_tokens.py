"""The token call over HTTP: the three results of `ctx.oauth`."""

from __future__ import annotations

from starlette.responses import Response

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.results import Failed, TokenResult
from oauthbroker.web.api.doors import AnyCall, ApiCall, reply
from oauthbroker.web.api.fields import NamedApp
from oauthbroker.web.api.models import NoParameters, RejectedToken, TokenRequest

DENIALS = frozenset({Code.APP_FORBIDDEN, Code.SCOPE_NOT_ALLOWED, Code.NOT_ALLOWED})


async def get_token(call: ApiCall[TokenRequest, NoParameters, NoParameters]) -> Response:
    asked = call.body
    result = await call.services.contexts.of_guest(call.guest).get_access_token(
        ref_of(asked.oauthAppRef), asked.scopes, asked.minTtlSeconds, switch_account=asked.switchAccount
    )
    return await _answer(call, result)


async def report_rejected(call: ApiCall[RejectedToken, NoParameters, NoParameters]) -> Response:
    asked = call.body
    result = await call.services.contexts.of_guest(call.guest).report_rejected(
        ref_of(asked.oauthAppRef), asked.accessToken, asked.scopes
    )
    return await _answer(call, result)


def ref_of(ref: str | NamedApp) -> str:
    """As the rooms take it."""
    return ref if isinstance(ref, str) else f"{ref.kind}/{ref.name}"


async def _answer(call: AnyCall, result: TokenResult) -> Response:
    """Audit a tool that asked beyond its declaration. A turn that ended during the call is refused as
    it would have been before it."""
    if isinstance(result, Failed) and result.code is Code.TURN_ENDED:
        raise BrokerError(Code.TURN_ENDED)
    if isinstance(result, Failed) and result.code in DENIALS:
        await call.refused(result.code)
    return reply(result.to_json())
