"""Show the tools, prompts and resources of several MCP servers as one server, with each caller's own tokens for them.

Each request opens a session of its own with a server: no session, token or state is shared by two callers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import anyio
from mcp import Client, MCPError
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import Context
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.subscriptions import PromptsListChanged, ResourcesListChanged, ToolsListChanged
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    CallToolRequestParams,
    CallToolResult,
    GetPromptRequestParams,
    InputRequiredResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    ReadResourceRequestParams,
    TextContent,
    Tool,
)

from oauthbroker import AuthorizationRequired, AuthorizationRequiredError, Broker, BrokerError
from oauthbroker.mcp.audit_types import ServerCalled
from oauthbroker.mcp.consent import STATELESS
from oauthbroker.mcp.listed_tools import CONNECT, ListedTools
from oauthbroker.mcp.server import McpOAuth, ToolCaller, failed
from oauthbroker.mcp.spec import McpServerSpec
from oauthbroker.mcp.upstream_names import BETWEEN, BETWEEN_URI, shown, with_shown_uris
from oauthbroker.mcp.upstream_sessions import CALLING, LISTING, UpstreamFailed, UpstreamSessions, Work
from oauthbroker.plugins import Bounded

AGENT: Final = "mcp-gateway"
DAY_SECONDS: Final = 86_400.0  # longer than any link lives
MOST_PAGES: Final = 20  # of a server's list
MOST_LISTS: Final = 1_000  # of callers, servers and kinds, that are remembered
METHODS: Final[Mapping[type, str]] = {
    CallToolRequestParams: "tools/call",
    GetPromptRequestParams: "prompts/get",
    ReadResourceRequestParams: "resources/read",
}
LEFT_OUT: Final = "The tool {} is left out: the server does not list it, or it has changed and waits for its operator."
_LOG: Final = logging.getLogger("oauthbroker.mcp")


class McpGateway(McpOAuth):
    """What the servers of the resources `McpServer` have. `local` is the subject of a caller without a turn token: the
    user who started the gateway."""

    def __init__(self, broker: Broker, local: str | None = None) -> None:
        super().__init__(broker, subject="{sub}", agent=AGENT)
        self._local = local
        self._lists = Bounded[tuple[str, str, str], list[Any]](MOST_LISTS)  # the last ones: caller, server, kind
        self._sessions = UpstreamSessions(broker)
        self._watched: dict[str, asyncio.Task[None]] = {}  # by auth session
        self._tools = ListedTools(broker)
        self._bus = InMemorySubscriptionBus()
        self.server = Server[Any](
            AGENT,
            on_list_tools=self._lists_all("tools", ListToolsResult),
            on_call_tool=self._call,
            on_list_prompts=self._lists_all("prompts", ListPromptsResult),
            on_get_prompt=self._get_prompt,
            on_list_resources=self._lists_all("resources", ListResourcesResult),
            on_list_resource_templates=self._lists_all("resource_templates", ListResourceTemplatesResult),
            on_read_resource=self._read_resource,
            on_subscriptions_listen=ListenHandler(self._bus),
        )
        keys = [broker.plugin_state("mcp").derived_key("request state")]  # a call that waits outlives its process
        self.server.middleware.append(RequestStateBoundary(RequestStateSecurity(keys=keys), default_audience=AGENT))

    @property
    def servers(self) -> Mapping[str, McpServerSpec]:
        """Return the configured servers. They follow a reload."""
        return {name: it.spec for name, it in self._broker.bundle.plugins["mcp"].of("McpServer").items()}

    def _subject_of(self, token: AccessToken | None) -> str | None:
        del token
        return self._local

    def _accounts(self) -> dict[str, Any]:
        """Return the accounts that the servers name; `""` is that of a server that names none."""
        found: dict[str, set[str]] = {}
        for spec in self.servers.values():
            found.setdefault(str(spec.oauth_app_ref.name), set()).add(spec.account or "")
        return {
            app: {"allowed": sorted(accounts), "default": "" if "" in accounts else None}
            for app, accounts in found.items()
            if accounts != {""}
        }

    def _lists_all(self, kind: str, result: Any) -> Any:
        """Return the handler that lists a kind. Its answers are for one caller, and for now."""

        async def listed(_: Any, __: Any) -> Any:
            return result(**{kind: await self._listed(kind)}, ttl_ms=0, cache_scope="private")

        return listed

    async def _listed(self, kind: str) -> list[Any]:
        """Return what all servers list of a kind, under the host's names."""
        caller = self.caller()
        lists = await asyncio.gather(*(self._shown_of(caller, name, kind) for name in self.servers))
        return [each for found in lists for each in found]

    async def _shown_of(self, caller: ToolCaller, name: str, kind: str) -> list[Any]:
        """Return what a server lists; the last list while it cannot. Without any, a tool that connects it."""
        try:
            return await self._list(caller, name, kind)
        except AuthorizationRequiredError:
            about = f"Connects {name}: asks the user for consent. Its tools are listed afterwards."
            connect = Tool(name=f"{name}{BETWEEN}{CONNECT}", description=about, input_schema={"type": "object"})
            return self._lists.get((caller.key, name, kind), [connect] if kind == "tools" else [])
        except (MCPError, UpstreamFailed) as error:
            why = error.why if isinstance(error, UpstreamFailed) else type(error).__name__
            _LOG.warning("the %s of the MCP server %s cannot be listed: %s", kind, name, why)
            return self._lists.get((caller.key, name, kind), [])

    async def _list(self, caller: ToolCaller, name: str, kind: str) -> list[Any]:
        spec, found = self.servers[name], list[Any]()
        if not (spec.resources if kind.startswith("resource") else getattr(spec, kind)):
            return []

        async def listed(client: Client) -> None:
            fetch, cursor = getattr(client, f"list_{kind}"), None
            for _ in range(1 + MOST_PAGES):
                try:
                    page = await fetch(cursor=cursor)
                except MCPError as error:
                    if error.error.code != METHOD_NOT_FOUND:
                        raise
                    return  # a server without such things
                found.extend(getattr(page, kind))
                if (cursor := page.next_cursor) is None:
                    return

        self._note(caller, name, f"{kind.replace('resource_', 'resources/')}/list")
        await self._sessions.within(caller, (name, spec), LISTING, listed)
        if kind == "tools":
            found = await self._tools.of(name, [each for each in found if spec.shows(kind, each.name)])
        self._lists.keep((caller.key, name, kind), kept := shown(name, spec, kind, found))
        return kept

    def _note(self, caller: ToolCaller, server: str, method: str, tool: str = "") -> None:
        """Write a request to the audit log. Raises BrokerError: then it must not be made."""
        who = {"agent": caller.turn.agent_name, "instance": caller.turn.instance_key}
        self._broker.audit(ServerCalled(server=server, method=method, tool=tool or None, **who))

    async def _call(self, request: Any, params: CallToolRequestParams) -> Any:
        name, _, tool = params.name.partition(BETWEEN)
        spec = self.servers.get(name)
        if spec is None or (tool != CONNECT and not spec.shows("tools", tool)):
            return failed(f"There is no tool {params.name}.")

        async def call(client: Client) -> Any:
            client.session.validate_tool_result = _unchecked  # type: ignore[method-assign,assignment]
            return await client.call_tool(tool, params.arguments)

        try:
            return await self._asked(request, params, name, None if tool == CONNECT else call, tool)
        except UpstreamFailed as error:
            return failed(str(error))

    async def _get_prompt(self, request: Any, params: GetPromptRequestParams) -> Any:
        name, prompt = self._named("prompt", params.name, BETWEEN)
        return await self._given(request, params, name, lambda it: it.get_prompt(prompt, params.arguments))

    async def _read_resource(self, request: Any, params: ReadResourceRequestParams) -> Any:
        name, uri = self._named("resource", params.uri, BETWEEN_URI)
        return await self._given(request, params, name, lambda it: it.read_resource(uri, cache_mode="bypass"))

    def _named(self, kind: str, named: str, between: str) -> tuple[str, str]:
        """Return the server of a prompt or resource, and its name there. Raises MCPError for one that is not shown."""
        name, _, own = named.partition(between)
        spec = self.servers.get(name)
        if spec is None or not spec.shows(f"{kind}s", own):
            raise MCPError(INVALID_PARAMS, f"There is no {kind} {named}.")
        return name, own

    async def _given(self, request: Any, params: Any, name: str, work: Work) -> Any:
        """Answer as `_asked`. Raises MCPError for a failure: only the result of a tool has a place for a sentence."""
        try:
            answer = await self._asked(request, params, name, work)
        except UpstreamFailed as error:
            raise MCPError(INTERNAL_ERROR, str(error)) from None
        if isinstance(answer, CallToolResult):
            raise MCPError(INTERNAL_ERROR, "".join(getattr(each, "text", "") for each in answer.content))
        return answer

    async def _asked(self, request: Any, params: Any, name: str, work: Work | None, tool: str = "") -> Any:
        """Do something at a server, or only connect it. Ask the user for consent first, where that is needed: the
        answer is then `input_required`, or the failure of a tool with the sentence."""

        async def call(ctx: Context) -> Any:
            caller = self.caller()
            if work is None or (tool and self._tools.shows(name, tool) is None):
                await self._list(caller, name, "tools")
            if work is None:
                await self._tell_changed(ctx)
                return CallToolResult(content=[TextContent(text=f"{name} is connected. List the tools again.")])
            if tool and not self._tools.shows(name, tool):
                return failed(LEFT_OUT.format(f"{name}{BETWEEN}{tool}"))
            self._note(caller, name, METHODS[type(params)], tool)
            answer = await self._sessions.within(caller, (name, self.servers[name]), CALLING, work)
            return with_shown_uris(name, self.servers[name], answer)

        call.__qualname__ = name  # one question at a time for each server
        return await self.asks()(call)(Context(request_context=request, input_params=params))

    def _ask(
        self, ctx: Any, key: tuple[str, str], needed: AuthorizationRequired
    ) -> InputRequiredResult | CallToolResult:
        """Answer with the link. If the consent brings tools to list, the host is told so, also if no call waits."""
        session_id = needed.auth_session_id
        if (*key, "tools") not in self._lists and session_id not in self._watched:
            self._watched[session_id] = watch = asyncio.create_task(self._tell_after(ctx, session_id))
            watch.add_done_callback(lambda _: self._watched.pop(session_id, None))
        return super()._ask(ctx, key, needed)

    async def _tell_after(self, ctx: Context, session_id: str) -> None:
        with suppress(BrokerError, MCPError, anyio.ClosedResourceError, anyio.BrokenResourceError):  # the host has gone
            if (await self._broker.wait(session_id, DAY_SECONDS)).status == "completed":
                await self._tell_changed(ctx)

    async def _tell_changed(self, ctx: Context) -> None:
        """Tell the host that the lists have changed, in the way of its revision."""
        if (ctx.protocol_version or "") >= STATELESS:
            for event in (ToolsListChanged(), PromptsListChanged(), ResourcesListChanged()):
                await self._bus.publish(event)
        else:
            await ctx.session.send_tool_list_changed()
            await ctx.session.send_prompt_list_changed()
            await ctx.session.send_resource_list_changed()


async def _unchecked(_name: str, _result: CallToolResult) -> None:
    """Check no result by its tool's schema, as the SDK's client does: a server's pattern may take hours."""
