"""Calls of tools and turns of agents, each beside the least that it stands on.

A call beside its handler alone, an isolated call beside a Python that reads and writes a line, and a turn in an agent
process beside an event that is only queued, leased and acknowledged.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bench.figures import MS, US, called_in_turn, in_turn, parser, show, show_failure, show_in_turn, timed
from oauthbroker import Broker, Turn, TurnAuth, open_broker
from oauthbroker.core.clock import SystemClock
from oauthbroker.observability.logging import json_log
from oauthbroker.testing.stores import open_file_store
from oauthbroker.tools import (
    CallScope,
    Containment,
    Instances,
    Message,
    Orchestrator,
    ProcessTool,
    Registry,
    ToolCall,
    ToolCalls,
    ToolCatalogItem,
    detect_containment,
    plans_from,
)

TOOLS = 1000
USER = 65534 if os.geteuid() == 0 else None  # a runtime that is root names a user for its tools
PLAIN, QUEUED = "isolated: a plain Python", "turn: an event taken and acknowledged"
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
ARGS = {"city": "Seoul"}
SETTLED = 0.3  # seconds until the event before is acknowledged: one that comes earlier waits for it
TURN = Turn(
    agent_name="planner",
    instance_key="thread",
    swarm_ref="Swarm/default",
    origin={},
    auth=TurnAuth(subjects={"user": "idp:user:1"}),
)
LINE = "import json, sys; print(json.dumps(json.loads(sys.stdin.readline())))"
TOOL = """\
def get(ctx, args):
    return {"city": args["city"], "sky": "clear"}


handlers = {"get": get}
"""
MODEL = """\
from oauthbroker.tools import ModelAnswer, ToolCall


class Scripted:
    async def complete(self, request):
        newest = request.messages[-1]
        if newest.text == "call":
            return ModelAnswer("", [ToolCall("1", "weather__get", {"city": "Seoul"})])
        return ModelAnswer("clear")


model = Scripted()
"""
BUNDLE = """\
apiVersion: agents.example.io/v1alpha1
kind: Broker
metadata: {name: broker}
spec: {publicBaseUrl: "https://broker.example", plugins: [tools]}
---
apiVersion: agents.example.io/v1alpha1
kind: Swarm
metadata: {name: default}
spec: {entryAgent: Agent/planner, agents: [Agent/planner]}
---
apiVersion: agents.example.io/v1alpha1
kind: Agent
metadata: {name: planner}
spec: {modelRef: Model/scripted, tools: [Tool/weather]}
---
apiVersion: agents.example.io/v1alpha1
kind: Model
metadata: {name: scripted}
spec: {provider: python, name: ./model.py}
---
apiVersion: agents.example.io/v1alpha1
kind: Tool
metadata: {name: weather}
spec: {entry: ./weather.py, exports: [{name: get, parameters: {type: object, properties: {city: {type: string}}}}]}
"""


async def waiting(_ctx: object, args: dict[str, Any]) -> dict[str, Any]:
    return {"city": args["city"], "sky": "clear"}


def blocking(_ctx: object, args: dict[str, Any]) -> dict[str, Any]:
    return {"city": args["city"], "sky": "clear"}


def registry_of(handler: Any, count: int = 1) -> Registry:
    registry = Registry()
    for number in range(count):
        item = ToolCatalogItem(name=f"tool-{number}__get", description="Return the weather.", parameters=CITY)
        registry.register(item, handler, owner=f"Tool/tool-{number}")
    return registry


class Caller:
    """Calls one handler through the runtime, without a journal."""

    def __init__(self, handler: Any, workdir: Path) -> None:
        registry = registry_of(handler)
        self._calls = ToolCalls(registry, lambda value: value)
        self._scope = CallScope(
            agent_name="planner",
            instance_key="thread",
            turn_id="turn",
            trace_id="trace",
            message=Message(id="m", role="assistant"),
            workdir=workdir,
            logger=logging.getLogger("tools"),
            catalog=registry.catalog(["tool-0"]),
        )

    async def call(self) -> None:
        result = await self._calls.perform(ToolCall("call", "tool-0__get", ARGS), self._scope)
        assert result.status == "ok", result.error


async def a_thread() -> None:
    """Start a thread for a function and wait for it."""
    loop = asyncio.get_running_loop()
    ended = loop.create_future()

    def run() -> None:
        loop.call_soon_threadsafe(ended.set_result, blocking(None, ARGS))

    threading.Thread(target=run, daemon=True).start()
    await ended


async def a_subprocess() -> None:
    """Let a Python read a line of JSON and write one."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-I", "-c", LINE, stdin=pipe, stdout=pipe)
    answer, _ = await process.communicate(json.dumps(ARGS).encode() + b"\n")
    assert json.loads(answer) == ARGS


