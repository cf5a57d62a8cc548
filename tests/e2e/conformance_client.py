"""The client that the MCP project's conformance package tests: `python -m tests.e2e.conformance_client URL`.

It is the SDK's client on our transport, with a broker in this process, and a browser that consents at once. The package
names the scenario in the environment.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import httpx2
from mcp import Client as SdkClient
from mcp.client.streamable_http import streamable_http_client

from oauthbroker import AuthorizationRequired
from oauthbroker.core.secret import Secret
from oauthbroker.mcp.client_transport import McpTransport
from oauthbroker.model.apps import App, Client
from oauthbroker.model.mcp_server import McpServer
from oauthbroker.protocol.network import transport
from oauthbroker.testing import Browser, Canaries, IdentityProvider, leave
from tests.kit.running_broker import BASE, public, running, turn
from tests.story.mcp_apps_kit import app_at

# The ceiling of each app, which an operator writes. A scenario without scopes has none.
CEILINGS = {
    "scope-from-www-authenticate": ("mcp:basic", "mcp:admin"),
    "scope-from-scopes-supported": ("mcp:basic", "mcp:read", "mcp:write", "mcp:admin"),
    "scope-step-up": ("mcp:basic", "mcp:profile", "mcp:write"),
    "scope-retry-limit": ("mcp:admin",),
    "offline-access-scope": ("mcp:basic", "offline_access"),
    "offline-access-not-supported": ("mcp:basic", "mcp:read"),
    "authorization-server-migration": ("mcp:basic",),
}
AT_THE_START = {"metadata-var2"}  # the metadata names the start of the address as its resource
CIMD = "https://broker.example"  # the public address of the run whose client is a document


def app_of(scenario: str, url: str) -> App:
    """Return the app as an operator writes it for the scenario's server."""
    app = replace(app_at(url), scopes=CEILINGS.get(scenario, ()))
    if scenario in AT_THE_START:
        place = urlsplit(url)
        app = replace(app, resource=(f"{place.scheme}://{place.netloc}",))
    if scenario == "pre-registration":
        given = json.loads(os.environ["MCP_CONFORMANCE_CONTEXT"])
        client = Client(given["client_id"], Secret(given["client_secret"]), "client_secret_basic")
        app = replace(app, client=client, mcp=McpServer(url, given.get("issuer", ""), has_client=True))
    return app


async def main(scenario: str, url: str, version: str) -> None:
    transport._is_loopback = lambda host: host in {"localhost", "127.0.0.1"}  # the package names its servers so
    base = CIMD if scenario == "basic-cimd" else BASE
    app = app_of(scenario, url)
    app = replace(app, redirect=replace(app.redirect, base_url=base))
    with IdentityProvider() as unused:
        async with running(unused, [app], settings=public(base), background=False) as harness:

            async def show(asked: AuthorizationRequired) -> None:
                """Consent at once: each page of the package's servers leads on by itself."""
                browser = Browser(apps={base: harness.broker.asgi.app})
                page = await leave(browser, asked.authorization_url)
                while page.next_url is not None:
                    page = await browser.follow(page.next_url)

            sent = McpTransport(harness.broker, turn(), "OAuthApp/tickets", show=show)
            mode: Any = version if version >= "2026" else "legacy"
            async with (
                httpx2.AsyncClient(transport=sent, trust_env=False) as http,
                SdkClient(streamable_http_client(url, http_client=http), mode=mode) as client,
            ):
                for tool in (await client.list_tools()).tools:
                    result = await client.call_tool(tool.name, {})
                    print(tool.name, result.is_error)


if __name__ == "__main__":
    with Canaries() as _:
        asyncio.run(
            main(
                os.environ["MCP_CONFORMANCE_SCENARIO"].removeprefix("auth/"),
                sys.argv[1],
                os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "2026-07-28"),
            )
        )
