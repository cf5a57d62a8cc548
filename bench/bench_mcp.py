"""Calls of an MCP server's tool: the SDK's own OAuth provider, and `McpTransport`, below the same client of the SDK.

The consent is done. The tool takes 0.2 s and a refresh takes a second: the least is 0.2 s with a valid token, and 1.2 s
with an expired one. Each round opens a session. Client and server share a process.
"""

from __future__ import annotations

import asyncio
import socket
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx2
import uvicorn
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthToken
from pydantic import AnyHttpUrl
from starlette.requests import Request
from starlette.responses import JSONResponse

from bench.figures import parser, show
from bench.ours import app_at, with_token
from bench.peers.peers import Stored, mcp_client, mcp_provider
from bench.slow_server import ENDPOINT
from oauthbroker import Broker, Turn, TurnAuth, open_broker
from oauthbroker.mcp import McpTransport
from oauthbroker.model.bundle import Bundle
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.provider_api import ApiAccess, ApiHost
from oauthbroker.model.settings import Settings
from oauthbroker.repository.repository import Repository
from oauthbroker.testing.stores import open_file_store

TOKEN_SECONDS, API_SECONDS = 1.0, 0.2
ALICE = "idp:user:alice"
ROWS = {
    f"{what}, token {state}": (count, life)
    for what, count in (("the first call", 1), ("ten parallel calls", 10))
    for state, life in (("valid", 3600.0), ("expired", -60.0))
}


@dataclass
class Server:
    """An MCP server, and the token endpoint beside it. It takes every token that it gave."""

    port: int
    given: set[str] = field(default_factory=set)
    refreshes: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def give(self) -> str:
        token = f"token-{len(self.given)}-".ljust(900, "t")
        self.given.add(token)
        return token

    async def verify_token(self, token: str) -> AccessToken | None:
        return AccessToken(token=token, client_id="client", scopes=[]) if token in self.given else None

    async def token(self, _: Request) -> JSONResponse:
        self.refreshes += 1
        await asyncio.sleep(TOKEN_SECONDS)
        life = {"token_type": "Bearer", "expires_in": 3600, "refresh_token": f"r{self.refreshes}".ljust(200, "r")}
        return JSONResponse({"access_token": self.give(), **life}, headers={"Cache-Control": "no-store"})

    async def work(self) -> str:
        await asyncio.sleep(API_SECONDS)
        return "done"

    def app(self) -> Any:
        place = AnyHttpUrl("http://127.0.0.1/mcp")
        auth = AuthSettings(issuer_url=place, resource_server_url=place, validate_token_resource=False)
        server = MCPServer("bench", token_verifier=self, auth=auth, log_level="ERROR")
        server.tool()(self.work)
        server.custom_route(ENDPOINT, ["POST"])(self.token)
        return server.streamable_http_app()


@asynccontextmanager
async def served() -> AsyncIterator[Server]:
    listening = socket.create_server(("127.0.0.1", 0))  # it takes connections before the server runs
    server = Server(port=listening.getsockname()[1])
    listener = uvicorn.Server(uvicorn.Config(server.app(), log_level="error"))
    task = asyncio.create_task(listener.serve(sockets=[listening]))
    try:
        yield server
    finally:
        listener.should_exit = True
        await task


@dataclass
class Ours:
    """A broker over a grant that is stored anew before each round."""

    server: Server
    broker: Broker
    repository: Repository
    name: str = "McpTransport"

    async def client(self, life: float) -> httpx2.AsyncClient:
        found = await self.repository.grant(GrantKey("mail", ALICE))
        versioned = with_token(self.server.port, ALICE, self.server.give(), life)
        await self.repository.save_grant(versioned, expect=found.generation if found else 0)
        turn = Turn("planner", "1", auth=TurnAuth(subjects={"user": ALICE}))
        return httpx2.AsyncClient(transport=McpTransport(self.broker, turn, "OAuthApp/mail"))


@dataclass
class Sdk:
    """The SDK's provider, as in a process that has had its token for long: it knows when that token ends."""

    server: Server
    name: str = "OAuthClientProvider"

    async def client(self, life: float) -> httpx2.AsyncClient:
        versioned = OAuthToken(access_token=self.server.give(), token_type="Bearer", refresh_token="r" * 200)
        provider = mcp_provider(self.server.url, Stored(versioned, mcp_client()))
        await provider._initialize()  # noqa: SLF001  (its own way leaves out the end of a stored token)
        provider.context.token_expiry_time = time.time() + life
        return httpx2.AsyncClient(auth=provider, timeout=60)


async def seconds(side: Ours | Sdk, count: int, life: float) -> float:
    """Open a session, and call the tool so many times in parallel."""
    async with await side.client(life) as http:
        began = time.perf_counter()
        async with Client(streamable_http_client(side.server.url, http_client=http), mode="2026-07-28") as client:
            answers = await asyncio.gather(*(client.call_tool("work", {}) for _ in range(count)))
            taken = time.perf_counter() - began
    if any(each.is_error for each in answers):
        raise RuntimeError("a call failed")
    return taken


async def compare(sides: list[Ours | Sdk], rounds: int) -> None:
    """Measure each row. The sides take turns, ours last; the first round of each is not counted."""
    for what, (count, life) in ROWS.items():
        taken: dict[str, list[float]] = {each.name: [] for each in sides}
        requests: dict[str, int] = {}
        for _ in range(rounds + 1):
            for each in sides:
                before = each.server.refreshes
                taken[each.name].append(await seconds(each, count, life))
                requests[each.name] = each.server.refreshes - before
        (its, other), (ours, mine) = ((name, samples[1:]) for name, samples in taken.items())
        show(f"{what}: {its}", other, "s", refreshes=requests[its])
        show(f"{what}: {ours}", mine, "s", {f"{what}: {its}": other}, refreshes=requests[ours])


async def main(*, quick: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with served() as server:
            store = open_file_store(Path(folder))
            settings = Settings(store_root=str(Path(folder) / "store"), weaken=frozenset({"plainHttpProvider"}))
            api = ApiAccess((ApiHost("127.0.0.1", server.port, "http"),), ("GET", "POST", "DELETE"))
            bundle = Bundle(settings, {"mail": replace(app_at(server.port), api=api)})
            async with open_broker(bundle, env={}, store=store, background=False) as broker:
                await compare([Sdk(server), Ours(server, broker, Repository(store))], 1 if quick else 5)


if __name__ == "__main__":
    asyncio.run(main(quick=parser().parse_args().quick))
