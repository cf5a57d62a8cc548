"""A small MCP host: `python host.py CONFIG TOOL` calls a tool of the server of OAuthApp/mail-server.

The host is an agent runtime with a broker of its own. It shows two kinds of links: its own, which signs the user in to
the server, and those of the tools of the server.
"""

from __future__ import annotations

import argparse
import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult

from oauthbroker import AuthorizationRequired, Broker, ConfigInvalidError, Turn, TurnAuth, open_broker
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


def leaf_of(error: BaseException) -> BaseException:
    """Return the error in the groups of the SDK."""
    return leaf_of(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


async def call(broker: Broker, turn: Turn, url: str, tool: str) -> str:
    """Call a tool in a session of this user. Return what to print: its answer, or why there is none."""
    transport = McpTransport(broker, turn, APP, show=show_link)
    result, why = None, ""
    try:
        async with (
            httpx2.AsyncClient(transport=transport) as http,
            Client(streamable_http_client(url, http_client=http), elicitation_callback=elicit) as client,
        ):
            result = await client.call_tool(tool, {})
    except* MCPError as group:  # no session: the user said no, or the server failed
        why = transport.failure or f"The server refused the session: {leaf_of(group)}"
    if result is None:
        raise SystemExit(f"failed {why}")
    text = " ".join(str(getattr(content, "text", "")) for content in result.content)
    return f"{'failed' if result.is_error else 'answer'} {text}"


async def main(config: Path, tool: str) -> None:
    async with open_broker(config) as broker, broker.serving():
        app = broker.bundle.apps[APP.partition("/")[2]]
        auth = TurnAuth(actor={"type": "user", "id": "local:user:me"}, subjects={"user": "local:user:me"})
        turn = Turn(agent_name="host", instance_key="session-1", auth=auth)
        for _ in range(2):  # the second call needs no link
            print(await call(broker, turn, app.mcp.url if app.mcp else "", tool), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", type=Path, help="The folder of the host's configuration.")
    parser.add_argument("tool")
    given = parser.parse_args()
    try:
        with suppress(KeyboardInterrupt):
            asyncio.run(main(given.config, given.tool))
    except ConfigInvalidError as refused:
        raise SystemExit("\n".join(map(str, refused.problems))) from None
