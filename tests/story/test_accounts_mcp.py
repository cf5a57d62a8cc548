"""Two accounts of one user at MCP: servers of a gateway, an MCP client, and the tools of an MCP server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import Context, MCPServer
from pydantic import AnyHttpUrl

from oauthbroker import Turn
from oauthbroker.core.secret import Secret
from oauthbroker.mcp import McpOAuth, McpTransport, TurnTokenVerifier
from oauthbroker.mcp.gateway import McpGateway
from oauthbroker.mcp.serving import AUDIENCE, GatewayCallers
from oauthbroker.mcp.spec import McpServerSpec
from oauthbroker.model.apps import IdentityRule, Owner
from oauthbroker.model.bundle import ToolAuth
from oauthbroker.model.provider_api import ApiAccess, ApiHost
from oauthbroker.model.token_results import AuthorizationRequired
from oauthbroker.plugins import PluginResource, PluginResources
from oauthbroker.testing import IdentityProvider, TestClock, connect_through
from tests.kit.running_broker import ALICE, Harness, running, turn, user_app
from tests.story.mcp_kit import link_in, served, text_of, upstream

RESOURCE = "http://127.0.0.1/mcp"
OWN = "Connection/own"  # the tools of the test's own MCP server
BOTH = ["work", "private"]
PERSONS = {"work": "alice", "private": "bob"}


def listing(*accounts: str) -> Turn:
    base = turn()
    assert base.auth is not None
    return replace(base, auth=replace(base.auth, accounts={"OAuthApp/mail": list(accounts)}))


@dataclass
class Stage:
    """An MCP server whose app has two accounts, each of which a server of the gateway names."""

    harness: Harness
    port: int

    async def connected(self, account: str) -> None:
        asked = await self.harness.ask("mail", ["read"], listing(*BOTH), account=account)
        assert isinstance(asked, AuthorizationRequired)
        assert 200 == (await self.harness.connect(asked, PERSONS[account])).status

    @property
    def gateway(self) -> McpGateway:
        return McpGateway(self.harness.broker, ALICE)

    @asynccontextmanager
    async def session(self, app: Any, token: Secret) -> AsyncIterator[Client]:
        async with AsyncExitStack() as stack:
            port, _ = await stack.enter_async_context(served(app))
            headers = {"Authorization": f"Bearer {token.reveal()}"}
            http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, trust_env=False, timeout=60))
            streams = streamable_http_client(f"http://127.0.0.1:{port}/mcp", http_client=http)
            yield await stack.enter_async_context(Client(streams, mode="2026-07-28"))

    async def token(self, tool: str, *accounts: str) -> Secret:
        begun = await self.harness.broker.turns.begin(listing(*accounts), tools={tool: None})
        return begun.tool_tokens[tool]


@pytest.fixture
async def stage(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Stage]:
    app = upstream(identity_provider).streamable_http_app(json_response=True)
    async with served(app) as (port, _):
        api = ApiAccess((ApiHost("127.0.0.1", port, "http"),), ("GET", "POST", "DELETE"))
        owner = Owner(binding="localOperator", user_identity=IdentityRule("idToken", "idp:user:{sub}"))
        mail = user_app(identity_provider, owner=owner, several_accounts=True, api=api)
        said = {"url": f"http://127.0.0.1:{port}/mcp", "oauthAppRef": "OAuthApp/mail", "tools": ["whose"]}
        servers = [
            PluginResource(
                "McpServer", name, McpServerSpec.model_validate({**said, "account": name, "scopes": ["read"]})
            )
            for name in BOTH
        ]
        plugins = {"mcp": PluginResources(tuple(servers))}
        tools = {AUDIENCE: (ToolAuth("mail", ("read",)),), OWN: (ToolAuth("mail", ("read",)),)}
        async with running(identity_provider, [mail], clock=test_clock, plugins=plugins, tools=tools) as harness:
            yield Stage(harness, port)


async def names(client: Client) -> list[str]:
    return [tool.name for tool in (await client.list_tools(cache_mode="bypass")).tools]


async def test_each_server_of_a_gateway_has_its_own_account(stage: Stage) -> None:
    await stage.connected("work")
    async with Client(stage.gateway.server, mode="2026-07-28") as client:
        assert ["work__whose", "private__oauthbroker_connect"] == await names(client)
        assert "alice" == text_of(await client.call_tool("work__whose", {}))
        link = link_in(text_of(await client.call_tool("private__oauthbroker_connect", {})))
        [waiting] = await stage.harness.broker.sessions.list(status="pending")
        assert "private" == waiting.account
        await connect_through(stage.harness.browser(), stage.harness.idp, link, "bob")
        assert ["work__whose", "private__whose"] == await names(client)
        found = [text_of(await client.call_tool(f"{name}__whose", {})) for name in BOTH]
    assert ["alice", "bob"] == found


async def test_a_turn_reaches_the_servers_of_the_accounts_that_it_lists(stage: Stage) -> None:
    for account in BOTH:
        await stage.connected(account)
    auth = AuthSettings(issuer_url=AnyHttpUrl(RESOURCE), resource_server_url=None)
    gateway = McpGateway(stage.harness.broker).server.streamable_http_app(
        auth=auth, token_verifier=GatewayCallers(stage.harness.broker, RESOURCE), json_response=True
    )
    async with stage.session(gateway, await stage.token(AUDIENCE, "private")) as client:
        assert ["private__whose"] == await names(client)
        assert "bob" == text_of(await client.call_tool("private__whose", {}))
        refused = await client.call_tool("work__whose", {})
    assert refused.is_error
    assert [] == await stage.harness.broker.sessions.list(status="pending")


async def test_a_server_without_an_account_beside_one_with_an_account_uses_the_unnamed_one(stage: Stage) -> None:
    servers = stage.gateway.servers
    specs = {"own": servers["work"].model_copy(update={"account": None}), **servers}
    plugins = {"mcp": PluginResources(tuple(PluginResource("McpServer", name, spec) for name, spec in specs.items()))}
    broker = stage.harness.broker
    await broker.reload(replace(broker.bundle, plugins=plugins))
    for account in BOTH:
        await stage.connected(account)
    async with Client(stage.gateway.server, mode="2026-07-28") as client:
        assert ["own__oauthbroker_connect", "work__whose", "private__whose"] == await names(client)
    [waiting] = await broker.sessions.list(status="pending")
    assert ("mail", "") == (waiting.app, waiting.account)


@pytest.mark.parametrize("account", BOTH)
async def test_a_session_of_an_mcp_client_has_the_account_that_its_app_names(stage: Stage, account: str) -> None:
    for each in BOTH:
        await stage.connected(each)
    transport = McpTransport(stage.harness.broker, listing(*BOTH), f"mail@{account}", scopes=["read"])
    async with httpx2.AsyncClient(transport=transport, trust_env=False) as http:
        streams = streamable_http_client(f"http://127.0.0.1:{stage.port}/mcp", http_client=http)
        async with Client(streams, mode="2026-07-28") as client:
            assert PERSONS[account] == text_of(await client.call_tool("whose", {}))


async def test_the_tools_of_an_mcp_server_name_accounts_of_their_callers_turn(stage: Stage) -> None:
    broker, me = stage.harness.broker, stage.harness.idp.url("/api/me")
    oauth = McpOAuth(broker, subject="idp:user:{sub}")
    verifier = TurnTokenVerifier(broker, OWN, RESOURCE)
    auth = AuthSettings.model_validate(
        {"issuer_url": RESOURCE, "resource_server_url": RESOURCE, "validate_token_resource": False}
    )
    server = MCPServer("own", token_verifier=verifier, auth=auth)

    @server.tool()
    @oauth.asks()
    async def whose(ctx: Context, account: str) -> str:
        token = (await oauth.token(ctx, f"mail@{account}", ["read"])).access_token
        async with httpx2.AsyncClient(trust_env=False) as http:
            said = await http.get(me, headers={"Authorization": f"Bearer {token.reveal()}"})
        return str(said.json()["login"])

    await stage.connected("work")
    app = server.streamable_http_app(json_response=True)
    async with stage.session(app, await stage.token(OWN, *BOTH)) as client:
        assert "alice" == text_of(await client.call_tool("whose", {"account": "work"}))
        asked = await client.call_tool("whose", {"account": "private"})
        await connect_through(stage.harness.browser(), stage.harness.idp, link_in(text_of(asked)), "bob")
        found = [text_of(await client.call_tool("whose", {"account": name})) for name in BOTH]
        assert ["alice", "bob"] == found
        assert (await client.call_tool("whose", {"account": "other"})).is_error
