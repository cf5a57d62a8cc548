"""The queues: the agents' side, for runtimes in other processes; and for operators, what there is, and dead letters."""

from __future__ import annotations

from starlette.responses import Response

from oauthbroker.core.accept_headers import prefers
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.web.api.handler_call import AnyCall, ApiCall, nothing, reply
from oauthbroker.web.api.request_models import AgentPath, EventPath, EventsQuery, NoParameters, Settle
from oauthbroker.web.api.streaming import STREAM, EventStream, OneEvent, lease_for, watching
from oauthbroker.web.gate.request_limits import may_take_long

SettleCall = ApiCall[Settle, NoParameters, EventPath]
LetterCall = ApiCall[NoParameters, NoParameters, EventPath]


async def next_event(call: ApiCall[NoParameters, EventsQuery, AgentPath]) -> Response:
    """Answer with one event, or 204 after `wait` seconds without any; with a stream if the caller likes it better."""
    call.services.events.check_polled(call.path.agent)  # before a stream begins
    may_take_long(call.request)
    if prefers(call.request.headers.get("accept"), STREAM, "application/json", on_a_tie=False):
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


async def list_queues(call: AnyCall) -> Response:
    return reply({"queues": [state.to_json() for state in await call.services.dead_letters.states()]})


async def list_dead_letters(call: ApiCall[NoParameters, NoParameters, AgentPath]) -> Response:
    """List dead letters. A queue keeps so few that no pages are needed."""
    found = await call.services.dead_letters.dead(call.path.agent)
    return reply({"deadLetters": [letter.to_json() for letter in found]})


async def retry_dead_letter(call: LetterCall) -> Response:
    agent, event_id = call.path.agent, call.path.eventId
    return _changed(await call.services.dead_letters.retry(agent, event_id, lambda: call.made(event_id)))


async def drop_dead_letter(call: LetterCall) -> Response:
    agent, event_id = call.path.agent, call.path.eventId
    return _changed(await call.services.dead_letters.drop(agent, event_id, lambda: call.made(event_id)))


def _changed(done: bool) -> Response:  # noqa: FBT001  (its one argument)
    if not done:
        raise BrokerError(Code.NOT_FOUND)
    return nothing()
