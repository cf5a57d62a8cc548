"""A broker, an API, and a database of flow runs: what tests of runs that wait for a consent share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from oauthbroker.flowtools.running.flow import ReadyFlow
from oauthbroker.flowtools.running.journal import RUN, RunRecord
from oauthbroker.flowtools.running.ports import Ports
from oauthbroker.flowtools.running.requests import BrokerRequests
from oauthbroker.flowtools.running.resuming import resuming
from oauthbroker.flowtools.running.working import RunResult
from oauthbroker.flowtools.specification.failures import Actor
from oauthbroker.model.provider_api import ApiAccess, ApiHost
from oauthbroker.plugins import PluginResources
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.running_broker import Harness, running, turn, user_app
from tests.unit.flowtools.kit import chain
from tests.unit.flowtools.run_kit import BEGIN, COMMIT, World, log, world_in
from tests.unit.protocol.kit import RawServer, says

ALICE = Actor(id="alice", roles=frozenset({"staff"}), turn=turn())
WAIT = 60.0  # real seconds


class ConsentWorld:
    """A broker, an API, and a database of runs that is opened anew as another process would."""

    def __init__(self, harness: Harness, api: RawServer, folder: Path) -> None:
        self.harness, self.api, self.folder = harness, api, folder
        self.worlds: list[World] = []
        self.world = self.opened()

    def opened(self) -> World:
        self.world = world_in(self.folder, ports=Ports(requests=BrokerRequests(self.harness.broker)))
        self.worlds.append(self.world)
        return self.world

    @property
    def nodes(self) -> dict[str, Any]:
        """The nodes of a flow that writes, asks the API, and writes again."""
        url = f"http://127.0.0.1:{self.api.port}/v1"
        request = ("httpRequest", {"url": url, "oauthAppRef": "OAuthApp/mail", "method": "POST"})
        return {"a": BEGIN, "b": log("one"), "c": COMMIT, "r": request, "d": BEGIN, "e": log("two")}

    def flow(self, **more: Any) -> ReadyFlow:
        return self.world.flow(self.nodes, chain(*self.nodes), **{"idempotencyKey": "input.id", **more})

    async def call(self, actor: Actor = ALICE) -> RunResult:
        return await asyncio.to_thread(lambda: self.world.runs.call(self.flow(), {"id": "a"}, actor))

    def resuming(self, *, seconds: float = 3600.0) -> AbstractAsyncContextManager[None]:
        return resuming(self.harness.broker, self.world.runs, lambda _: self.flow(), seconds=seconds)

    def pass_deadline(self) -> None:
        """Let the deadline of each run pass."""
        with self.world.database.transaction() as connection:
            connection.execute(RUN.update().where(RUN.c.due.is_not(None)).values(due=1.0))

    async def ended(self, run: str | None) -> RunRecord:
        async with asyncio.timeout(WAIT):
            while (found := await asyncio.to_thread(self.world.runs.find, str(run))).due is not None:
                await asyncio.sleep(0.05)
        return found


@asynccontextmanager
async def consent_world(
    idp: IdentityProvider, clock: TestClock, folder: Path, **changes: Any
) -> AsyncIterator[ConsentWorld]:
    async with RawServer(says(200, b'{"id": "m1"}', content_type="application/json")) as api:
        named = {"flowtools": PluginResources()}
        access = ApiAccess((ApiHost("127.0.0.1", api.port, "http"),), ("POST",))
        async with running(idp, [user_app(idp, api=access, **changes)], clock=clock, plugins=named) as harness:
            made = ConsentWorld(harness, api, folder)
            yield made
            for each in made.worlds:
                each.database.engine.dispose()
