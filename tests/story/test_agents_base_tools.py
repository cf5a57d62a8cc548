"""The base tools and an isolated tool, called by the model of an agent process."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import oauthbroker.tools.base
from oauthbroker import check_config
from tests.kit.agent_bundle import AGENTS, FILES, plan, written
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


@pytest.mark.rule("002-14-1", "002-14-2", "002-14-3", "002-2.5-2")
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


@pytest.mark.rule("002-14-4", "002-11-1", "002-11.3-8", "002-11.3-9")
async def test_the_model_uses_each_of_the_base_calls_of_agents(world):
    assert ["writer"] == (await world.called("agents__catalog", {}))["callableAgents"]
    made = await world.called("agents__spawn", {"target": "writer", "instanceKey": "poems"})
    assert {"target": "writer", "instanceKey": "poems", "cwd": None, "created": True} == made
    asked = {"target": "writer", "input": "hi", "instanceKey": "poems"}
    assert {"target": "writer", "instanceKey": "poems", "response": "writer: hi"} == await world.called(
        "agents__request", asked
    )
    assert [{"target": "writer", "instanceKey": "poems", "cwd": None}] == await world.called("agents__list", {})
    refused: list[tuple[str, dict[str, Any]]] = [
        ("agents__request", {"target": "stranger", "input": "x"}), ("agents__send", {"target": "writer", "input": "x" * 61_500}),
        ("agents__spawn", {"target": "writer", "instanceKey": ""}), ("agents__request", {"target": "planner", "input": "x"}),
        ("agents__request", {"target": "writer", "input": "x", "timeoutSeconds": 0}), ("agents__send", {"target": "writer"}),
    ]  # fmt: skip
    assert [
        "E_AGENT_UNKNOWN",
        "E_AGENT_INPUT",
        "E_AGENT_INSTANCE",
        "E_AGENT_DEADLOCK",
        "E_TOOL_ARGUMENTS",
        "E_TOOL_ARGUMENTS",
    ] == json.loads(await world.reported(plan(*refused)))


@pytest.mark.rule("002-10.3-2")
async def test_an_isolated_tool_has_a_process_for_each_call_and_a_crash_is_an_error_of_the_call(world):
    agent = await world.pid()
    first, second = [await world.called("contained__pids", {}) for _ in range(2)]
    assert "planner" == first["agent"]
    assert "OAUTHBROKER_URL" not in first["env"]
    assert agent not in {first["pid"], second["pid"]}
    assert "E_TOOL" == await world.called("contained__crash", {})
    assert agent == await world.pid()
