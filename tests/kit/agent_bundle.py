"""A bundle of agents whose model follows orders: the user's message is a plan in JSON.

`{"calls": [[name, args], ...]}` are the calls of the first step; the answer is then the list of the outputs and codes.
With `"lengths": true` it has the lengths of the outputs. With `"prompt": true` it begins with `<agent>: `, as the
step that gives it is configured. Other text is answered with `<agent>: <text>`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import oauthbroker.tools.base

USER = 61234 if os.geteuid() == 0 else None  # a runtime that is root names a user for its agents


def given(folder: Path) -> None:
    """Give a folder to the user of the agents."""
    if USER is not None:
        os.chown(folder, USER, USER)


BROKER = """\
apiVersion: agents.example.io/v1alpha1
kind: Broker
metadata: {name: broker}
spec:
  publicBaseUrl: https://broker.example
  plugins: [tools]
  advanced: {queueLeaseSeconds: LEASE, queueAttempts: ATTEMPTS}
"""
AGENTS = """\
apiVersion: agents.example.io/v1alpha1
kind: Swarm
metadata: {name: default}
spec:
  entryAgent: Agent/planner
  agents: [Agent/planner, Agent/writer]
  policy: {gracePeriodMs: 2000}
---
apiVersion: agents.example.io/v1alpha1
kind: Agent
metadata: {name: planner}
spec: {modelRef: Model/told, systemPrompt: planner, tools: [Tool/others, Tool/notes], extensions: [Extension/counter]}
---
apiVersion: agents.example.io/v1alpha1
kind: Agent
metadata: {name: writer}
spec: {modelRef: Model/told, systemPrompt: writer, tools: [Tool/others, Tool/notes]}
---
apiVersion: agents.example.io/v1alpha1
kind: Model
metadata: {name: told}
spec: {provider: python, name: ./model.py}
---
apiVersion: agents.example.io/v1alpha1
kind: Extension
metadata: {name: counter}
spec: {entry: ./counter.py, config: {step: 2}}
---
apiVersion: agents.example.io/v1alpha1
kind: Tool
metadata: {name: others}
spec:
  entry: ./others.py
  exports: [{name: request}, {name: send}, {name: spawn}, {name: list}, {name: catalog}]
---
apiVersion: agents.example.io/v1alpha1
kind: Tool
metadata: {name: notes}
spec:
  entry: ./notes.py
  exports: [{name: add}, {name: crash}, {name: sleep}, {name: pid}, {name: block}, {name: echo}, {name: later}, {name: leak}]
"""
MODEL = """\
import json
import os
import signal

from oauthbroker.tools.models import ModelAnswer
from oauthbroker.tools.types.results import ToolCall


class Told:
    async def complete(self, request):
        told = max(i for i, each in enumerate(request.messages) if each.role in ("user", "system"))
        text, results = request.messages[told].text, [m.result for m in request.messages[told:] if m.result]
        if text == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if results:
            ends = [each.error.code if each.error else each.output for each in results]
            if "lengths" in json.loads(text):
                return ModelAnswer(json.dumps([len(each) for each in ends]))
            before = f"{request.system_prompt}: " if "prompt" in json.loads(text) else ""
            return ModelAnswer(before + json.dumps(ends))
        try:
            plan = json.loads(text)
            calls = [ToolCall("x", name, args) for name, args in plan["calls"]]
        except (ValueError, KeyError, TypeError):
            return ModelAnswer(f"{request.system_prompt}: {text}")
        return ModelAnswer("", calls)


model = Told()
"""
OTHERS = """\
async def request(ctx, args):
    named = {"instance_key": args["instanceKey"]} if "instanceKey" in args else {}
    timed = {"timeout": args["timeout"]} if "timeout" in args else {}
    return await ctx.runtime.request(args["target"], args["input"], **named, **timed)


async def send(ctx, args):
    text = "\\ud800" if args["input"] == "<half>" else args["input"]  # which no model can write
    await ctx.runtime.send(args["target"], text, instance_key=args.get("instanceKey"))
    return {"sent": True}


async def spawn(ctx, args):
    return await ctx.runtime.spawn(args["target"], instance_key=args.get("instanceKey"), cwd=args.get("cwd"))


async def list_(ctx, args):
    return await ctx.runtime.list(include_all=args.get("includeAll", False))


async def catalog(ctx, args):
    return await ctx.runtime.catalog()


handlers = {"request": request, "send": send, "spawn": spawn, "list": list_, "catalog": catalog}
"""
NOTES = """\
import asyncio
import os
import signal
import time
from pathlib import Path

from oauthbroker.tools.types.results import GoesOn


async def add(ctx, args):
    with (Path(os.getcwd()) / "notes").open("a") as notes:
        notes.write(f"{ctx.tool_call_id} {ctx.trace_id} {args['text']}\\n")
    return args["text"]


async def crash(ctx, args):
    await add(ctx, {"text": "crash"})
    if len((Path(os.getcwd()) / "notes").read_text().splitlines()) <= args.get("times", 1):
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"


async def sleep(ctx, args):
    await asyncio.sleep(args["seconds"])


async def block(ctx, args):
    time.sleep(args["seconds"])


async def pid(ctx, args):
    return os.getpid()


async def echo(ctx, args):
    print(args["text"], flush=True)
    return {"text": args["text"], "env": sorted(os.environ)}


async def later(ctx, args):
    async def work():
        await asyncio.sleep(args["seconds"])
        return args["text"] * args.get("times", 1)

    return GoesOn(work())


async def leak(ctx, args):
    token = Path(__file__).with_name("leaked").read_text()
    print("leaked", token, flush=True)
    return token


handlers = {"later": later, "leak": leak, "add": add, "crash": crash, "sleep": sleep, "pid": pid, "block": block, "echo": echo}
"""
COUNTER = """\
def register(api):
    async def count(ctx):
        turns = ((await api.state.get()) or 0) + api.config["step"]
        result = await ctx.next()
        await api.state.set(turns)
        return result

    api.pipeline.register("turn", count)
"""
BASE = Path(oauthbroker.tools.base.__file__).with_name("tools.yaml").read_text("utf-8")
LISTS = AGENTS.replace(
    "tools: [Tool/others, Tool/notes]",
    "changesets: {allow: [agents.yaml]}, tools: [Tool/others, Tool/notes, Tool/bash, Tool/file-system]",
    1,
).replace("  policy:", "  changesets: {allow: ['*.yaml']}\n  policy:")
FILES = {"model.py": MODEL, "others.py": OTHERS, "notes.py": NOTES, "counter.py": COUNTER, "agents.yaml": AGENTS}

EDITABLE = {**FILES, "agents.yaml": LISTS, "base.yaml": BASE}  # the planner may change agents.yaml


def written(
    folder: Path, *, lease: float = 60, attempts: int = 5, files: Mapping[str, str] = FILES, state: Path | None = None
) -> Path:
    """Write the bundle into a folder. `state` is where store and keys would be."""
    folder.mkdir(parents=True, exist_ok=True)
    broker = BROKER.replace("LEASE", str(lease)).replace("ATTEMPTS", str(attempts))
    if state is not None:
        broker += f"  store: {{root: {state}/store}}\n  keys: {{file: {state}-keys/broker.kek}}\n"
    for name, text in {**files, "broker.yaml": broker}.items():
        folder.joinpath(name).write_text(text, "utf-8")
    return folder


def plan(*calls: tuple[str, Mapping[str, Any]], **more: Any) -> str:
    """Return the message of a user that makes the model call these tools."""
    return json.dumps({"calls": [[name, dict(args)] for name, args in calls], **more})
