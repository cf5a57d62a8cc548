"""Many calls in one step of an agent in a process of its own, as models ask for them: one turn, one answer, no call made
twice, also where the agent is killed meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from subprocess import Popen

import pytest

from oauthbroker.tools.models import MOST_CALLS
from tests.kit.agent_bundle import FILES, plan
from tests.story.agent_world import AgentWorld, agent_world

MANY = """\
import asyncio
import os
import threading
from pathlib import Path

from oauthbroker.tools.types.results import GoesOn

LOCK = threading.Lock()


def note(ctx, args):
    with LOCK, (Path(os.getcwd()) / "notes").open("a") as notes:
        notes.write(f"{ctx.tool_call_id} {ctx.trace_id} {args['text']}\\n")
    return args["text"]


async def waiting(ctx, args):
    await asyncio.sleep(args.get("seconds", 0))
    return note(ctx, args)


async def later(ctx, args):
    async def work():
        return args["text"]

    return GoesOn(work())


handlers = {f"t{n}": waiting if n % 2 else note for n in range(20)} | {"later": later}
"""
TOOL = """\
---
apiVersion: agents.example.io/v1alpha1
kind: Tool
metadata: {name: many}
spec:
  entry: ./many.py
  exports: [{name: later}, EXPORTS]
""".replace("EXPORTS", ", ".join(f"{{name: t{n}}}" for n in range(20)))
AGENTS = FILES["agents.yaml"].replace("[Tool/others, Tool/notes]", "[Tool/others, Tool/notes, Tool/many]") + TOOL


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[AgentWorld]:
    async with agent_world(tmp_path, files={**FILES, "agents.yaml": AGENTS, "many.py": MANY}) as running:
        yield running


@pytest.fixture
def load() -> Iterator[None]:
    """Keep each processor busy meanwhile."""
    busy = [Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 2)]
    yield
    for process in busy:
        process.kill()
        process.wait()


@pytest.mark.rule("turns.ours-7")
@pytest.mark.usefixtures("load")
async def test_sixty_four_equal_calls_in_one_step_are_one_turn_with_one_answer_in_order(world, monkeypatch):
    turns: list[str] = []
    begin = type(world.instances).begin_turn

    async def watch(self, instance, event_id, turn):
        turns.append(event_id)
        return await begin(self, instance, event_id, turn)

    monkeypatch.setattr(type(world.instances), "begin_turn", watch)
    texts = [str(number) for number in range(MOST_CALLS)]
    event_id = await world.say(plan(*[("notes__add", {"text": text}) for text in texts]))
    assert texts == json.loads((await world.outcome(event_id, 120))["answer"])
    assert texts == sorted([line.split()[-1] for line in world.notes()], key=int), "each once"
    assert [event_id] == turns, "in one attempt"


async def test_calls_of_twenty_tools_with_and_without_await_keep_their_order(world):
    wanted = [(f"many__t{n % 20}", {"text": str(n), "seconds": n % 3 / 100}) for n in range(MOST_CALLS)]
    event_id = await world.say(plan(*wanted))
    assert [args["text"] for _, args in wanted] == json.loads((await world.outcome(event_id, 120))["answer"])
    assert MOST_CALLS == len({line.split()[0] for line in world.notes()}) == len(world.notes())


@pytest.mark.rule("turns.ours-16")
@pytest.mark.parametrize("after", [1, 30])
async def test_an_agent_that_is_killed_in_the_middle_of_the_calls_goes_on_and_performs_none_twice(world, after):
    pid = await world.pid()
    texts = [str(number) for number in range(MOST_CALLS)]
    event_id = await world.say(plan(*[(f"many__t{n % 20}", {"text": text}) for n, text in enumerate(texts)]))
    async with asyncio.timeout(60):
        while len(world.notes()) < after:
            await asyncio.sleep(0.001)
    os.kill(pid, signal.SIGKILL)
    ends = json.loads((await world.outcome(event_id, 120))["answer"])
    assert all(end in {text, "E_TOOL_INTERRUPTED"} for text, end in zip(texts, ends, strict=True)), ends
    made = [line.split()[0] for line in world.notes()]
    assert len(set(made)) == len(made), "no call twice"
    done = {line.split()[-1] for line in world.notes()}
    assert {text for text, end in zip(texts, ends, strict=True) if end == text} <= done
    assert "planner: after" == await world.reported("after")


async def test_sixty_four_calls_whose_work_goes_on_get_a_handle_each(world):
    event_id = await world.say(plan(*[("many__later", {"text": f"w{n}"}) for n in range(MOST_CALLS)]))
    assert [None] * MOST_CALLS == json.loads((await world.outcome(event_id, 120))["answer"])


@pytest.mark.rule("002-11.1-3")
async def test_sixty_four_calls_that_spawn_agents_are_all_listed(world):
    spawns = [("others__spawn", {"target": "writer", "instanceKey": f"i{n}"}) for n in range(MOST_CALLS)]
    event_id = await world.say(plan(*spawns))
    made = json.loads((await world.outcome(event_id, 120))["answer"])
    assert [f"i{n}" for n in range(MOST_CALLS)] == [each["instanceKey"] for each in made]
    assert MOST_CALLS == len(await world.called("others__list", {}))


@pytest.mark.rule("turns.ours-30")
async def test_the_model_is_told_of_each_call_that_is_not_performed(world):
    wanted = [["notes__add", {"text": "a"}], ["", {}], ["notes__add", ["a"]], *[["notes__add", {"text": "b"}]] * 64]
    event_id = await world.say(json.dumps({"calls": wanted}))
    ends = json.loads((await world.outcome(event_id, 120))["answer"])
    expected = ["a", "E_TOOL_NOT_IN_CATALOG", "E_TOOL_ARGUMENTS", *["b"] * 61, *["E_TOOL_TOO_MANY_CALLS"] * 3]
    assert expected == ends
    assert 62 == len(world.notes())
