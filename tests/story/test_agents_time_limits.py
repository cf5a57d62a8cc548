"""Tools of agent processes that take too long: the model is told, and their later work reaches nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.kit.agent_bundle import FILES, plan
from tests.story.agent_world import AgentWorld, agent_world, turn_of

SLOW = """\
import asyncio
import os
import time
from pathlib import Path


def finish(how, ctx, go_on):
    while not Path("go-on").exists():
        time.sleep(0.02)
    try:
        asyncio.run(ctx.runtime.send("writer", f"sent by {how}", instance_key=None))
        end = "sent"
    except Exception as error:
        end = f"{type(error).__name__} {error}"
    ctx.logger.info("all is done")
    Path(f"end-of-{how}").write_text(end)


def blocking(ctx, args):
    finish("blocking", ctx, None)


async def waiting(ctx, args):
    await asyncio.sleep(60)


async def quick(ctx, args):
    return "quick"


async def asking(ctx, args):
    return await ctx.runtime.request("writer", args["input"], instance_key=None, timeout=600)


handlers = {"blocking": blocking, "waiting": waiting, "quick": quick, "asking": asking}
"""
APART = """\
import time


def sleep(ctx, args):
    time.sleep(60)


handlers = {"sleep": sleep}
"""
EXTENSION = """\
import asyncio

from oauthbroker.tools import ToolCatalogItem


def register(api):
    async def wait(ctx, args):
        try:
            await asyncio.sleep(60)
        finally:
            await api.state.set("late")

    async def value(ctx, args):
        return await api.state.get()

    api.tools.register(ToolCatalogItem(name="own__wait"), wait, timeout_seconds=0.5)
    api.tools.register(ToolCatalogItem(name="own__value"), value)
"""
TOOLS = """\
---
apiVersion: agents.example.io/v1alpha1
kind: Tool
metadata: {name: slow}
spec:
  entry: ./slow.py
  timeoutSeconds: 0.5
  exports: [{name: blocking}, {name: waiting}, {name: quick, timeoutSeconds: 20}, {name: asking, timeoutSeconds: 1}]
---
apiVersion: agents.example.io/v1alpha1
kind: Tool
metadata: {name: apart}
spec: {entry: ./apart.py, isolation: process, timeoutSeconds: 2, exports: [{name: sleep}]}
"""
BUNDLE = {
    **FILES,
    "agents.yaml": FILES["agents.yaml"].replace("Tool/notes]", "Tool/notes, Tool/slow, Tool/apart]", 1) + TOOLS,
    "slow.py": SLOW,
    "apart.py": APART,
    "counter.py": EXTENSION,
}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[AgentWorld]:
    async with agent_world(tmp_path, files=BUNDLE) as running:
        yield running


@pytest.mark.rule("tools.ours-8")
async def test_the_model_is_told_of_tools_that_take_too_long_and_the_turn_goes_on(world):
    names = ["slow__blocking", "slow__waiting", "apart__sleep", "own__wait", "slow__quick"]
    ends = json.loads(await world.reported(plan(*[(name, {}) for name in names])))
    assert [*["E_TOOL_TIMEOUT"] * 4, "quick"] == ends
    assert await world.called("own__value", {}) is None, "no value was stored after the end"


@pytest.mark.rule("tools.ours-8")
async def test_a_thread_that_was_left_behind_reaches_no_other_agent_and_no_log(world, caplog):
    caplog.set_level("INFO")
    assert "E_TOOL_TIMEOUT" == await world.called("slow__blocking", {})
    world.workdir().joinpath("go-on").touch()
    end = world.workdir() / "end-of-blocking"
    async with asyncio.timeout(60):
        while not (end.exists() and end.read_text()):
            await asyncio.sleep(0.05)
    assert end.read_text().startswith("ToolFailure This call is over")
    assert "planner: next" == await world.reported("next")
    assert "sent by" not in await world.history()
    assert [] == [line for line in caplog.messages if "all is done" in line]


async def test_a_request_of_a_tool_that_was_given_up_is_taken_back(world):
    """Else the other agent could not ask this one, which seems to wait for it."""
    pause = plan(("notes__sleep", {"seconds": 30}))
    assert "E_TOOL_TIMEOUT" == await world.called("slow__asking", {"input": pause})
    async with asyncio.timeout(10):
        while world.orchestrator._calls.waiting:
            await asyncio.sleep(0.02)
    assert "planner: hello" == await world.reported("hello", turn_of())
