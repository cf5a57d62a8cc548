"""Play an agent with one tool and one queue. It uses the broker as a runtime does."""

from __future__ import annotations

import asyncio
import http.client
import json
from typing import Any
from urllib.parse import urlsplit

from oauthbroker import AuthorizationRequired, Broker, Failed, Ready, Turn, TurnAuth
from oauthbroker.cli.demo.bundle import APP, SCOPE, TOOL
from oauthbroker.core.dataclasses import dataclass

AGENT = "planner"
TOOL_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Fetched:
    """The tool's result. The token itself stays in the tool."""

    status: int
    scopes: tuple[str, ...]
    body: dict[str, Any]


def first_turn(subject: str) -> Turn:
    """Return the turn of Alice's message to the agent in a chat."""
    auth = TurnAuth(actor={"type": "user", "id": subject, "display": "Alice Arden"}, subjects={"user": subject})
    return Turn(AGENT, "chat-1", "Swarm/demo", origin={"connector": "chat", "channel": "C1"}, auth=auth)


async def call_tool(broker: Broker, turn: Turn, api: str) -> Fetched | AuthorizationRequired | Failed:
    """Call the tool, with access to the apps that it declared. Return today's messages, or the request for consent."""
    result = await broker.oauth(turn, tool=TOOL).get_access_token(f"OAuthApp/{APP}", scopes=[SCOPE])
    return await asyncio.to_thread(_fetch, api, result) if isinstance(result, Ready) else result


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
