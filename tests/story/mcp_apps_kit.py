"""An MCP server that a test scripts, and the app of it, whose authorization server is the scripted provider."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx2
from mcp import Client as SdkClient
from mcp.client.streamable_http import streamable_http_client
from mcp_types import TextContent

from oauthbroker import Broker
from oauthbroker.mcp.client_transport import McpTransport, Show
from oauthbroker.model.apps import App, Client, Endpoints, Owner, Redirect
from oauthbroker.model.mcp_server import McpServer
from oauthbroker.model.provider_api import ApiAccess, ApiHost
from oauthbroker.testing import IdentityProvider
from tests.kit.running_broker import BASE, turn, user_app
from tests.unit.protocol.kit import RawServer, raw_answer

NESTED = "/.well-known/oauth-protected-resource/mcp"
ROOT = "/.well-known/oauth-protected-resource"


@dataclass
class McpSite:
    """`documents`: path -> JSON value, or the bytes of a whole answer. `challenge` is what the server says to a request
    without a token."""

    server: RawServer
    idp: IdentityProvider
    documents: dict[str, Any] = field(default_factory=dict)
    challenge: str = "Bearer"

    @property
    def url(self) -> str:
        return f"{self.server.url}/mcp"

    @property
    def paths(self) -> list[str]:
        """Return the paths that were fetched, in order."""
        return [each.split(b" ")[1].decode() for each in self.server.requests if each.startswith(b"GET ")]

    def publish(self, path: str = NESTED, **changes: Any) -> None:
        """Publish the metadata of the server."""
        said = {"resource": self.url, "authorization_servers": [self.idp.issuer], "scopes_supported": ["read"]}
        self.documents[path] = {name: value for name, value in {**said, **changes}.items() if value is not None}

    def answer(self, request: bytes) -> bytes:
        method, path = (part.decode() for part in request.split(b" ")[:2])
        if path == "/mcp" and method == "POST":
            token = re.search(rb"(?i)\r\nauthorization: Bearer (\S+)", request)
            if token is None or self.idp._state.token_table.living(token[1].decode()) is None:
                return raw_answer(401, b"", www_authenticate=self.challenge)
            return raw_answer(200, b'{"jsonrpc": "2.0", "id": 1, "result": {"tools": []}}')
        found = self.documents.get(path)
        if found is None:
            return raw_answer(404, b"{}")
        return found if isinstance(found, bytes) else raw_answer(200, json.dumps(found).encode())


@asynccontextmanager
async def mcp_site(idp: IdentityProvider) -> AsyncIterator[McpSite]:
    """Serve an MCP server with metadata at the address below its path."""

    async def handle(_: Any, writer: Any) -> None:
        writer.write(site.answer(server.requests[-1]))
        await writer.drain()

    async with RawServer(handle) as server:
        site = McpSite(server, idp)
        site.publish()
        yield site


def mcp_app(site: McpSite, **changes: Any) -> App:
    """The app of the server, as the configuration has it."""
    learnt = {
        "provider": "mcp",
        "mcp": McpServer(site.url),
        "client": Client("", None, "none"),
        "endpoints": Endpoints(),
        "resource": (site.url,),
    }
    return user_app(site.idp, **{**learnt, **changes})


def app_at(url: str) -> App:
    """The app of a server whose address alone is known, for the user of this machine."""
    place = urlsplit(url)
    return App(
        name="tickets",
        provider="mcp",
        flow="authorizationCode",
        subject_mode="user",
        client=Client("", None, "none"),
        endpoints=Endpoints(),
        scopes=("read",),
        redirect=Redirect("/oauth/callback/tickets", BASE),
        owner=Owner(binding="localOperator"),
        resource=(url,),
        api=ApiAccess((ApiHost(str(place.hostname), place.port or 80, "http"),)),
        mcp=McpServer(url),
    )


async def call_tool(broker: Broker, url: str, show: Show | None = None) -> str:
    """Call the tool `for_what` by the SDK's client on our transport."""
    transport = McpTransport(broker, turn(), "OAuthApp/tickets", show=show)
    async with (
        httpx2.AsyncClient(transport=transport, trust_env=False) as http,
        SdkClient(streamable_http_client(url, http_client=http)) as client,
    ):
        (content,) = (await client.call_tool("for_what", {})).content
        assert isinstance(content, TextContent)
        return content.text
