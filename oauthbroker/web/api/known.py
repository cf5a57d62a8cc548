"""Who calls, and not too often: what every answer to a caller begins with, on whatever path."""

from __future__ import annotations

from http import HTTPStatus

from starlette.requests import Request

from oauthbroker.errors import BrokerError, Code
from oauthbroker.web.api.caller import Caller, Callers, ended_turn, id_of
from oauthbroker.web.api.limits import RequestLimits


async def known(request: Request, callers: Callers, limits: RequestLimits) -> Caller:
    """Raises `unauthenticated` or `turnEnded`; `rateLimited` instead to a caller that calls too often, and to an
    address, or for a turn that is over, that tries too often."""
    try:
        caller = await callers.who(request)
    except BrokerError as error:
        stranger = error
    else:
        limits.called(id_of(caller))
        return caller
    if stranger.code is Code.TURN_ENDED:  # we signed it: who holds it was known, and costs no neighbour anything
        limits.called(ended_turn(request))
    elif stranger.status == HTTPStatus.UNAUTHORIZED:
        limits.strange(address_of(request))
    raise stranger


def address_of(request: Request) -> str:
    return request.client.host if request.client is not None else "-"