async def calls(folder: Path, *, quick: bool) -> None:
    rounds, batch = (3, 20) if quick else (100, 200)
    alone: dict[str, Any] = {"call: the handler alone": lambda: waiting(None, ARGS)}
    show_in_turn(await in_turn({**alone, "call: with await": Caller(waiting, folder).call}, rounds, batch))
    threads = {"call: a thread alone": a_thread, "call: in a thread": Caller(blocking, folder).call}
    show_in_turn(await in_turn(threads, rounds, batch))


async def isolated(folder: Path, *, quick: bool) -> None:
    entry = folder / "weather.py"
    entry.write_text(TOOL, "utf-8")
    works: dict[str, Any] = {PLAIN: a_subprocess}
    found = detect_containment(user=USER)
    if USER is not None:
        os.chown(folder, USER, USER)
    for name, containment in {"isolated: a call": Containment(), "isolated: a call in bubblewrap": found}.items():
        if containment.bubblewrap or name == "isolated: a call":
            tool = ProcessTool(entry=entry, containment=containment)
            works[name] = Caller(tool, folder).call
    measured = await in_turn(works, 3 if quick else 50, 1)
    plain = measured.pop(PLAIN)
    show(PLAIN, [each / US * MS for each in plain], "ms")
    for name, samples in measured.items():
        show(name, [each / US * MS for each in samples], "ms", {PLAIN: [each / US * MS for each in plain]})
    if not found.bubblewrap:
        show_failure("isolated: a call in bubblewrap", "bubblewrap is not installed, or may make no namespaces")


def catalog(*, quick: bool) -> None:
    many, names = registry_of(waiting, TOOLS), [f"tool-{number}" for number in range(TOOLS)]
    works: dict[str, Callable[[], object]] = {
        "a tool registered": lambda: registry_of(waiting, TOOLS),
        "a tool in a catalog of 1,000, as JSON": lambda: json.dumps([each.to_json() for each in many.catalog(names)]),
    }
    for name, samples in called_in_turn(works, 3 if quick else 50, 1).items():
        show(name, [each / TOOLS for each in samples], "us")


class Agents:
    """Asks an agent whose process runs, and waits for the answer."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._instances = Instances(broker.plugin_state("tools"))

    async def queued(self) -> None:
        """Take an event as any runtime does, and do nothing with it."""
        await self._broker.events.enqueue("idle", "chat.message", {"input": "hello"}, turn=TURN)
        event = await self._broker.events.lease("idle")
        assert event is not None
        await event.ack()

    async def asked(self, text: str = "hello") -> None:
        event_id = await self._broker.events.enqueue("planner", "chat.message", {"input": text}, turn=TURN)
        async with asyncio.timeout(60):
            while (outcome := await self._instances.outcome(event_id)) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        assert outcome["answer"] == "clear", outcome


async def turns(folder: Path, *, quick: bool) -> None:
    folder.chmod(0o755)  # noqa: ASYNC240 - agents of another user read the bundle there
    for name, text in {"bundle.yaml": BUNDLE, "model.py": MODEL, "weather.py": TOOL}.items():
        (folder / name).write_text(text, "utf-8")
    log, store = json_log(io.StringIO(), SystemClock()), open_file_store(folder)
    async with open_broker(folder / "bundle.yaml", env={}, store=store, log=log) as broker:
        orchestrator = Orchestrator(broker, plans_from(broker), folder / "agents", user=USER)
        running = asyncio.create_task(orchestrator.run())
        agents = Agents(broker)
        await agents.asked()  # starts the process
        works: dict[str, Any] = {QUEUED: agents.queued, "turn: an answer": agents.asked}
        works["turn: a call and an answer"] = partial(agents.asked, "call")
        measured: dict[str, list[float]] = {name: [] for name in works}
        for _ in range(3 if quick else 50):
            for name, work in works.items():
                await asyncio.sleep(SETTLED)
                measured[name].append(await timed(work(), MS))
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    queued = measured.pop(QUEUED)
    show(QUEUED, queued, "ms")
    for name, samples in measured.items():
        show(name, samples, "ms", {QUEUED: queued})


def main(*, quick: bool) -> None:
    catalog(quick=quick)
    for part in (calls, isolated, turns):
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(part(Path(folder), quick=quick))


if __name__ == "__main__":
    main(quick=parser().parse_args().quick)
