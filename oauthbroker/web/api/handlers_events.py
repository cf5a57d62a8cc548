"""The agents' side of the queues, for runtimes in other processes."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.web.api.handler_call import ApiCall, nothing
from oauthbroker.web.api.request_models import AgentPath, EventPath, EventsQuery, NoParameters, Settle
from oauthbroker.web.api.streaming import STREAM, EventStream, OneEvent, lease_for, watching
from oauthbroker.web.request_limits import may_take_long

SettleCall = ApiCall[Settle, NoParameters, EventPath]


async def next_event(call: ApiCall[NoParameters, EventsQuery, AgentPath]) -> Response:
    """Answer with one event, or 204 after `wait` seconds without any; with a stream if the caller accepts one."""
    call.services.events.check_polled(call.path.agent)  # before a stream begins
    may_take_long(call.request)
    if wants_stream(call.request):
        return EventStream(services=call.services, request=call.request, agent=call.path.agent, still=call.still)
    async with watching(call.request) as gone:
        delivery = await lease_for(call.services, call.path.agent, call.query.wait, gone, call.still)
    return nothing() if delivery is None else OneEvent(delivery)


async def ack_event(call: SettleCall) -> Response:
    return await _settle(call, done=True)


async def nack_event(call: SettleCall) -> Response:
    return await _settle(call, done=False)


async def _settle(call: SettleCall, *, done: bool) -> Response:
    lease = call.body.lease.reveal()
    if not await call.services.events.settle(call.path.agent, call.path.eventId, lease, done=done):
        raise BrokerError(Code.LEASE_LOST)
    return nothing()


def wants_stream(request: Request) -> bool:
    return STREAM in request.headers.get("accept", "").lower()
