"""Popular entries without a preset of their own: an MCP server, whose app is learnt from the server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from oauthbroker.model.mcp_server import McpServer
from oauthbroker.model.provider_api import ApiHost
from oauthbroker.model.token_results import Ready
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.popular_entries import popular_apps
from tests.kit.running_broker import running
from tests.story.mcp_apps_kit import mcp_site


async def test_an_mcp_server_that_registers_clients_is_connected(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path
) -> None:
    written = popular_apps(tmp_path)["linear-mcp"]
    assert ("https://mcp.linear.app/mcp",) == written.resource
    identity_provider.takes_clients = True
    async with mcp_site(identity_provider) as site:
        here = ApiHost("127.0.0.1", urlsplit(site.url).port or 0, "http")
        app = replace(written, mcp=McpServer(site.url), resource=(site.url,), api=replace(written.api, hosts=(here,)))
        async with running(identity_provider, [app], clock=test_clock, background=False) as harness:
            assert isinstance(await harness.connected("linear-mcp"), Ready)
            assert 1 == len(identity_provider.seen("register"))
            assert {site.url} == {it.form["resource"] for it in identity_provider.seen("token")}
