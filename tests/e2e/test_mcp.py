"""MCP with its own SDK on both sides, and consent in Chromium: a client of ours, and a server whose tools need tokens."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from html import escape
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.auth.provider import AccessToken, AuthorizationParams
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.auth import OAuthClientInformationFull
from mcp_types import ElicitRequestURLParams, ElicitResult
from pydantic import AnyHttpUrl
from starlette.requests import Request
from starlette.responses import HTMLResponse

from oauthbroker import AuthorizationRequired
from oauthbroker.mcp import McpOAuth
from oauthbroker.model.apps import Redirect
from tests.e2e.bundle import callback_path
from tests.e2e.stage import Stage
from tests.kit.cli import free_port
from tests.story.mcp_apps_kit import app_at, call_tool
from tests.story.mcp_kit import served, text_of
from tests.story.mcp_sdk_kit import Sessions, sdk_server

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

RESOURCE = "http://127.0.0.1/mcp"


@dataclass
class AskingSessions(Sessions):
    """An authorization server that shows the user a page with one link, which leads back with the code."""

    ways_back: list[str] = field(default_factory=list)

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        self.ways_back.append(await super().authorize(client, params))
        return "/agree"

    async def page(self, _: Request) -> HTMLResponse:
        return HTMLResponse(f'<title>Tickets</title><a href="{escape(self.ways_back[-1])}">Agree</a>')


async def test_a_servers_address_and_consent_in_a_browser_lead_to_a_tools_result(stage: Stage) -> None:
    sessions, port = AskingSessions(), free_port()
    server = sdk_server(sessions, port)
    server.custom_route("/agree", ["GET"])(sessions.page)
    async with served(server.streamable_http_app(), port):
        url = f"http://127.0.0.1:{port}/mcp"
        app = replace(app_at(url), redirect=Redirect(callback_path("tickets"), stage.home))
        bundle = stage.broker.bundle
        await stage.broker.reload(replace(bundle, apps={**bundle.apps, app.name: app}))
        alice = await stage.person()

        async def show(asked: AuthorizationRequired) -> None:
            await alice.open(asked.authorization_url)
            await alice.press("Continue to")
            await alice.press("Agree")
            await alice.page.wait_for_url(f"{stage.home}/connected/tickets")

        assert [url] * 2 == [await call_tool(stage.broker, url, show) for _ in range(2)]
    assert 1 == len(sessions.ways_back)
    assert [] == alice.shared_circuits


class Company:
    """Verifies the access tokens of the MCP server's own issuer."""

    async def verify_token(self, token: str) -> AccessToken | None:
        word, _, name = token.partition(" ")
        return (
            AccessToken(token=token, client_id="host", scopes=[], resource=RESOURCE, subject=name)
            if word == "of"
            else None
        )


def notes_server(stage: Stage) -> MCPServer:
    """Make an MCP server whose tool asks the provider who the caller is."""
    oauth = McpOAuth(stage.broker, subject="example:user:{sub}")
    issuer, resource = AnyHttpUrl("http://127.0.0.1/company"), AnyHttpUrl(RESOURCE)
    auth = AuthSettings(issuer_url=issuer, resource_server_url=resource, validate_token_resource=True)
    server = MCPServer("notes", token_verifier=Company(), auth=auth)

    @server.tool()
    @oauth.asks("OAuthApp/personal")
    async def whose(ctx: Context) -> str:
        token = await oauth.token(ctx, "OAuthApp/personal")
        stage.canaries.add(token.access_token, "access token")
        _, about = await stage.use(token)
        return str(about["name"])

    return server


async def test_a_servers_tool_asks_for_consent_in_a_browser_and_goes_on(stage: Stage) -> None:
    alice, links = await stage.person(), []

    async def elicited(context: Any, params: Any) -> ElicitResult:
        assert isinstance(params, ElicitRequestURLParams)
        links.append(params.url)
        await alice.agree(params.url, "alice")
        return ElicitResult(action="accept")

    async with (
        served(notes_server(stage).streamable_http_app(json_response=True)) as (port, _),
        httpx2.AsyncClient(headers={"Authorization": "Bearer of alice"}, trust_env=False, timeout=60) as http,
        Client(
            streamable_http_client(f"http://127.0.0.1:{port}/mcp", http_client=http),
            mode="2026-07-28",
            elicitation_callback=elicited,
        ) as client,
    ):
        said = [text_of(await client.call_tool("whose", {})) for _ in range(2)]
    assert ["Alice Example"] * 2 == said
    assert 1 == len(links)
    assert [] == alice.shared_circuits
