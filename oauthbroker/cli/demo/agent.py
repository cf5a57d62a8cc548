"""A small agent: one tool, one queue. Everything it does with the broker is what a runtime does."""

from __future__ import annotations

import asyncio
import http.client
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from oauthbroker import AuthorizationRequired, Broker, Failed, Ready, Turn, TurnAuth
from oauthbroker.cli.demo.bundle import APP, SCOPE, TOOL
from oauthbroker.context import OAuthContext
from oauthbroker.queues import Delivery

AGENT = "planner"
TOOL_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Fetched:
    """What the tool brought home with its token; the token itself stays in the tool."""

    status: int
    scopes: tuple[str, ...]
    body: dict[str, Any]


def first_turn(subject: str) -> Turn:
    """Alice has written to the agent in a chat."""
    auth = TurnAuth(actor={"type": "user", "id": subject, "display": "Alice Arden"}, subjects={"user": subject})
    return Turn(AGENT, "chat-1", "Swarm/demo", {"connector": "chat", "channel": "C1"}, auth)


def turn_of(delivery: Delivery) -> Turn:
    """The turn that an event starts: the same conversation, acting for the same subjects."""
    return delivery.event.turn


async def call_tool(broker: Broker, turn: Turn, api: str) -> Fetched | AuthorizationRequired | Failed:
    """The agent calls its tool, which sees of the broker only what it declared."""
    return await messages(broker.oauth(turn, tool=TOOL), api)


async def messages(oauth: OAuthContext, api: str) -> Fetched | AuthorizationRequired | Failed:
    """The tool: today's messages, or whom to ask first."""
    result = await oauth.get_access_token(f"OAuthApp/{APP}", scopes=[SCOPE])
    if not isinstance(result, Ready):
        return result
    return await asyncio.to_thread(_fetch, api, result)


def _fetch(api: str, ready: Ready) -> Fetched:
    where = urlsplit(api)
    connection = http.client.HTTPConnection(where.netloc, timeout=TOOL_SECONDS)
    try:
        connection.request("GET", where.path, headers={"Authorization": f"Bearer {ready.access_token.reveal()}"})
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    return Fetched(answer.status, ready.scopes, json.loads(body))
