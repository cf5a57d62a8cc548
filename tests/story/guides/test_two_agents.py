"""docs/tutorials/two-agents.md: its files make two agents that answer as the page says."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.tools.orchestration import processes
from tests.kit.cli import command, environment
from tests.kit.docs import code_blocks
from tests.story.agent_world import agent_world, turn_of
from tests.story.agents_here import REMEMBERING, AgentHere

PAGE = "docs/tutorials/two-agents.md"


def test_the_agents_of_the_page_answer_with_results_in_the_order_of_the_calls(tmp_path: Path):
    for text in [*code_blocks(PAGE, "yaml"), *code_blocks(PAGE)]:
        file = tmp_path / text.partition("\n")[0].removeprefix("# ")
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, "utf-8")
    home = str(tmp_path / "home")
    assert 0 == command("init", "--config", "config", cwd=tmp_path, HOME=home).code
    checked = command("tools", "check", "--config", "config", cwd=tmp_path, HOME=home)
    assert "agents__request\nagents__send\nnotes__add\nnotes__clear\nclock__today\n" == checked.out
    words, env = [sys.executable, "chat.py", "spring"], environment(HOME=home)
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert 0 == done.returncode, done.stderr[-2000:]
    poem = "'target': 'writer', 'instanceKey': None, 'response': 'A poem about spring.'"
    assert re.search(rf"{poem}.*'notes': 1.*'\d{{4}}-\d\d-\d\d', 'E_TOOL_NOT_IN_CATALOG'", done.stdout)


async def test_a_channel_shows_the_answer_of_a_turn_that_the_agent_has_begun_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(processes, "AgentProcess", AgentHere)
    page: dict[str, Any] = {}
    exec(next(each for each in code_blocks(PAGE) if each.startswith("# channel.py")), page)  # noqa: S102  (our own page)
    async with agent_world(tmp_path, files=REMEMBERING) as world, asyncio.timeout(60):
        channel = page["answers"](world.broker, "planner", "thread-1", set())
        await world.say("hello")
        assert "hello" in await anext(channel)
        done = {"handle": "job-7", "status": "ok", "output": "the work has ended"}
        await world.broker.events.enqueue("planner", "tool.completed", done, turn=turn_of())
        await world.say("in another conversation", turn_of("thread-2"))
        assert "the work has ended" in await anext(channel)
        await channel.aclose()


async def test_an_event_without_input_is_reported_by_the_system_with_type_and_payload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(processes, "AgentProcess", AgentHere)
    async with agent_world(tmp_path, files=REMEMBERING) as world:
        event = await world.broker.events.enqueue("planner", "job.done", {"job": 7}, turn=turn_of())
        (seen,) = json.loads((await world.outcome(event))["answer"])
    assert {"type": "job.done", "payload": {"job": 7}} == json.loads(seen)
