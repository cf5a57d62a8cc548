"""Authorizations under way: how they stand, taken back, and confirmed by who knows whose browser it was."""

from __future__ import annotations

from starlette.responses import Response

from oauthbroker.access.turn_token_cache import TurnTokenHolder
from oauthbroker.core.clock import printed
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.token_results import SessionOutcome
from oauthbroker.records import specification_form
from oauthbroker.web.api.handler_call import AnyCall, ApiCall, reply
from oauthbroker.web.api.request_models import (
    ConnectionsFor,
    NoParameters,
    SessionPath,
    SessionsQuery,
)

SessionCall = ApiCall[NoParameters, NoParameters, SessionPath]


async def list_sessions(call: ApiCall[NoParameters, SessionsQuery, NoParameters]) -> Response:
    """List a page of sessions in the order of ids; every page reads every session."""
    asked = call.query
    every = await call.services.sessions.list(app=asked.app, subject=asked.subject, status=asked.status)
    if not every and asked.app is not None:
        await call.services.grants.check_known(asked.app)
    left = sorted((it for it in every if it.id > (asked.after or "")), key=lambda it: it.id)
    page = left[: asked.limit]
    more = {"next": page[-1].id} if len(left) > len(page) else {}
    return reply({"sessions": [specification_form.session_record(it) for it in page], **more})


async def session_record(call: SessionCall) -> Response:
    """Return a session as the specification prints it, with its secrets masked, while the store keeps it."""
    record = await call.services.sessions.find(call.path.id)
    if record is None:
        raise BrokerError(Code.NOT_FOUND)
    return reply(specification_form.session_record(record))


async def session_state(call: SessionCall) -> Response:
    """Return a session's state. Answers 404 to turns that do not own the session, as for an unknown id."""
    session_id = call.path.id
    outcome = await call.services.outcomes.now(session_id) if await _concerns(call) else SessionOutcome("expired")
    return reply(_outcome(session_id, outcome))


async def cancel_session(call: SessionCall) -> Response:
    if not await _concerns(call):
        return reply({"cancelled": False})
    await call.made(call.path.id)
    return reply({"cancelled": await call.services.pending.cancel(call.path.id)})


async def confirm_session(call: AnyCall) -> Response:
    """Confirm a handle for the runtime, or relay with a turn's own token a code that was sent in its conversation."""
    if isinstance(call.caller, TurnTokenHolder):
        await call.made()  # which session a code is of is not known before it is tried
        outcome = await call.services.pending_codes.relay(call.caller.turn, call.body.channelCode.reveal(), None)
    else:
        await call.made(call.services.pending_codes.session_in(call.body.handle.reveal()))
        outcome = await call.services.pending_codes.confirm(call.body.handle.reveal(), call.body.subject)
    return reply(_outcome(outcome.auth_session_id, outcome))


async def connections_link(call: ApiCall[ConnectionsFor, NoParameters, NoParameters]) -> Response:
    url, until = await call.services.connections.link(call.body.subjects.given(), noted=call.made)
    await call.still()
    return reply({"url": url, "expiresAt": printed(until)}, 201)


async def _concerns(call: SessionCall) -> bool:
    """Return whether a session concerns the caller. All concern runtimes and operators; a turn, what its own
    conversation asked for, for its own subjects and with an app that its token may use."""
    token_holder = call.caller
    if not isinstance(token_holder, TurnTokenHolder):
        return True
    return await call.services.outcomes.concern(call.path.id, token_holder.turn, token_holder.may_ask)


def _outcome(session_id: str, outcome: SessionOutcome) -> dict[str, str]:
    code = {} if outcome.code is None else {"code": outcome.code.value}
    return {"authSessionId": session_id, "status": outcome.status, **code}
