"""Hostile values of tools in an agent's own process: each call has one result, in its place and with a true sentence, the
process goes on, and no turn is lost (specification 002, section 2.4)."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from oauthbroker import Turn
from oauthbroker.tools.models import MOST_CALLS
from oauthbroker.tools.orchestration.instances import Instance, Instances
from oauthbroker.tools.types.results import MESSAGE
from tests.kit import hostile_values
from tests.kit.agent_bundle import FILES, plan
from tests.kit.forms import is_long, spread
from tests.kit.hostile_values import ERRORS, PLAIN, VALUES, made
from tests.story.agent_world import AgentWorld, agent_world, turn_of

VALUES_FILE = Path(hostile_values.__file__).read_text("utf-8")
TOOL = f"""\
{VALUES_FILE}
from oauthbroker.tools.types.results import GoesOn


def blocking(ctx, args):
    value = made(args["name"])
    if args["name"] in ERRORS:
        raise value
    return value


async def waiting(ctx, args):
    return blocking(ctx, args)


async def later(ctx, args):
    return GoesOn(waiting(ctx, args))


handlers = {{"blocking": blocking, "waiting": waiting, "later": later}}
"""
EXTENSION = f"""\
{VALUES_FILE}
import json

from oauthbroker.tools.extensions.pipeline import TurnResult


def register(api):
    async def turn(ctx):
        told = json.loads(ctx.event.input or "{{}}")
        result = await ctx.next()
        return TurnResult(made(told["answer"]), made(told["answer"])) if "answer" in told else result

    async def step(ctx):
        if "catalog" in json.loads(ctx.turn.event.input or "{{}}"):
            ctx.tool_catalog = _hostile(object, "freeze", _exit)()
        await ctx.next()

    api.pipeline.register("turn", turn)
    api.pipeline.register("step", step)
"""
MODEL = """\
import json
import os

from oauthbroker.tools.models import ModelAnswer
from oauthbroker.tools.types.results import ToolCall


class Reporting:
    async def complete(self, request):
        last = max(i for i, each in enumerate(request.messages) if each.role in ("user", "system"))
        told, after = json.loads(request.messages[last].text), request.messages[last + 1 :]
        if not after and "calls" in told:
            return ModelAnswer("", [ToolCall("x", name, args) for name, args in told["calls"]])
        names = {call.id: call.args["name"] for call in after[0].calls} if after else {}
        results = [each.result for each in after if each.result]
        ends = [[names.pop(each.tool_call_id), each.handle, each.error and each.error.to_json()] for each in results]
        ended = {name: told["payload"].get(name) for name in ("handle", "error")} if "payload" in told else None
        return ModelAnswer(json.dumps({"pid": os.getpid(), "ends": ends, "ended": ended}))


model = Reporting()
"""
RESOURCE = """\
---
apiVersion: agents.example.io/v1alpha1
kind: Tool
metadata: {name: hostile}
spec: {entry: ./hostile.py, exports: [{name: blocking}, {name: waiting}, {name: later}]}
"""
AGENTS = FILES["agents.yaml"].replace("[Tool/others, Tool/notes]", "[Tool/others, Tool/notes, Tool/hostile]") + RESOURCE
BUNDLE = {**FILES, "agents.yaml": AGENTS, "hostile.py": TOOL, "counter.py": EXTENSION, "model.py": MODEL}
NAMES = [name for name in (*VALUES, *ERRORS) if "__await__" not in name]  # a handler without `await` may return those
UNTRUE = ("process", "interrupt", "may have taken effect")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[AgentWorld]:
    async with agent_world(tmp_path, files=BUNDLE) as running:
        yield running


@pytest.fixture
def begun(world: AgentWorld, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of the attempts at turns, by their events."""
    attempts: list[str] = []
    begin = Instances.begin_turn

    async def watch(self: Instances, instance: Instance, event_id: str, turn: Turn) -> Any:
        attempts.append(event_id)
        return await begin(self, instance, event_id, turn)

    monkeypatch.setattr(Instances, "begin_turn", watch)
    return attempts


