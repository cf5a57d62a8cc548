"""Agents whose workers run on the event loop of their orchestrator, with all of the IPC and without processes of their
own: for laws with many conversations. Their model answers with all that it sees."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any, Self

from oauthbroker.tools.orchestration.agent_worker import AgentWorker
from oauthbroker.tools.orchestration.ipc import MOST_LINE, Peer, Serve
from tests.kit.agent_bundle import FILES

_MODEL = """\
import json

from oauthbroker.tools.models import ModelAnswer
from oauthbroker.tools.types.results import ToolCall


class Remembering:
    async def complete(self, request):
        seen = [each.text for each in request.messages]
        results = []
        for each in reversed(request.messages):
            if each.result is None:
                break
            results.insert(0, each.result.error.code if each.result.error else each.result.output)
        if results:
            return ModelAnswer(json.dumps(results))
        try:
            calls = json.loads(seen[-1])["calls"]
        except (ValueError, KeyError, TypeError):
            return ModelAnswer(json.dumps(seen))
        return ModelAnswer("", [ToolCall("x", name, args) for name, args in calls])


model = Remembering()
"""
_MANY = """\
async def ask(ctx, args):
    asked = [await ctx.runtime.request(args["target"], text, instance_key=name, timeout=60) for text, name in args["asks"]]
    return [each["response"] for each in asked]


async def tell(ctx, args):
    for text, name in args["asks"]:
        await ctx.runtime.send(args["target"], text, instance_key=name)


async def spawn(ctx, args):
    return [await ctx.runtime.spawn(args["target"], instance_key=name, cwd=None) for name in args["names"]]


handlers = {"ask": ask, "tell": tell, "spawn": spawn}
"""
_VALUES = """\
from oauthbroker.tools.types.catalog import ToolCatalogItem


def register(api):
    async def keep(ctx, args):
        with (ctx.workdir / "kept").open("a") as kept:
            kept.write(args["text"])
        await api.state.set([*(await api.state.get() or []), args["text"]])
        files = [each.read_text() for each in sorted(ctx.workdir.rglob("*")) if each.is_file()]
        return {"files": files, "value": await api.state.get()}

    api.tools.register(ToolCatalogItem(name="values__keep"), keep)
"""
_TOOL = """\
---
apiVersion: agents.example.io/v1alpha1
kind: Tool
metadata: {name: many}
spec: {entry: ./many.py, exports: [{name: ask}, {name: tell}, {name: spawn}]}
"""
_AGENTS = FILES["agents.yaml"].replace("Tool/notes]}", "Tool/notes], extensions: [Extension/counter]}")
REMEMBERING = {
    **FILES,
    "model.py": _MODEL,
    "many.py": _MANY,
    "counter.py": _VALUES,
    "agents.yaml": _AGENTS.replace("Tool/notes]", "Tool/notes, Tool/many]") + _TOOL,
}


class AgentHere:
    """Stands in for `AgentProcess`."""

    def __init__(self, ends: list[asyncio.Task[None]], peer: Peer) -> None:
        self._ends, self._peer = ends, peer

    @classmethod
    async def start(cls, name: str, _workdir: Path, _command: Any, serve: Serve, _output: Any) -> Self:
        streams = [await asyncio.open_unix_connection(sock=each, limit=MOST_LINE) for each in socket.socketpair()]
        ours, theirs = Peer(streams[0], "orchestrator", name), Peer(streams[1], "agent", "orchestrator")
        ends = [asyncio.create_task(ours.run(serve)), asyncio.create_task(theirs.run(AgentWorker(theirs).serve))]
        return cls(ends, ours)

    @property
    def is_alive(self) -> bool:
        return not self._ends[0].done()

    async def ask(self, kind: str, payload: Any) -> Any:
        return await self._peer.ask(kind, payload)

    async def stop(self, grace_seconds: float) -> None:
        await self.kill()

    async def kill(self) -> None:
        for end in self._ends:
            end.cancel()
        await asyncio.gather(*self._ends, return_exceptions=True)
