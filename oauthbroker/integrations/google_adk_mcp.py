"""Google ADK: an MCP toolset whose sessions carry the token of their user, and whose tools ask as function tools do."""

from __future__ import annotations

import json
from typing import Any, Final

from google.adk.tools.authenticated_function_tool import AuthenticatedFunctionTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.mcp_tool.mcp_session_manager import StreamableHTTPConnectionParams
from google.adk.tools.mcp_tool.mcp_toolset import McpToolset

from oauthbroker import Turn
from oauthbroker.integrations.google_adk import OAuthProvider
from oauthbroker.integrations.mcp_servers import OAuthMcp, key_of

_TURN: Final = "oauthbroker-turn"  # a header that names the turn to us; it leaves no process


class OAuthMcpTools(McpToolset):
    """The tools of the MCP server at a URL. `connection` and `more` are for ADK's `StreamableHTTPConnectionParams` and
    `McpToolset`. ADK has a session for each set of headers, and so one for each turn's user."""

    def __init__(
        self, provider: OAuthProvider, server: OAuthMcp, url: str, *, connection: Any = None, **more: Any
    ) -> None:
        self._provider, self._server = provider, server
        provider.servers[server.name] = server
        params = StreamableHTTPConnectionParams(url=url, httpx_client_factory=self._client, **(connection or {}))
        scheme = provider.needs(server.name).auth_scheme
        super().__init__(connection_params=params, header_provider=self._names_turn, auth_scheme=scheme, **more)
        self._use_invocation_cache = False  # a run that goes on is the same invocation, and has other tools

    def get_auth_config(self) -> None:
        """Return None: ADK would ask before the model is asked, and again after each refusal."""

    async def get_tools(self, readonly_context: Any = None) -> list[BaseTool]:
        async def tools() -> list[BaseTool]:
            found = await super(OAuthMcpTools, self).get_tools(readonly_context)
            return [self._pausing(each) for each in found]

        async def connect() -> str:
            return self._server.connected

        connect.__name__, connect.__doc__ = self._server.connect, self._server.about
        ours = AuthenticatedFunctionTool(func=connect, auth_config=self._provider.needs(self._server.name))
        return await self._server.listed(self._provider.turn_of(readonly_context), tools, ours)

    def _pausing(self, tool: Any) -> Any:
        """Return a tool that is called once more if the server lacked consent: it then asks before the call."""
        run = tool.run_async

        async def run_async(*, args: dict[str, Any], tool_context: Any) -> Any:
            result = await run(args=args, tool_context=tool_context)
            said = result.get("content", ()) if isinstance(result, dict) else ()
            text = " ".join(part.get("text", "") for part in said)
            if self._server.lacks(self._provider.turn_of(tool_context), text) is None:
                return result
            return await run(args=args, tool_context=tool_context)

        tool.run_async = run_async
        return tool

    def _names_turn(self, context: Any) -> dict[str, str]:
        return {_TURN: key_of(self._provider.turn_of(context))}

    def _client(self, headers: Any = None, timeout: Any = None, auth: Any = None) -> Any:  # noqa: ARG002
        theirs = {name: value for name, value in headers.items() if name != _TURN}
        return self._server.http_clients(Turn.from_json(json.loads(headers[_TURN])))(theirs, timeout)
