"""What tools and extensions of agent processes print and log reaches the runtime's log."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from oauthbroker import Secret
from tests.kit.agent_bundle import FILES, plan
from tests.story.agent_world import AgentWorld, agent_world, turn_of

TALK = """\
import asyncio
import logging
import subprocess
import sys
import threading


async def printed(ctx, args):
    print("printed by", args["who"])
    await asyncio.sleep(0.01)
    print("not ended by", args["who"], end="")


def in_threads(ctx, args):
    print("printed in the thread of a call")
    thread = threading.Thread(target=lambda: print("printed in a thread of its own"))
    thread.start()
    thread.join()


async def to_thread(ctx, args):
    await asyncio.to_thread(print, "printed by to_thread")


def program(ctx, args):
    subprocess.run([sys.executable, "-c", "print('printed by a program')"])
    sys.stderr.write("written to stderr\\n")


def logged(ctx, args):
    ctx.logger.info("logged at %s", "info")
    logging.getLogger("a.library").warning("logged by a library")
    logging.getLogger("a.library").info("too low for the log")
    try:
        raise ValueError("why")
    except ValueError:
        ctx.logger.exception("it failed")


def leak(ctx, args):
    print("a" * 8000, args["token"])
    ctx.logger.warning("the token is " + args["token"])


handlers = {"printed": printed, "threads": in_threads, "later": to_thread, "program": program, "logged": logged, "leak": leak}
"""
EXTENSION = """\
def register(api):
    api.logger.info("registered")

    async def watch(ctx):
        print("before", ctx.tool_name)
        return await ctx.next()

    api.pipeline.register("toolCall", watch)
"""
TOOL = """\
---
apiVersion: agents.example.io/v1alpha1
kind: Tool
metadata: {name: talk}
spec:
  entry: ./talk.py
  exports: [{name: printed}, {name: threads}, {name: later}, {name: program}, {name: logged}, {name: leak}]
"""
BUNDLE = {
    **FILES,
    "agents.yaml": FILES["agents.yaml"].replace("Tool/notes]", "Tool/notes, Tool/talk]", 1) + TOOL,
    "talk.py": TALK,
    "counter.py": EXTENSION,
}
WHO = "Agent/planner/thread-1"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[AgentWorld]:
    async with agent_world(tmp_path, files=BUNDLE) as running:
        yield running


async def until(caplog, *lines: str) -> None:
    """Wait for lines, which come over a pipe of their own."""
    for _ in range(500):
        if not set(lines) - set(caplog.messages):
            return
        await asyncio.sleep(0.02)
    assert [] == sorted(set(lines) - set(caplog.messages))


@pytest.mark.rule("turns.ours-31")
async def test_each_line_that_is_printed_or_logged_is_reported_with_agent_instance_and_tool(world, caplog):
    caplog.set_level("INFO")
    await world.reported(plan(*[(f"talk__{export}", {}) for export in ("threads", "later", "program", "logged")]))
    await until(
        caplog,
        f"{WHO} oauthbroker.tools.extension.counter: registered",
        f"{WHO} talk__threads printed: before talk__threads",
        f"{WHO} talk__threads printed: printed in the thread of a call",
        f"{WHO} printed: printed in a thread of its own",
        f"{WHO} talk__later printed: printed by to_thread",
        f"{WHO} printed: printed by a program",
        f"{WHO} talk__program printed: written to stderr",
        f"{WHO} talk__logged oauthbroker.tools.agent: logged at info",
        f"{WHO} talk__logged a.library: logged by a library",
        f"{WHO} talk__logged oauthbroker.tools.agent: it failed",
        f"{WHO} talk__logged oauthbroker.tools.agent: ValueError: why",
    )
    levels = {record.message.partition(": ")[2]: record.levelname for record in caplog.records}
    assert ("INFO", "WARNING", "ERROR") == (
        levels["logged at info"],
        levels["logged by a library"],
        levels["it failed"],
    )
    assert "too low" not in "\n".join(caplog.messages)


async def test_lines_of_instances_and_of_calls_that_run_in_parallel_are_told_apart(world, caplog):
    caplog.set_level("INFO")
    calls = [("talk__printed", {"who": f"call {n}"}) for n in range(20)]
    await asyncio.gather(*(world.reported(plan(*calls), turn_of(key)) for key in ("thread-1", "thread-2")))
    expected = [
        f"Agent/planner/{key} talk__printed printed: {how} by call {n}"
        for key in ("thread-1", "thread-2")
        for n in range(20)
        for how in ("printed", "not ended")
    ]
    await until(caplog, *expected)


@pytest.mark.rule("turns.ours-25")
async def test_no_token_of_the_broker_is_logged(world, caplog):
    caplog.set_level("INFO")
    token = "xoxb-a-token-of-the-broker-that-is-long"
    world.broker.scrubber.remember(Secret(token))
    world.workdir().mkdir(parents=True, exist_ok=True)
    (end,) = json.loads(await world.reported(plan(("talk__leak", {"token": token}))))
    assert end is None
    await until(caplog, f"{WHO} talk__leak oauthbroker.tools.agent: the token is ***")
    assert token[:12] not in "\n".join(caplog.messages)
