"""LangGraph and LangChain: a middleware adds the tools of an MCP server, with the token of the turn's user."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langchain_mcp_adapters.tools import convert_mcp_tool_to_langchain_tool, load_mcp_tools
from mcp.types import Tool

from oauthbroker import Broker, Turn
from oauthbroker.integrations.consent import Missing
from oauthbroker.integrations.langgraph import Handler, OAuthMiddleware
from oauthbroker.integrations.mcp_servers import NO_ARGUMENTS, OAuthMcp
from oauthbroker.mcp import httpx_client


class OAuthMcpMiddleware(OAuthMiddleware):
    """Adds the tools of the MCP server at a URL, and interrupts the graph as OAuthMiddleware does. Their names begin
    with that of the server. `connection` has more for LangChain's own client (`StreamableHttpConnection`)."""

    def __init__(self, broker: Broker, server: OAuthMcp, url: str, *, connection: Any = None) -> None:
        super().__init__(broker)
        self._server, self._begin = server, f"{server.name}_"
        self._about = {**(connection or {}), "transport": "streamable_http", "url": url}
        self._named: Any = {"server_name": server.name, "tool_name_prefix": True}

    @property
    def name(self) -> str:
        return f"OAuthMcpMiddleware[{self._server.name}]"

    async def missing(self, request: Any) -> Missing:
        return await self._server.missing(request.runtime.context)

    async def awrap_model_call(self, request: Any, handler: Handler) -> Any:
        return await handler(await self._with_tools(request))

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        return handler(self.wait(self._with_tools(request)))

    async def _with_tools(self, request: Any) -> Any:
        turn = request.runtime.context

        async def tools() -> Any:
            return await load_mcp_tools(None, connection=self._connection(turn), **self._named)

        listed = await self._server.listed(turn, tools, self._connect())
        return request.override(tools=[*request.tools, *listed])

    async def awrap_tool_call(self, request: Any, handler: Handler) -> Any:
        if not request.tool_call["name"].startswith(self._begin):
            return await handler(request)

        async def called(_: Any) -> Any:
            return self._validated(request, await handler(request.override(tool=self._tool(request))))

        return await super().awrap_tool_call(request, called)

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        if not request.tool_call["name"].startswith(self._begin):
            return handler(request)

        def called(_: Any) -> Any:
            return self._validated(request, handler(request.override(tool=self._tool(request))))

        return super().wrap_tool_call(request, called)

    def _validated(self, request: Any, result: Any) -> Any:
        """Return a result. Raises AuthorizationRequiredError for a call that failed for want of consent."""
        if isinstance(result, ToolMessage) and result.status == "error":
            lacks = self._server.lacks(request.runtime.context, result.text)
            if lacks is not None:
                raise lacks
        return result

    def _tool(self, request: Any) -> Any:
        name = request.tool_call["name"]
        if name == self._server.connect:
            return self._connect()
        about = Tool.model_validate({"name": name.removeprefix(self._begin), "inputSchema": NO_ARGUMENTS})
        connection = self._connection(request.runtime.context)
        tool: Any = convert_mcp_tool_to_langchain_tool(None, about, connection=connection, **self._named)
        tool.func = lambda **arguments: self.wait(tool.coroutine(**arguments))
        return tool

    def _connect(self) -> BaseTool:
        name, about, said = self._server.connect, self._server.about, self._server.connected
        return StructuredTool(name=name, description=about, args_schema=NO_ARGUMENTS, func=lambda: said)

    def _connection(self, turn: Turn) -> Any:
        def client(headers: Any = None, timeout: Any = None, auth: Any = None) -> Any:  # noqa: ARG001
            return httpx_client(self._server.transport(turn), headers=headers, timeout=timeout)

        return {**self._about, "httpx_client_factory": client}
