"""A small MCP host: `python host.py CONFIG TOOL` calls a tool of the server of OAuthApp/mail-server.

The host is an agent runtime with a broker of its own. It shows two kinds of links: its own, which signs the user in to
the server, and those of the tools of the server.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

from oauthbroker import AuthorizationRequired, Broker, Turn, TurnAuth, open_broker
from oauthbroker.mcp import McpTransport

APP = "OAuthApp/mail-server"


async def show_link(asked: AuthorizationRequired) -> None:
    """Show the link that signs the user in to the server."""
    print("host  ", asked.message, asked.authorization_url, flush=True)


async def elicit(context: Any, params: Any) -> ElicitResult:
    """Show the link of a tool of the server. A real host names the server, and asks whether to open it."""
    del context
    print("server", params.message, params.url, flush=True)
    return ElicitResult(action="accept")


async def call(broker: Broker, turn: Turn, url: str, tool: str) -> str:
    """Call a tool in a session of this user."""
    transport = McpTransport(broker, turn, APP, show=show_link)
    async with (
        httpx2.AsyncClient(transport=transport) as http,
        Client(streamable_http_client(url, http_client=http), elicitation_callback=elicit) as client,
    ):
        (content,) = (await client.call_tool(tool, {})).content
        return str(getattr(content, "text", ""))


async def main(config: Path, tool: str) -> None:
    async with open_broker(config) as broker, broker.serving():
        app = broker.bundle.apps[APP.partition("/")[2]]
        auth = TurnAuth(actor={"type": "user", "id": "local:user:me"}, subjects={"user": "local:user:me"})
        turn = Turn(agent_name="host", instance_key="session-1", auth=auth)
        for _ in range(2):  # the second call needs no link
            print("answer", await call(broker, turn, app.mcp.url if app.mcp else "", tool), flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
