"""PydanticAI: the tools of an MCP server, in a session for each run, with the token of the run's user."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Self

from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_ai.tools import RunContext, Tool
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, ToolsetTool

from oauthbroker import Turn
from oauthbroker.integrations.consent import Missing
from oauthbroker.integrations.mcp_servers import HttpClients, OAuthMcp
from oauthbroker.integrations.pydantic_ai import OAuthToolset


@dataclass
class OAuthMcpToolset(OAuthToolset):
    """Defers the calls of an MCP server's tools as OAuthToolset does. `toolset` makes PydanticAI's own `MCPToolset` for
    a run, from a factory of HTTP clients."""

    wrapped: AbstractToolset[Turn] = field(default_factory=FunctionToolset)  # until a run begins
    _: KW_ONLY
    server: OAuthMcp
    toolset: Callable[[HttpClients], AbstractToolset[Turn]]
    is_open: bool = field(default=False, init=False)

    async def for_run(self, ctx: RunContext[Turn]) -> AbstractToolset[Turn]:
        return replace(self, wrapped=self.toolset(self.server.http_clients(ctx.deps)))

    async def __aenter__(self) -> Self:
        return self  # the session begins when the tools are listed: without consent there is none

    async def __aexit__(self, *args: object) -> bool | None:
        return await self.wrapped.__aexit__(*args) if self.is_open else None

    async def get_tools(self, ctx: RunContext[Turn]) -> dict[str, ToolsetTool[Turn]]:
        async def tools() -> list[ToolsetTool[Turn]]:
            if not self.is_open:
                await self.wrapped.__aenter__()
                self.is_open = True
            return list((await self.wrapped.get_tools(ctx)).values())

        connect: Tool[Turn] = Tool(
            lambda: self.server.connected, name=self.server.connect, description=self.server.about
        )
        (ours,) = (await FunctionToolset([connect]).get_tools(ctx)).values()
        found = await self.server.listed(ctx.deps, tools, ours)
        return {tool.tool_def.name: replace(tool, toolset=self) for tool in found}

    async def missing(self, turn: Turn, name: str) -> Missing:  # noqa: ARG002  (all tools of a server need the same)
        return await self.server.missing(turn)

    async def run_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Turn], tool: ToolsetTool[Turn]
    ) -> Any:
        if name == self.server.connect:
            return self.server.connected
        try:
            return await self.wrapped.call_tool(name, tool_args, ctx, replace(tool, toolset=self.wrapped))
        except (ModelRetry, ToolFailed) as error:
            raise self.server.lacks(ctx.deps, str(error)) or error from None
