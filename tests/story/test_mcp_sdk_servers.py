"""Servers made with the `mcp` SDK and with FastMCP, each with the authorization server that its package brings: what the
broker does there beside the calls of tools."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mcp.server.auth.settings import ClientRegistrationOptions, RevocationOptions

from oauthbroker.model.apps import App
from oauthbroker.testing import IdentityProvider, TestClock, leave
from tests.kit.cli import free_port
from tests.kit.running_broker import ALICE, BOB, Harness, file_store, running, turn
from tests.story.mcp_apps_kit import app_at
from tests.story.mcp_kit import fast_mcp, served
from tests.story.mcp_sdk_kit import Sessions, sdk_server


@dataclass
class Server:
    """A server with its authorization server. `clients` are those that it knows, `tokens` the living ones by kind."""

    port: int
    clients: dict[str, Any]
    tokens: list[dict[str, Any]]
    idp: IdentityProvider
    clock: TestClock

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def broker(self, folder: Path, app: App | None = None) -> Any:
        store = file_store(folder, self.clock)
        return running(self.idp, [app or app_at(self.url)], clock=self.clock, store=store, background=False)


@pytest.fixture(params=["sdk", "fastmcp"])
async def server(
    request: pytest.FixtureRequest, identity_provider: IdentityProvider, test_clock: TestClock
) -> AsyncIterator[Server]:
    port = free_port()
    app, *kept = _sdk(port) if request.param == "sdk" else _fast_mcp(port)
    async with served(app, port):
        yield Server(port, kept[0], kept[1:], identity_provider, test_clock)


def _sdk(port: int) -> Any:
    sessions = Sessions()
    return sdk_server(sessions, port).streamable_http_app(), sessions.clients, sessions.access, sessions.refresh


def _fast_mcp(port: int) -> Any:
    package = fast_mcp()
    from fastmcp.server.auth.providers.in_memory import InMemoryOAuthProvider

    kept = InMemoryOAuthProvider(
        base_url=f"http://127.0.0.1:{port}",
        client_registration_options=ClientRegistrationOptions(enabled=True, valid_scopes=["read"]),
        revocation_options=RevocationOptions(enabled=True),
        required_scopes=["read"],
    )
    made = package.FastMCP("tickets", auth=kept)

    def for_what() -> str:
        return "done"

    made.tool(for_what)
    return made.http_app(), kept.clients, kept.access_tokens, kept.refresh_tokens


async def consent(harness: Harness) -> int:
    """Open a link of the app, and return the status of the last page."""
    result = await harness.ask_link("OAuthApp/tickets")
    browser = harness.browser()
    page = await leave(browser, result.authorization_url)
    while page.next_url is not None:
        page = await browser.follow(page.next_url)
    return page.status


@pytest.mark.parametrize("proof", ["client_secret_post", "client_secret_basic", "none"])
async def test_tokens_are_revoked_with_each_proof_that_a_client_was_registered_with(
    server: Server, tmp_path: Path, proof: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both packages list Basic, and demand the secret in the body when a token is revoked."""
    monkeypatch.setattr("oauthbroker.protocol.client_registration._method", lambda _: proof)
    async with server.broker(tmp_path) as harness:
        assert 200 == await consent(harness)
        assert all(server.tokens)
        (client,) = server.clients.values()
        assert proof == client.token_endpoint_auth_method
        assert "done" == await harness.broker.grants.revoke("tickets", ALICE)
        assert not server.tokens[1]


async def test_a_client_that_the_server_has_forgotten_is_replaced_before_the_next_link(
    server: Server, tmp_path: Path
) -> None:
    """As after a restart of a server that keeps its clients in memory."""
    async with server.broker(tmp_path) as harness:
        await harness.ask_link("OAuthApp/tickets")
        server.clients.clear()
        server.clock.advance(25 * 3600)
        assert 200 == await consent(harness)
        server.clock.advance(25 * 3600)
        await harness.ask_link("OAuthApp/tickets", of=turn(BOB))
        assert 1 == len(server.clients)
