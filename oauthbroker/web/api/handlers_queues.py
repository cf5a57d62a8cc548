"""For operators: the queues of all agents, and dead letters."""

from __future__ import annotations

from starlette.responses import Response

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.web.api.handler_call import AnyCall, ApiCall, nothing, reply
from oauthbroker.web.api.request_models import AgentPath, EventPath, NoParameters

LetterCall = ApiCall[NoParameters, NoParameters, EventPath]


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
