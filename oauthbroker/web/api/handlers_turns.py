"""Turns: begun and ended by the runtime, narrowed by the holder of a token, and their requests that wait for people."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from starlette.responses import Response

from oauthbroker.core.clock import printed
from oauthbroker.core.secret import Secret
from oauthbroker.model.bundle import ToolAuth
from oauthbroker.model.token_request import WrongArgument, app_name
from oauthbroker.model.turn import Turn, TurnAuth
from oauthbroker.model.turn_token import narrow
from oauthbroker.web.api.authentication import bearer
from oauthbroker.web.api.fields import ref_of
from oauthbroker.web.api.handler_call import AnyCall, ApiCall, nothing, reply
from oauthbroker.web.api.request_models import (
    BeginTurn,
    Narrow,
    NoParameters,
    PendingQuery,
    ToolAuthBody,
    TurnBody,
    TurnPath,
)


async def begin_turn(call: ApiCall[BeginTurn, NoParameters, NoParameters]) -> Response:
    asked = call.body
    begun = await call.services.turns.begin(
        turn_of(asked.turn),
        tools={tool: None if auths is None else _auths(auths) for tool, auths in asked.tools.items()},
        ttl_seconds=asked.ttlSeconds,
        private_links=asked.privateLinks,
        noted=call.made,
    )
    await call.still()  # the store may have taken its time; without its token the turn is of no use
    body = {
        "turnId": begun.turn_id,
        "turnToken": begun.token.reveal(),
        "toolTokens": {tool: token.reveal() for tool, token in begun.tool_tokens.items()},
        "expiresAt": printed(begun.expires_at),
    }
    return reply(body, 201)


async def end_turn(call: ApiCall[NoParameters, NoParameters, TurnPath]) -> Response:
    await call.made(call.path.turnId)
    await call.services.turns.end(call.path.turnId)
    return nothing()


async def narrow_turn(call: ApiCall[Narrow, NoParameters, NoParameters]) -> Response:
    """Narrow a turn token for a caller that cannot compute HMACs. Admitting it once gives its expiry for the answer."""
    asked = call.body
    until = None
    if asked.ttlSeconds is not None:  # in a token time has whole seconds: it never gets less than was asked for
        until = (call.services.clock.now() + timedelta(seconds=asked.ttlSeconds, microseconds=999_999)).replace(
            microsecond=0
        )
    apps = None if asked.apps is None else {app_name(ref_of(each.oauthAppRef)): each.scopes for each in asked.apps}
    if apps is not None and len(apps) != len(asked.apps or ()):
        raise WrongArgument("appTwice", "apps")
    token = narrow(Secret(bearer(call.request)), tool=asked.tool, apps=apps, expires_at=until)
    token_holder = await call.services.turns.admit(token.reveal())
    return reply({"turnToken": token.reveal(), "expiresAt": printed(token_holder.expires_at)})


async def pending_of_turn(call: ApiCall[NoParameters, PendingQuery, NoParameters]) -> Response:
    """Return a turn's pending requests. An unreadable store is a problem: an empty block says that none waits."""
    token_holder = call.token_holder
    apart = token_holder.private_links or call.query.links == "apart"
    block = await call.services.pending.block(token_holder.turn, links="apart" if apart else "inline")
    await call.still()
    items = [item for item in (block or {}).get("items", ()) if token_holder.may_ask(item["oauthAppRef"]["name"])]
    return reply({"type": "auth.pending", "items": items})


async def links_of_turn(call: AnyCall) -> Response:
    links = await call.services.pending.links(call.token_holder.turn)
    await call.still()
    return reply({"links": links})


def turn_of(body: TurnBody) -> Turn:
    swarm = body.swarmRef if isinstance(body.swarmRef, str) else f"{body.swarmRef.kind}/{body.swarmRef.name}"
    auth = TurnAuth(body.auth.actor, body.auth.subjects.given(), body.auth.given_accounts())
    return Turn(body.agentName, body.instanceKey, swarm, origin=body.origin, auth=auth, locale=body.locale)


def _auths(bodies: Sequence[ToolAuthBody]) -> list[ToolAuth]:
    return [
        ToolAuth(
            ref_of(each.oauthAppRef), None if each.scopes is None else tuple(each.scopes), each.delivery is not None
        )
        for each in bodies
    ]
