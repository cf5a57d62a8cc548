"""Agents in processes of their own: turns, conversations, crashes, and calls of other agents."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oauthbroker import BrokerError, Code, Secret
from oauthbroker.tools.orchestration.instances import Instance, Instances
from oauthbroker.tools.orchestration.plan import plans_from
from oauthbroker.tools.types.results import INPUT
from tests.kit.agent_bundle import FILES, given, plan
from tests.kit.processes import ended
from tests.story.agent_world import SUBJECTS, AgentWorld, agent_world, turn_of


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[AgentWorld]:
    async with agent_world(tmp_path) as running:
        yield running


async def test_an_event_starts_the_process_of_its_agent_and_is_answered(world):
    assert "planner: hello" == await world.reported("hello")


async def test_an_instance_keeps_its_process_and_another_one_has_its_own(world):
    first = await world.pid()
    assert first == await world.pid()
    assert first not in {await world.pid(turn_of("thread-2")), os.getpid()}


async def test_an_agent_process_has_no_environment_of_ours_and_its_output_is_logged(world, caplog):
    with caplog.at_level("INFO"):
        reported = await world.called("notes__echo", {"text": "printed by a tool"})
    assert {"LANG", "PATH"} >= set(reported["env"]) - {"LC_CTYPE"}
    assert "Agent/planner/thread-1 notes__echo printed: printed by a tool" in caplog.messages


async def test_a_conversation_is_remembered_and_the_value_of_an_extension_too(world):
    await world.reported("first")
    await world.reported("second")
    instance = world.instances
    event_id = await world.say("third")
    await world.outcome(event_id)
    history = await instance.begin_turn(instance_of(), event_id, turn_of())
    assert ["first", "planner: first", "second", "planner: second"] == [each["text"] for each in history]
    assert ["third", "planner: third"] == [each["text"] for each in await instance.messages(event_id)]
    assert 6 == await instance.value(instance_of(), "Extension/counter")  # its `config` says two for each turn


async def test_the_turns_of_an_instance_are_listed_in_the_order_in_which_they_began(world):
    ids = [await world.say(text) for text in ("first", "second")]
    await world.outcome(await world.say("elsewhere", turn_of("thread-2")))
    await world.outcome(ids[1])
    assert ids == await world.instances.turns(instance_of())
    assert [] == await world.instances.turns(instance_of(key="thread-3"))


def instance_of(agent: str = "planner", key: str = "thread-1") -> Instance:
    return Instance("Swarm/default", agent, key)


@pytest.mark.rule("turns.ours-14")
async def test_one_turn_at_a_time_in_the_order_of_the_events(world):
    ids = [await world.say(plan(("notes__add", {"text": str(number)}))) for number in range(6)]
    for event_id in ids:
        await world.outcome(event_id)
    assert [str(number) for number in range(6)] == [line.split()[-1] for line in world.notes()]


async def test_conversations_do_not_wait_for_one_another(world):
    slow = await world.say(plan(("notes__sleep", {"seconds": 20})), turn_of("slow"))
    assert "planner: quick" == await world.reported("quick", turn_of("quick"))
    assert await world.instances.outcome(slow) is None


@pytest.mark.rule("turns.ours-15")
async def test_an_event_that_was_accepted_twice_is_one_turn(world):
    text = plan(("notes__add", {"text": "once"}))
    first, second = await world.say(text, key="message 7"), await world.say(text, key="message 7")
    await world.outcome(first)
    await world.reported("after")
    assert first == second
    assert 1 == len(world.notes())


@pytest.mark.rule("turns.ours-16", "002-10.3-2")
async def test_after_a_crash_the_turn_goes_on_and_the_call_that_ended_it_is_not_made_again(world):
    assert "E_TOOL_INTERRUPTED" == await world.called("notes__crash", {})
    assert 1 == len(world.notes())


@pytest.mark.rule("turns.ours-16")
async def test_the_results_of_other_calls_of_the_step_are_kept_over_a_crash(world):
    ends = json.loads(await world.reported(plan(("notes__add", {"text": "a"}), ("notes__crash", {"times": 2}))))
    assert "E_TOOL_INTERRUPTED" == ends[1]
    assert ends[0] in {"a", "E_TOOL_INTERRUPTED"}
    assert 2 == len(world.notes())


@pytest.mark.rule("turns.ours-17")
@pytest.mark.slow
async def test_an_event_that_always_crashes_is_a_dead_letter_and_the_next_one_is_answered(tmp_path, monkeypatch):
    for queues in ("queue", "postgres_queues"):
        monkeypatch.setattr(f"oauthbroker.events.{queues}.BACKOFF_SECONDS", (0.1,))
    async with agent_world(tmp_path) as world:
        event_id = await world.say("die")
        assert "planner: after" == await world.reported("after")
        assert [event_id] == [each["eventId"] for each in await world.broker.events.dead("planner")]


@pytest.mark.rule("turns.ours-25")
async def test_the_model_sees_no_token_that_a_tool_returned_in_the_same_turn(world):
    world.broker.scrubber.remember(Secret("xoxb-a-token-of-the-broker"))
    args = {"text": "it is xoxb-a-token-of-the-broker"}
    assert [len("it is ***")] == json.loads(await world.reported(plan(("notes__add", args), lengths=True)))


async def test_work_that_goes_on_wakes_its_agent_when_it_ends(world):
    (reported,) = json.loads(await world.reported(plan(("notes__later", {"seconds": 0.5, "text": "it is done"}))))
    assert reported is None, "a handle and no output yet"
    async with asyncio.timeout(60):
        while "tool.completed" not in (history := await world.history()):
            await asyncio.sleep(0.1)
    assert "it is done" in history.partition("tool.completed")[2]


@pytest.mark.rule("004-12.3-3")
@pytest.mark.parametrize(("times", "reported"), [(10_000, "seven b" * 10_000), (50_000, "E_TOOL_OUTPUT")])
async def test_an_output_too_large_for_an_event_is_told_with_it_and_kept_once(world, times, reported):
    await world.reported(plan(("notes__later", {"seconds": 0, "text": "seven b", "times": times})))
    async with asyncio.timeout(60):
        while "tool.completed" not in (history := await world.history()):
            await asyncio.sleep(0.1)
    assert reported in history
    async with asyncio.timeout(60):
        while any([key.startswith("result/") async for key, _ in world.broker.plugin_state("tools").all()]):
            await asyncio.sleep(0.1)


async def test_work_that_goes_on_and_crashes_is_told_to_its_agent(world):
    pid = await world.pid()
    await world.reported(plan(("notes__later", {"seconds": 60, "text": "never"})))
    os.kill(pid, signal.SIGKILL)
    await world.reported("next")
    async with asyncio.timeout(60):
        while "E_TOOL_INTERRUPTED" not in await world.history():
            await asyncio.sleep(0.1)


@pytest.mark.rule("002-2.6-7", "002-11.3-10")
async def test_a_process_that_is_killed_between_turns_is_started_again(world):
    pid = await world.pid()
    os.kill(pid, signal.SIGKILL)
    assert pid != await world.pid()


@pytest.mark.rule("turns.ours-18")
async def test_a_turn_that_outlives_its_lease_holds_it(tmp_path):
    async with agent_world(tmp_path, lease=1) as world:
        assert [None] == json.loads(await world.reported(plan(("notes__sleep", {"seconds": 3}))))
        await asyncio.sleep(0.5)
        assert await world.broker.events.lease("planner") is None


@pytest.mark.rule("002-2.6-7", "002-11.3-10", "002-11.1-1")
async def test_a_request_starts_the_other_agent_and_returns_its_answer(world):
    reported = await world.called("others__request", {"target": "writer", "input": "a poem"})
    assert {"target": "writer", "instanceKey": None, "response": "writer: a poem"} == reported


@pytest.mark.rule(
    "002-1.1-4",
    "002-2.6-1",
    "002-2.6-2",
    "002-2.6-3",
    "002-2.6-4",
    "002-11.1-2",
    "002-11.2-1",
    "002-11.3-1",
    "002-11.3-2",
    "002-11.3-3",
)
async def test_a_request_has_replyto_and_a_message_has_none_and_both_hand_on_auth_and_trace(world, monkeypatch):
    seen: list[Any] = []
    begin = Instances.begin_turn

    async def watch(self: Instances, instance: Instance, event_id: str, turn: Any) -> Any:
        seen.append((instance, turn))
        return await begin(self, instance, event_id, turn)

    events: list[dict[str, Any]] = []
    enqueue = type(world.broker.events).enqueue

    async def queued(self: Any, agent: str, kind: str, payload: Any, **more: Any) -> Any:
        events.append({"agent": agent, "type": kind, **payload})
        return await enqueue(self, agent, kind, payload, **more)

    monkeypatch.setattr(Instances, "begin_turn", watch)
    monkeypatch.setattr(type(world.broker.events), "enqueue", queued)
    await world.called("others__request", {"target": "writer", "input": "a poem"})
    assert {"sent": True} == await world.called("others__send", {"target": "writer", "input": "a note"})
    _, request, _, message = events
    assert ("writer", "agent.request", "trace-7") == (request["agent"], request["type"], request["traceId"])
    assert "Agent/planner/thread-1" == request["replyTo"]["target"]
    assert request["replyTo"]["correlationId"].startswith("call-")
    assert {"kind": "agent", "name": "planner", "instanceKey": "thread-1"} == request["source"] == message["source"]
    assert ("agent.message", "trace-7") == (message["type"], message["traceId"])
    assert "replyTo" not in message
    async with asyncio.timeout(60):
        while 4 > len(seen):
            await asyncio.sleep(0.05)
    assert {"writer", "planner"} == {instance.agent for instance, _ in seen}
    assert all(turn.auth.subjects == SUBJECTS and turn.origin == {"channel": "C1"} for _, turn in seen)


async def test_the_other_agents_tools_have_the_same_trace(world):
    await world.called("others__request", {"target": "writer", "input": plan(("notes__add", {"text": "x"}))})
    ((_, trace, _),) = [line.split() for line in world.notes("writer")]
    assert "trace-7" == trace


REFUSED = {
    "an agent that the swarm does not define": ("request", {"target": "stranger", "input": "x"}, "E_AGENT_UNKNOWN"),
    "a message to it": ("send", {"target": "Agent/writer", "input": "x"}, "E_AGENT_UNKNOWN"),
    "an instance of it": ("spawn", {"target": "stranger"}, "E_AGENT_UNKNOWN"),
    "no text": ("request", {"target": 5, "input": "x"}, "E_AGENT_UNKNOWN"),
    "another alphabet": ("send", {"target": "writ\u0435r", "input": "x"}, "E_AGENT_UNKNOWN"),
    "an empty key": ("request", {"target": "writer", "input": "x", "instanceKey": ""}, "E_AGENT_INSTANCE"),
    "itself": ("request", {"target": "planner", "input": "x"}, "E_AGENT_DEADLOCK"),
    "a key of another conversation": ("send", {"target": "writer", "input": "x", "instanceKey": "a::b"}, "E_AGENT_INSTANCE"),
    "a folder outside": ("spawn", {"target": "writer", "cwd": "../.."}, "E_AGENT_CWD"),
    "no name of a folder": ("spawn", {"target": "writer", "cwd": "a\0b"}, "E_AGENT_CWD"),
    "an absolute folder": ("spawn", {"target": "writer", "cwd": "/etc"}, "E_AGENT_CWD"),
    "no time": ("request", {"target": "writer", "input": plan(("notes__sleep", {"seconds": 9})), "timeout": 0.1}, "E_AGENT_TIMEOUT"),
}  # fmt: skip


@pytest.mark.rule("002-2.6-5", "002-11.3-4", "002-11.3-8", "turns.ours-19", "turns.ours-20")
@pytest.mark.parametrize(("tool", "args", "code"), REFUSED.values(), ids=REFUSED)
async def test_a_failed_call_of_an_agent_is_a_result_with_a_code(world, tool, args, code):
    assert code == await world.called(f"others__{tool}", args)


MALFORMED: dict[str, tuple[str, dict[str, Any], str]] = {
    "a name in other letters": ("request", {"target": "Writer", "input": "x"}, "E_AGENT_UNKNOWN"),
    "no agent": ("send", {"target": None, "input": "x"}, "E_AGENT_UNKNOWN"),
    "a key of 65 characters": ("spawn", {"target": "writer", "instanceKey": "a" * 65}, "E_AGENT_INSTANCE"),
    "an empty key": ("spawn", {"target": "writer", "instanceKey": ""}, "E_AGENT_INSTANCE"),
    "an empty key of a request": ("request", {"target": "writer", "input": "x", "instanceKey": ""}, "E_AGENT_INSTANCE"),
    "a key that is no text": ("spawn", {"target": "writer", "instanceKey": 5}, "E_AGENT_INSTANCE"),
    "a key of other letters": ("request", {"target": "writer", "input": "x", "instanceKey": "시"}, "E_AGENT_INSTANCE"),
    "an input that is no text": ("request", {"target": "writer", "input": {"a": 1}}, "E_AGENT_INPUT"),
    "no input": ("send", {"target": "writer", "input": None}, "E_AGENT_INPUT"),
    "half a character": ("send", {"target": "writer", "input": "<half>"}, "E_AGENT_INPUT"),
    "an input that is too large for an event": ("request", {"target": "writer", "input": "x" * (INPUT.size - 1)}, "E_AGENT_INPUT"),
}  # fmt: skip


@pytest.mark.rule("002-2.6-5", "002-11.3-4", "002-11.3-8", "turns.ours-19")
async def test_each_malformed_call_of_an_agent_beside_others_is_a_result_with_a_code(world):
    calls = [(f"others__{tool}", args) for tool, args, _ in MALFORMED.values()]
    good = ("others__send", {"target": "writer", "input": "good"})
    reported = json.loads(await world.reported(plan(*calls, good)))
    assert [*(code for *_, code in MALFORMED.values()), {"sent": True}] == reported


@pytest.mark.rule("002-11-1", "002-11.1-1")
async def test_any_text_that_fits_an_event_is_asked(world):
    texts = ["", "한" * 3_000, "\U0001f600\0\n"]
    reported = json.loads(
        await world.reported(plan(*[("others__request", {"target": "writer", "input": it}) for it in texts]))
    )
    assert [f"writer: {text}" for text in texts] == [each["response"] for each in reported]
    longest = "x" * (INPUT.size - 2)  # and two quotes
    reported = await world.called("others__request", {"target": "writer", "input": longest})
    assert f"writer: {longest}" == reported["response"]


@pytest.mark.rule("002-11.1-2", "002-11.3-3")
@pytest.mark.parametrize("target", ["writer", "planner"])
async def test_a_message_to_an_agent_at_work_and_to_itself_is_sent_at_once(world, target):
    slow = await world.say(plan(("notes__block", {"seconds": 5})), turn_of(agent="writer"))
    assert {"sent": True} == await world.called("others__send", {"target": target, "input": "a note"})
    assert await world.instances.outcome(slow) is None, "it does not wait for a turn of the other agent"


@pytest.mark.rule("002-2.6-5", "002-11.3-8")
async def test_a_message_that_the_queue_does_not_take_is_a_result_with_a_code(world, monkeypatch):
    enqueue = type(world.broker.events).enqueue

    async def full(self: Any, agent: str, kind: str, payload: Any, **more: Any) -> Any:
        if kind == "agent.message":
            raise BrokerError(Code.STORE_UNAVAILABLE)
        return await enqueue(self, agent, kind, payload, **more)

    monkeypatch.setattr(type(world.broker.events), "enqueue", full)
    assert "E_AGENT_QUEUE" == await world.called("others__send", {"target": "writer", "input": "x"})


@pytest.mark.rule("turns.ours-20")
async def test_two_agents_that_would_wait_for_each_other_are_told_at_once(world):
    back = plan(("others__request", {"target": "planner", "input": "x"}))
    reported = await world.called("others__request", {"target": "writer", "input": back})
    assert '["E_AGENT_DEADLOCK"]' == reported["response"]


@pytest.mark.rule("turns.ours-20")
async def test_an_agent_that_waits_for_two_others_is_not_waited_for_by_one_of_them(world):
    back = plan(("others__request", {"target": "planner", "input": "x"}))
    first = ("others__request", {"target": "writer", "input": back, "instanceKey": "back"})
    second = ("others__request", {"target": "writer", "input": "quick", "instanceKey": "quick"})
    reported = [each["response"] for each in json.loads(await world.reported(plan(first, second)))]
    assert ['["E_AGENT_DEADLOCK"]', "writer: quick"] == reported


@pytest.mark.rule("002-2.6-8", "002-11.1-3", "002-11.1-4", "002-11.3-5", "002-11.3-6")
async def test_a_spawned_instance_is_reached_by_its_name_and_listed_by_its_agent(world):
    agents, plugin = [await world.called("others__catalog", {})], world.broker.bundle.plugins["tools"]
    written = {file: file.read_bytes() for file in Path(plugin.folder).rglob("*") if file.is_file()}
    resources = repr(plugin.resources)
    made = await world.called("others__spawn", {"target": "writer", "instanceKey": "poems"})
    again = await world.called("others__spawn", {"target": "writer", "instanceKey": "poems"})
    assert {"target": "writer", "instanceKey": "poems", "cwd": None, "created": True} == made
    assert not again["created"]
    reported = await world.called("others__request", {"target": "writer", "input": "x", "instanceKey": "poems"})
    assert ("writer: x", "poems") == (reported["response"], reported["instanceKey"])
    listed = [{"target": "writer", "instanceKey": "poems", "cwd": None}]
    assert listed == await world.called("others__list", {})
    assert [] == await world.called("others__list", {}, turn_of(agent="writer"))
    await world.called("others__spawn", {"target": "writer", "instanceKey": "POEMS"})
    back = await world.called("others__spawn", {"target": "planner", "instanceKey": "poems"}, turn_of(agent="writer"))
    assert back["created"], "a name is one for each agent, and letters count as they are"
    listed = [{**listed[0], "instanceKey": name} for name in ("POEMS", "poems")]
    assert listed == sorted(await world.called("others__list", {}), key=str)
    assert [{"target": "planner", "instanceKey": "poems", "cwd": None}] == (
        await world.called("others__list", {}, turn_of(agent="writer"))
    )
    listed = [{"target": "planner", "instanceKey": "poems", "cwd": None}, *listed]
    assert listed == sorted(await world.called("others__list", {"includeAll": True}, turn_of(agent="writer")), key=str)
    assert [] == await world.called("others__list", {"includeAll": True}, turn_of("thread-2")), "another conversation"
    assert agents == [await world.called("others__catalog", {})]
    assert resources == repr(world.broker.bundle.plugins["tools"].resources)
    files = {file: file.read_bytes() for file in Path(plugin.folder).rglob("*") if file.is_file()}
    assert written == {file: text for file, text in files.items() if "__pycache__" not in file.parts}


async def test_a_spawned_instance_works_in_the_folder_that_its_agent_gave_it(world):
    await world.called("notes__add", {"text": "mine"})
    workdir = world.workdir()
    workdir.joinpath("drafts").mkdir()
    given(workdir / "drafts")
    made = await world.called("others__spawn", {"target": "writer", "instanceKey": "poems", "cwd": "drafts"})
    assert str(workdir / "drafts") == made["cwd"]
    note = plan(("notes__add", {"text": "theirs"}))
    await world.called("others__request", {"target": "writer", "input": note, "instanceKey": "poems"})
    assert "theirs" in workdir.joinpath("drafts/notes").read_text()


@pytest.mark.rule("002-11.1-5", "002-11.3-7")
async def test_the_catalog_of_agents_has_the_printed_members(world):
    assert {
        "swarmName": "default", "entryAgent": "planner", "selfAgent": "writer",
        "availableAgents": ["planner", "writer"], "callableAgents": ["planner"],
    } == await world.called("others__catalog", {}, turn_of(agent="writer"))  # fmt: skip


TWO_SWARMS = """\
---
apiVersion: agents.example.io/v1alpha1
kind: Swarm
metadata: {name: second}
spec: {entryAgent: Agent/stranger, agents: [Agent/stranger, Agent/writer]}
---
apiVersion: agents.example.io/v1alpha1
kind: Agent
metadata: {name: stranger}
spec: {modelRef: Model/told, systemPrompt: stranger, tools: [Tool/others]}
"""


@pytest.mark.rule("002-11.1-5", "002-11.3-7", "002-11.3-4", "002-11.3-5")
async def test_an_agent_sees_and_reaches_the_agents_of_its_turns_swarm_alone(tmp_path):
    files = {**FILES, "second.yaml": TWO_SWARMS}
    async with agent_world(tmp_path, files=files) as world:
        second = replace(turn_of(agent="writer"), swarm_ref="Swarm/second")
        assert {
            "swarmName": "second", "entryAgent": "stranger", "selfAgent": "writer",
            "availableAgents": ["stranger", "writer"], "callableAgents": ["stranger"],
        } == await world.called("others__catalog", {}, second)  # fmt: skip
        assert ["planner"] == (await world.called("others__catalog", {}, turn_of(agent="writer")))["callableAgents"]
        for tool, args in (("request", {"input": "x"}), ("send", {"input": "x"}), ("spawn", {})):
            assert "E_AGENT_UNKNOWN" == await world.called(f"others__{tool}", {"target": "stranger", **args})
            assert "E_AGENT_UNKNOWN" == await world.called(f"others__{tool}", {"target": "planner", **args}, second)
        made = await world.called("others__spawn", {"target": "writer", "instanceKey": "poems"})
        assert made["created"]
        assert [] == await world.called("others__list", {"includeAll": True}, second), "another swarm"


@pytest.mark.rule("turns.ours-26")
async def test_a_configuration_that_the_runtime_follows_is_used_from_the_next_step_on(world):
    event_id = await world.say(plan(("notes__sleep", {"seconds": 2}), prompt=True))
    while len(await world.instances.messages(event_id)) < 2:
        await asyncio.sleep(0.05)
    agents = Path(world.broker.bundle.plugins["tools"].folder) / "agents.yaml"
    agents.write_text(agents.read_text("utf-8").replace("systemPrompt: planner", "systemPrompt: changed"), "utf-8")
    await world.broker.reload()
    world.orchestrator.follow(plans_from(world.broker))
    assert "changed: [null]" == (await world.outcome(event_id))["answer"]


@pytest.mark.rule("002-2.3-3", "002-9.1-3")
@pytest.mark.parametrize(("policy", "answer"), [("catalog", "E_TOOL_NOT_IN_CATALOG"), ("registry", "hidden")])
async def test_a_tool_that_the_step_hides_is_called_by_the_policy_of_the_swarm_alone(tmp_path, policy, answer):
    hides = 'def register(api):\n    api.pipeline.register("step", hide)\n\n\nasync def hide(ctx):\n'
    hides += '    ctx.tool_catalog.remove("notes__add")\n    return await ctx.next()\n'
    agents = FILES["agents.yaml"].replace("policy: {", f"policy: {{toolCalls: {policy}, ")
    async with agent_world(tmp_path, files={**FILES, "agents.yaml": agents, "counter.py": hides}) as world:
        assert answer == await world.called("notes__add", {"text": "hidden"})
        assert "E_TOOL_NOT_IN_CATALOG" == await world.called("swarmBundle__openChangeset", {}), "it is not registered"


async def test_an_event_for_an_agent_that_no_swarm_defines_is_refused_and_not_lost(world):
    of = turn_of()
    stranger = replace(of, swarm_ref="Swarm/gone")
    event_id = await world.say("hello", stranger)
    assert "planner: here" == await world.reported("here")
    assert await world.instances.outcome(event_id) is None


@pytest.mark.rule("turns.ours-21")
@pytest.mark.parametrize(("tool", "answered"), [("notes__sleep", True), ("notes__block", False)])
async def test_at_the_end_a_turn_has_the_grace_period_and_then_its_group_is_killed(tmp_path, tool, answered):
    seconds = 1 if answered else 60
    async with agent_world(tmp_path) as world:
        pid = await world.pid()
        event_id = await world.say(plan((tool, {"seconds": seconds})))
        while len(await world.instances.messages(event_id)) < 2:
            await asyncio.sleep(0.05)
        await world.stop()
        assert await ended(pid)
        assert answered == (await world.instances.outcome(event_id) is not None)