def sample(count: int, *, long: int = len(NAMES)) -> list[str]:
    places = spread(len(NAMES), long if is_long() else count, "hostile values of agents")
    return [NAMES[place] for place in places]


def check(name: str, error: Mapping[str, Any] | None) -> None:
    """Check that what the model reads of a call is true."""
    assert (name in PLAIN) == (error is None), (name, error)
    if error is not None:
        assert ("E_TOOL" if name in ERRORS else "E_TOOL_OUTPUT") == error["code"]
        assert 0 < len(error["message"]) <= MESSAGE
        assert not any(word in error["message"] for word in UNTRUE), (name, error)
        assert name in ERRORS or error["message"].startswith("The output is refused: "), (name, error)


async def report(world: AgentWorld, export: str, names: list[str]) -> dict[str, Any]:
    """Call an export with each of the names in one step. Return what the model has seen."""
    event_id = await world.say(plan(*[(f"hostile__{export}", {"name": name}) for name in names]))
    outcome = await world.outcome(event_id, 300)
    assert "ok" == outcome["status"]
    found: dict[str, Any] = json.loads(outcome["answer"])
    assert names == [name for name, _, _ in found["ends"]], "one result for each, in the order of the calls"
    return found


@pytest.mark.parametrize("export", ["waiting", "blocking"])
async def test_hostile_values_are_one_true_result_each_and_the_process_goes_on(world, begun, export):
    names = sample(96)
    steps = range(0, len(names), MOST_CALLS)
    pids = set()
    for first in steps:
        found = await report(world, export, names[first : first + MOST_CALLS])
        pids.add(found["pid"])
        for name, handle, error in found["ends"]:
            assert handle is None
            check(name, error)
    assert (1, len(steps)) == (len(pids), len(begun)), "one process, and one attempt at each turn"


@pytest.mark.slow
async def test_work_that_goes_on_and_ends_with_a_hostile_value_is_reported_by_one_event_each(world, begun):
    step = sample(12, long=MOST_CALLS)
    found = await report(world, "later", step)
    names = {handle: name for name, handle, _ in found["ends"]}
    assert len(step) == len(names)
    here = Instance.of(turn_of())
    async with asyncio.timeout(300):
        while len(turns := await world.instances.turns(here)) <= len(step):
            await asyncio.sleep(0.05)
    ends = [json.loads((await world.outcome(each, 300))["answer"]) for each in turns[1:]]
    assert {found["pid"]} == {each["pid"] for each in ends}
    assert len(step) + 1 == len(begun), "one attempt at each turn"
    reported = {names.pop(each["ended"]["handle"]): each["ended"]["error"] for each in ends}
    assert set(step) == set(reported)
    for name, error in reported.items():
        check(name, error)


@pytest.mark.rule("turns.ours-32")
async def test_a_turn_middleware_whose_answer_is_hostile_loses_no_turn_and_ends_no_process(world, begun):
    names = [*sample(24), "a text with __str__", "an object that exits at __str__"]
    pid = (await report(world, "waiting", ["none"]))["pid"]
    for name in names:
        outcome = await world.outcome(await world.say(json.dumps({"answer": name})))
        is_text = name in PLAIN and issubclass(type(made(name)), str)
        end = outcome["error"]["code"] if "error" in outcome else outcome["status"]
        assert ("ok" if is_text else "E_TURN_RESULT") == end, name
        assert not any(word in outcome["answer"] for word in UNTRUE)
    assert len(names) + 1 == len(begun), "one attempt at each turn"
    assert pid == (await report(world, "waiting", ["none"]))["pid"]


async def test_a_middleware_that_breaks_its_context_ends_no_process_and_is_reported_by_its_exception(world, caplog):
    pid = (await report(world, "waiting", ["none"]))["pid"]
    event_id = await world.say(json.dumps({"catalog": True}))
    async with asyncio.timeout(60):
        while (
            f"the turn of event {event_id} failed, attempt 1: Extension/counter: its step middleware failed with TypeError"
            not in caplog.messages
        ):
            await asyncio.sleep(0.02)
    os.kill(pid, 0)
