"""What each plug-in does at a provider is in the audit log, by name, before the provider gets the request."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

import oauthbroker
from oauthbroker.audit import AuditEntry, TokenInjected, TokenIssued
from oauthbroker.flowtools.risk.audit_types import EffectSent
from oauthbroker.flowtools.running.auditing import audit_from_threads
from oauthbroker.flowtools.running.ports import Ports
from oauthbroker.flowtools.running.requests import BrokerRequests
from oauthbroker.integrations import OAuthMcp
from oauthbroker.mcp.audit_types import ServerCalled
from oauthbroker.mcp.gateway import McpGateway
from oauthbroker.mcp.serving import AUDIENCE
from oauthbroker.mcp.spec import McpServerSpec
from oauthbroker.model.bundle import ToolAuth
from oauthbroker.model.provider_api import ApiAccess, ApiHost
from oauthbroker.plugins import PluginResource, PluginResources
from oauthbroker.plugins.discovery import installed
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.tools.calling.broker_turn import oauth_of
from oauthbroker.tools.types.audit_types import ToolCalled
from tests.kit.running_broker import ALICE, Harness, running, turn, user_app
from tests.story.mcp_kit import served, upstream
from tests.unit.flowtools.kit import chain
from tests.unit.flowtools.run_kit import BEGIN, COMMIT, STAFF, log, world_in

CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "send"}}
TOOLS = {"Tool/mail": (ToolAuth("mail"),), "Tool/mail:send": (ToolAuth("mail"),), AUDIENCE: (ToolAuth("mail"),)}
REACHES = re.compile(r"\.oauth\(|\.client\(|httpx|PublicWeb|McpTransport|static_token")


NAMES: dict[str, tuple[type, ...]] = {"tools": (ToolCalled,), "flowtools": (EffectSent,), "mcp": (ServerCalled,)}


def names_the_call(entry: AuditEntry, plugin: str) -> bool:
    """Tell whether an entry names the call of a plug-in: one of its own, or the broker's for the tool that calls."""
    by_tool = isinstance(entry, TokenIssued | TokenInjected) and entry.tool is not None
    return by_tool or isinstance(entry, NAMES.get(plugin, ()))


@dataclass
class Provider:
    """The API and MCP server of the app `mail`. `entries` are those that the log had when each request with a token
    came; `begun` is their number before the call of the plug-in."""

    harness: Harness
    url: str
    folder: Path
    entries: list[list[AuditEntry]] = field(default_factory=list)
    begun: int = 0

    def named(self, plugin: str) -> list[bool]:
        """Tell of each request whether an entry named its call before it."""
        return [any(names_the_call(each, plugin) for each in found[self.begun :]) for found in self.entries]


@asynccontextmanager
async def provider(idp: IdentityProvider, clock: TestClock, folder: Path, plugin: str) -> AsyncIterator[Provider]:
    """A provider, and a broker with this plug-in whose user has consented."""
    found: list[Provider] = []
    server = upstream(idp).streamable_http_app(json_response=True)

    async def watched(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and found and b"authorization" in dict(scope["headers"]):
            found[0].entries.append([*found[0].harness.audit.entries])
        await server(scope, receive, send)

    async with AsyncExitStack() as stack:
        port, _ = await stack.enter_async_context(served(watched))
        url = f"http://127.0.0.1:{port}/mcp"
        app = user_app(idp, api=ApiAccess((ApiHost("127.0.0.1", port, "http"),), ("GET", "POST", "DELETE")))
        spec = McpServerSpec.model_validate({"url": url, "oauthAppRef": "OAuthApp/mail", "tools": ["*"]})
        resources = {plugin: PluginResources((PluginResource("McpServer", "mail", spec),) if plugin == "mcp" else ())}
        harness = await stack.enter_async_context(running(idp, [app], clock=clock, plugins=resources, tools=TOOLS))
        await harness.connected()
        found.append(Provider(harness, url, folder, begun=len(harness.audit.entries)))
        yield found[0]


async def by_tools(at: Provider) -> None:
    """Send as a tool does by its `ctx.oauth`."""
    oauth: Any = await oauth_of(at.harness.broker, turn())("Tool/mail:send", "call-1", blocking=False)
    async with oauth.client("mail") as client:
        await client.post(at.url, json=CALL)


async def by_flowtools(at: Provider) -> None:
    ports = Ports(requests=BrokerRequests(at.harness.broker))
    world = world_in(at.folder, ports=ports, audit=audit_from_threads(at.harness.broker.audit))
    request = {"url": at.url, "oauthAppRef": "OAuthApp/mail", "method": "POST"}
    nodes = {"a": BEGIN, "b": log("one"), "c": COMMIT, "r": ("httpRequest", request)}
    actor = type(STAFF)(id="alice", roles=STAFF.roles, turn=turn())
    await asyncio.to_thread(lambda: world.runs.call(world.flow(nodes, chain(*nodes)), {"id": "a"}, actor))
    world.database.engine.dispose()


async def by_mcp(at: Provider) -> None:
    async with Client(McpGateway(at.harness.broker, ALICE).server, mode="2026-07-28") as client:
        await client.call_tool("mail__whose", {})


async def by_integrations(at: Provider) -> None:
    async with OAuthMcp(at.harness.broker, "mail").http_clients(turn())() as client:
        await client.post(at.url, json=CALL)


WAYS: dict[str, Callable[[Provider], Awaitable[None]]] = {
    "tools": by_tools,
    "flowtools": by_flowtools,
    "mcp": by_mcp,
    "integrations": by_integrations,
}
REACH_NONE = {"gateway"}


def test_each_plugin_has_a_way_here_or_reaches_no_provider() -> None:
    assert {each.name for each in installed()} >= {*WAYS, *REACH_NONE}
    ours = {each.name for each in installed() if each.value.startswith("oauthbroker.")}
    assert ours == {*WAYS, *REACH_NONE}
    for name in ours:
        sources = (Path(oauthbroker.__file__).parent / name).rglob("*.py")
        assert (name in WAYS) == any(REACHES.search(each.read_text("utf-8")) for each in sources), name


@pytest.mark.parametrize("plugin", WAYS)
async def test_a_call_that_reaches_a_provider_was_named_in_the_audit_log(
    identity_provider: IdentityProvider,
    test_clock: TestClock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    plugin: str,
) -> None:
    monkeypatch.setattr("oauthbroker.flowtools.specification.spec.is_public_url", lambda _: True)
    async with provider(identity_provider, test_clock, tmp_path, plugin) as at:
        await WAYS[plugin](at)
        assert at.entries, "no request came"
        assert all(at.named(plugin)), at.entries[-1][at.begun :]


async def test_a_plugin_that_names_no_call_fails_this_contract(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path
) -> None:
    """The entry that the broker writes for an injected request names a grant and a host, and no tool that calls."""
    async with provider(identity_provider, test_clock, tmp_path, "tools") as at:
        async with at.harness.broker.oauth(turn()).client("mail") as client:
            await client.post(at.url, json=CALL)
        assert any(isinstance(each, TokenInjected) for each in at.entries[-1][at.begun :])
        assert [False] == at.named("tools")
