"""A tool's calls while the provider takes a second to refresh: ours, and the MCP SDK's client provider.

The consent is done and the token is expired. A call takes the token and asks an API, which answers after 0.2 s. Perfect
are 1.2 s with a refresh and 0.2 s without. The MCP SDK's provider holds its lock over the request to the API, so that
parallel calls wait for one another. After a restart its stored token has no end, the API refuses it, and the provider
asks the user to log in though a refresh token is stored.
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.children import PEERS, Child, ChildFailed, child
from bench.figures import parser, show, show_failure
from bench.ours import with_token
from bench.slow_server import SlowServer, slow_server
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.repository.repository import Repository
from oauthbroker.testing.stores import open_file_store

TOKEN_SECONDS, API_SECONDS = 1.0, 0.2
ALICE = "idp:user:alice"
CALLS = (
    ("the first call, token expired", 1, -60.0),
    ("ten parallel calls, token expired", 10, -60.0),
    ("ten parallel calls, token valid", 10, 3600.0),
)
RESTARTED = "the first call of a new process, token expired"


class Ours:
    """A broker in a process, over a grant that is stored anew before each round."""

    name = "oauthbroker"

    def __init__(self, versioned: Child, repository: Repository, server: SlowServer) -> None:
        self._held, self._repository, self._server = versioned, repository, server

    async def round(self, count: int, life: float) -> float:
        await self.store(life)
        return await seconds(self._held, do="calls", subject=ALICE, count=count)

    async def restarted(self) -> float:
        await self.store(-60.0)
        await asyncio.to_thread(self._held.ask, do="open")
        return await seconds(self._held, do="calls", subject=ALICE, count=1)

    async def store(self, life: float) -> None:
        found = await self._repository.grant(GrantKey("mail", ALICE))
        versioned = with_token(self._server.port, ALICE, self._server.give(), life)
        await self._repository.save_grant(versioned, expect=found.generation if found else 0)


class Sdk:
    """The MCP SDK's provider in a process of the peers' environment."""

    name = "MCP SDK"

    def __init__(self, versioned: Child, server: SlowServer) -> None:
        self._held, self._server = versioned, server

    async def round(self, count: int, life: float) -> float:
        return await seconds(self._held, do="calls", token=self._server.give(), count=count, life=life)

    async def restarted(self) -> float:
        return await seconds(self._held, do="restarted", token="ended")


async def seconds(versioned: Child, **request: Any) -> float:
    found = await asyncio.to_thread(versioned.ask, **request)
    return float(found["seconds"])


async def compare(sides: list[Ours | Sdk], server: SlowServer, rounds: int) -> None:
    for what, count, life in CALLS:
        taken: dict[str, list[float]] = {each.name: [] for each in sides}
        requests: dict[str, list[float]] = {each.name: [] for each in sides}
        for _ in range(rounds):
            for each in sides:
                before = server.refreshes
                taken[each.name].append(await each.round(count, life))
                requests[each.name].append(server.refreshes - before)
        for name in reversed([*taken]):
            beside = {f"{what}: {its}": taken[its] for its in taken if its != name} if name == Ours.name else None
            show(f"{what}: {name}", taken[name], "s", beside, refreshes=max(requests[name]))
    for each in sides:
        try:
            show(f"{RESTARTED}: {each.name}", [await each.restarted() for _ in range(rounds)], "s")
        except ChildFailed as why:
            show_failure(f"{RESTARTED}: {each.name}", str(why))


async def main(*, quick: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with slow_server(TOKEN_SECONDS, API_SECONDS) as server:
            store = open_file_store(Path(folder))
            with ExitStack() as stack:
                ours = stack.enter_context(child("bench.ours", folder, str(server.port)))
                await asyncio.to_thread(ours.ask, do="open")
                sides: list[Ours | Sdk] = [Ours(ours, Repository(store), server)]
                try:
                    place = (server.url("/mcp"), server.url("/token"))
                    sdk = stack.enter_context(child("bench.peers.slow", *place, python=PEERS))
                    await asyncio.to_thread(sdk.ask, do="make")
                    sides.append(Sdk(sdk, server))
                except ChildFailed as why:
                    show_failure("MCP SDK", str(why))
                await compare(sides, server, 1 if quick else 5)
            await store.close()


if __name__ == "__main__":
    asyncio.run(main(quick=parser().parse_args().quick))
