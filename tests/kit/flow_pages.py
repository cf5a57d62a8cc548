"""A bundle with deployed tools and their runs, for tests of the operators' pages: one run of each end, with a marker in
every value that no page may show."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from oauthbroker import Secret
from oauthbroker.flowtools.deployment.versions import FlowVersions
from oauthbroker.flowtools.running.ports import Ports
from oauthbroker.flowtools.serving.kinds import FlowServiceSpec
from oauthbroker.flowtools.serving.service import FlowService
from oauthbroker.flowtools.specification.failures import Actor
from oauthbroker.plugins import PluginResource, PluginResources, SystemClock
from oauthbroker.store.format.port import Store
from tests.kit.flow_bundle import INPUT, OUTPUT, SERVICE, STAFF, bundle, call, deploy_to, note_tool
from tests.kit.flow_versions import state_of
from tests.unit.flowtools.kit import chain, written
from tests.unit.flowtools.run_kit import BEGIN, COMMIT, Entries

MARKER = "M4RKER-of-a-value"
HOSTILE = "<script>alert('x')</script>"
HTTP = {"type": "http"}
ADA = Actor(id="ada", roles=frozenset({"staff"}))
WRITES = ("write", {"entity": "Log", "operation": "create", "fields": {"text": "input.text"}})


def steps_tool(name: str, *, middle: tuple[str, Any], **more: Any) -> dict[str, Any]:
    """A tool that commits a line, takes a node, and writes another line."""
    nodes = {"open": BEGIN, "line": WRITES, "close": COMMIT, "middle": middle, "again": BEGIN, "last": WRITES}
    nodes["end"] = COMMIT
    given = {"input": INPUT, "output": OUTPUT, "policies": None, "idempotencyKey": "input.text", "trigger": HTTP}
    return written(nodes, chain(*nodes), "open", name=name, **{**given, **STAFF, **more})


def pages_bundle(folder: Path, versions: FlowVersions) -> None:
    """Deploy the tools: three that serve, an older version, one that cannot run here, and one with hostile names."""
    bundle(folder)
    deploy = partial(deploy_to, versions)
    deploy(note_tool("note", HTTP))
    deploy({**note_tool("note", HTTP, "concat(input.text, '!')"), "version": 2}, activate=True, by="Bea")
    never = ("assert", {"expression": "input.n == 1", "message": "the number must be 1"})
    deploy(steps_tool("checked", middle=never))
    deploy(steps_tool("computed", middle=("transform", {"expression": "double(input.text)"})))
    deploy(note_tool("mailing", {"type": "queue"}, auth={"runAs": "weekly"}))
    refuses = ("assert", {"expression": "false", "message": HOSTILE})
    deploy(steps_tool("hostile", middle=refuses, description=HOSTILE))


def resources_of(folder: Path) -> PluginResources:
    spec = FlowServiceSpec.model_validate(SERVICE)
    secrets: dict[Any, Secret] = {("database",): Secret(f"sqlite:///{folder / 'flows.db'}")}
    return PluginResources((PluginResource("FlowService", "flows", spec, secrets=secrets),), folder)


@asynccontextmanager
async def flow_service(folder: Path, versions: FlowVersions) -> AsyncIterator[FlowService]:
    resources = resources_of(folder)
    given: dict[str, Any] = {"store": folder / "store", "ports": Ports(), "versions": versions}
    service = FlowService(resources.resources[0], folder, **given)
    try:
        await service.look()
        yield service
    finally:
        await service.close()


async def furnish(folder: Path, store: Store) -> dict[str, str]:
    """Deploy the tools in a store and run them. Return the ids of the runs, by their tool."""
    versions, ids = FlowVersions(state_of(store), SystemClock(), Entries()), {}
    await asyncio.to_thread(pages_bundle, folder, versions)
    async with flow_service(folder, versions) as service:
        for name, number in (("note", 0), ("checked", 2), ("computed", 1), ("hostile", 0)):
            result = await call(service, name, {"text": f"{MARKER} {name}", "n": number}, ADA)
            ids[name] = str(result.run)
    return ids


def written_values(folder: Path) -> str:
    """Return the bytes of the database as text: the marker is there."""
    return "".join(each.read_bytes().decode("latin-1") for each in folder.glob("flows.db*"))
