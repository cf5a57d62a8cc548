"""The base tools and an isolated tool, called by the model of an agent process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import oauthbroker.tools.base
from oauthbroker import check_config
from tests.kit.agent_bundle import AGENTS, FILES, written
from tests.story.agent_world import AgentWorld, agent_world

BASE = Path(oauthbroker.tools.base.__file__).with_name("tools.yaml").read_text("utf-8")
CONTAINED = """\
---
apiVersion: agents.example.io/v1alpha1
kind: Tool
metadata: {name: contained}
spec:
  entry: ./contained.py
  isolation: process
  exports: [{name: pids}, {name: crash}]
"""
HANDLERS = """\
import os


def pids(ctx, args):
    return {"agent": ctx.agent_name, "pid": os.getpid(), "env": sorted(os.environ)}


def crash(ctx, args):
    os._exit(9)


handlers = {"pids": pids, "crash": crash}
"""
TOOLS = "tools: [Tool/others, Tool/notes, Tool/bash, Tool/file-system, Tool/http-fetch, Tool/agents, Tool/contained]"
BUNDLE = {
    **FILES,
    "agents.yaml": AGENTS.replace("tools: [Tool/others, Tool/notes]", TOOLS, 1) + CONTAINED,
    "base.yaml": BASE,
    "contained.py": HANDLERS,
}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[AgentWorld]:
    async with agent_world(tmp_path, files=BUNDLE) as running:
        yield running


def test_a_bundle_with_the_base_tools_is_valid(tmp_path: Path) -> None:
    assert [] == check_config(written(tmp_path, files=BUNDLE))


async def test_the_model_uses_shell_files_and_other_agents(world):
    workdir = str(world.workdir())
    assert {"stdout": f"{workdir}\n", "exitCode": 0} == await world.called("bash__exec", {"command": "pwd; echo x > f"})
    read = await world.called("file-system__read", {"path": "f"})
    assert {"path": f"{workdir}/f", "size": 2, "truncated": False, "content": "x\n"} == read
    assert "E_TOOL" == await world.called("file-system__read", {"path": "../f"})
    assert "E_TOOL_ARGUMENTS" == await world.called("file-system__read", {"path": "f", "maxBytes": "9"})
    assert "E_TOOL" == await world.called("http-fetch__get", {"url": "http://127.0.0.1/"})
    assert "writer: hi" == (await world.called("agents__request", {"target": "writer", "input": "hi"}))["response"]
    assert {"sent": True} == await world.called("agents__send", {"target": "writer", "input": "hi"})


async def test_an_isolated_tool_has_a_process_for_each_call_and_a_crash_is_an_error_of_the_call(world):
    agent = await world.pid()
    first, second = [await world.called("contained__pids", {}) for _ in range(2)]
    assert "planner" == first["agent"]
    assert "OAUTHBROKER_URL" not in first["env"]
    assert agent not in {first["pid"], second["pid"]}
    assert "E_TOOL" == await world.called("contained__crash", {})
    assert agent == await world.pid()
