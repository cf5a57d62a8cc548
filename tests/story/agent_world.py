"""A broker and an orchestrator in this process, and agents in processes of their own."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oauthbroker import Broker, Turn, TurnAuth, open_broker
from oauthbroker.audit.memory import AuditList
from oauthbroker.core.clock import SystemClock
from oauthbroker.observability.logging import json_log
from oauthbroker.repository.repository import Repository
from oauthbroker.store.format.port import Store
from oauthbroker.tools.changesets.activation import Activation
from oauthbroker.tools.changesets.changesets import open_changesets
from oauthbroker.tools.orchestration.instances import Instance, Instances
from oauthbroker.tools.orchestration.orchestrator import Orchestrator
from oauthbroker.tools.orchestration.plan import plans_from
from tests.kit.agent_bundle import FILES, USER, plan, written
from tests.kit.default_store import default_store
from tests.unit.tools.changesets.repositories import bare_repository

SUBJECTS = {"user": "slack:user:T1:U1", "global": "slack:team:T1"}


def turn_of(instance: str = "thread-1", agent: str = "planner") -> Turn:
    actor = {"type": "user", "id": "slack:U1"}
    return Turn(agent, instance, "Swarm/default", origin={"channel": "C1"}, auth=TurnAuth(actor, SUBJECTS))


@dataclass
class AgentWorld:
    broker: Broker
    orchestrator: Orchestrator
    instances: Instances
    workspaces: Path
    running: asyncio.Task[None]
    store: Store | None = None

    @property
    def repository(self) -> Repository:
        """A second pair of eyes on the store."""
        assert self.store is not None
        return Repository(self.store)

    async def stop(self) -> None:
        """End the orchestrator, and not the broker."""
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)

    async def say(self, text: str, of: Turn | None = None, *, key: str | None = None) -> str:
        """Queue a user's message. Return the id of its event."""
        of = of or turn_of()
        payload = {"input": text, "source": {"kind": "connector"}, "traceId": "trace-7"}
        return await self.broker.events.enqueue(of.agent_name, "chat.message", payload, turn=of, idempotency_key=key)

    async def outcome(self, event_id: str, seconds: float = 60) -> Mapping[str, Any]:
        async with asyncio.timeout(seconds):
            while (found := await self.instances.outcome(event_id)) is None:
                await asyncio.sleep(0.05)
        return found

    async def reported(self, text: str, of: Turn | None = None) -> Any:
        """Say it and return the answer."""
        return (await self.outcome(await self.say(text, of)))["answer"]

    async def called(self, name: str, args: Mapping[str, Any], of: Turn | None = None) -> Any:
        """Make the model call a tool. Return the output or the code of the error."""
        (result,) = json.loads(await self.reported(plan((name, args)), of))
        return result

    async def pid(self, of: Turn | None = None) -> int:
        return int(await self.called("notes__pid", {}, of))

    async def history(self) -> str:
        """Return the recorded messages of all turns."""
        kept = [json.dumps(value) async for key, value in self.broker.plugin_state("tools").all() if "message/" in key]
        return "\n".join(kept)

    def workdir(self, agent: str = "planner", instance: str = "thread-1") -> Path:
        return self.workspaces / agent / Instance("Swarm/default", agent, instance).digest

    def notes(self, agent: str = "planner", instance: str = "thread-1") -> list[str]:
        path = self.workdir(agent, instance) / "notes"
        return path.read_text().splitlines() if path.exists() else []


@asynccontextmanager
async def agent_world(
    folder: Path,
    *,
    lease: float = 60,
    files: Mapping[str, str] = FILES,
    in_git: bool = False,
    workspaces: str = "workspaces",
) -> AsyncIterator[AgentWorld]:
    """Run the agents of a bundle. `in_git`: its files are a repository, which agents change by changesets."""
    clock = SystemClock()
    config = written(folder / "config", lease=lease, files=files, state=folder / "state")
    changesets = opened = None
    if in_git:
        repository = bare_repository(folder / "git", {each.name: each.read_text("utf-8") for each in config.iterdir()})
        changesets = open_changesets(repository, folder / "bundle/system", user=USER)
        opened = changesets.newest()
        config = opened.folder
    log = json_log(io.StringIO(), clock)
    store, shared = default_store(clock), folder / workspaces
    async with open_broker(config, env={}, store=store, audit=AuditList(), log=log) as broker:
        activation = Activation(broker, changesets, opened) if changesets and opened else None
        orchestrator = Orchestrator(broker, plans_from(broker), shared, activation=activation, user=USER)
        running = asyncio.create_task(orchestrator.run())
        world = AgentWorld(broker, orchestrator, Instances(broker.plugin_state("tools")), shared, running, store)
        try:
            yield world
        finally:
            await world.stop()
