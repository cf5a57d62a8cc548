"""The OpenAI Agents SDK: an MCP server for all users of an agent, whose calls wait for approval as other tools' do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from agents.mcp import MCPServer
from mcp.types import CallToolResult, TextContent, Tool

from oauthbroker.integrations.mcp_servers import NO_ARGUMENTS, HttpClients, OAuthMcp

_TURN: Final = "oauthbroker/turn"  # from the resolver of a call's metadata to the call; it leaves no process


class OAuthMcpServer(MCPServer):
    """The tools of an MCP server for an agent's `mcp_servers`. `session` makes the SDK's `MCPServerStreamableHttp` from
    a factory of HTTP clients: each list and each call has a session of its own, so that no two users share one."""

    def __init__(self, server: OAuthMcp, session: Callable[[HttpClients], Any]) -> None:
        resolver: Any = lambda about: {_TURN: about.run_context.context}  # noqa: E731
        super().__init__(require_approval="always", tool_meta_resolver=resolver)
        self.oauth_mcp, self._session = server, session

    @property
    def name(self) -> str:
        return self.oauth_mcp.name

    async def connect(self) -> None:
        """Do nothing: sessions begin and end with their calls."""

    cleanup = connect

    async def list_tools(self, run_context: Any = None, agent: Any = None) -> list[Tool]:
        server, turn = self.oauth_mcp, run_context.context

        async def tools() -> list[Tool]:
            async with self._session(server.http_clients(turn)) as session:
                return await session.list_tools(run_context, agent)  # type: ignore[no-any-return]

        ours = Tool(name=server.connect, description=server.about, input_schema=NO_ARGUMENTS)
        return await server.listed(turn, tools, ours)

    async def call_tool(
        self, tool_name: str, arguments: dict[str, Any] | None, meta: dict[str, Any] | None = None
    ) -> CallToolResult:
        if tool_name == self.oauth_mcp.connect:
            return CallToolResult(content=[TextContent(type="text", text=self.oauth_mcp.connected)])
        theirs = dict(meta or {})
        async with self._session(self.oauth_mcp.http_clients(theirs.pop(_TURN))) as session:
            return await session.call_tool(tool_name, arguments, theirs or None)  # type: ignore[no-any-return]

    async def get_prompt(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError("prompts are not supported: the SDK does not say for which user it asks for them")

    list_prompts = get_prompt
