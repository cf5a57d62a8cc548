"""Turns that are not tried again: each has an outcome, its request ends, and an agent gets an event."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.tools.orchestration import processes
from oauthbroker.tools.orchestration.failed_turns import FailedTurns
from oauthbroker.tools.orchestration.instances import Instance
from oauthbroker.tools.orchestration.orchestrator import Orchestrator
from oauthbroker.tools.orchestration.plan import plans_from
from tests.kit.agent_bundle import FILES, USER, plan
from tests.kit.queues import lose_body
from tests.story.agent_world import AgentWorld, agent_world, turn_of
from tests.story.agents_here import REMEMBERING, AgentHere

FAILING = REMEMBERING | {"model.py": REMEMBERING["model.py"].replace(
    "        results = []\n", '        if "fail" in seen[-1] and not seen[-1].startswith("{"):\n            raise OSError\n        results = []\n'
)}  # fmt: skip
PLANNER = Instance("Swarm/default", "planner", "thread-1")


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for queues in ("queue", "postgres_queues"):
        monkeypatch.setattr(f"oauthbroker.events.{queues}.BACKOFF_SECONDS", (0.02,))


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AgentWorld]:
    monkeypatch.setattr(processes, "AgentProcess", AgentHere)
    async with agent_world(tmp_path, files=FAILING) as running:
        yield running


async def _failure(world: AgentWorld, event_id: str) -> str:
    """Return the answer of a turn that failed for good."""
    outcome = await world.outcome(event_id)
    assert ("error", "E_TURN_FAILED") == (outcome["status"], outcome["error"]["code"])
    assert outcome["error"]["message"] == outcome["answer"]
    return str(outcome["answer"])


async def _until(world: AgentWorld, text: str, count: int = 1) -> None:
    async with asyncio.timeout(60):
        while (await world.history()).count(text) < count:
            await asyncio.sleep(0.02)


async def _settled(world: AgentWorld) -> None:
    """Return when no event waits and none is leased."""
    async with asyncio.timeout(60):
        while any(each.waiting + each.leased for each in await world.broker.dead_letters.states()):
            await asyncio.sleep(0.05)


@pytest.mark.rule("turns.ours-29", "turns.ours-4")
async def test_a_turn_that_fails_on_each_attempt_has_an_outcome_and_its_agent_is_told(world):
    event_id = await world.say("fail")
    assert "The turn failed and is not tried again: the model failed with OSError." == await _failure(world, event_id)
    await _until(world, "turn.failed")
    (reported,) = [json.loads(each) for each in json.loads(await world.reported("look"))[1:2]]
    assert ("turn.failed", event_id) == (reported["type"], reported["payload"]["eventId"])
    assert ("planner", "E_TURN_FAILED") == (reported["payload"]["agentName"], reported["payload"]["error"]["code"])
    assert event_id == (await world.instances.turns(PLANNER))[0]


@pytest.mark.rule("turns.ours-29")
async def test_a_turn_whose_process_dies_each_time_has_an_outcome(tmp_path):
    async with agent_world(tmp_path) as world:
        answer = await _failure(world, await world.say("die"))
        await _settled(world)
    assert "The turn failed and is not tried again: the process of the agent ended." == answer


@pytest.mark.rule("turns.ours-29")
@pytest.mark.parametrize("tool", ["raise RuntimeError", "handlers = 5", "import os\nos._exit(3)"])
async def test_a_turn_whose_process_cannot_start_has_an_outcome(tmp_path, tool):
    async with agent_world(tmp_path, files={**FILES, "notes.py": f"{FILES['notes.py']}\n{tool}\n"}) as world:
        assert "is not tried again" in await _failure(world, await world.say("hello"))
        await _settled(world)


@pytest.mark.rule("turns.ours-29")
async def test_a_turn_of_a_swarm_that_the_runtime_does_not_run_has_an_outcome_and_no_event(world):
    """Another runtime may take it from the queue of the agent meanwhile."""
    of = replace(turn_of(), swarm_ref="Swarm/gone")
    event_id = await world.say("hello", of)
    assert "the event is for Swarm/gone, which this runtime does not run" in await _failure(world, event_id)
    await _settled(world)
    assert [event_id] == [each["eventId"] for each in await world.broker.events.dead(of.agent_name)]
    assert [event_id] == await world.instances.turns(Instance.of(of))


async def test_a_failure_whose_writing_was_cut_short_is_kept_whole_the_next_time(world, monkeypatch):
    async def cut(*_: Any) -> None:
        raise OSError

    with monkeypatch.context() as patch, pytest.raises(OSError):
        patch.setattr(world.instances, "_listed", cut)
        await world.instances.fail("evt-1", {"status": "error"}, turn_of())
    assert await world.instances.fail("evt-1", {"status": "error"}, turn_of())
    assert ["evt-1"] == await world.instances.turns(PLANNER)


@pytest.mark.rule("turns.ours-29")
async def test_a_turn_of_an_agent_that_its_swarm_does_not_have_is_refused_at_once(world):
    """No agent reads that queue."""
    events = [await world.say(text, turn_of(agent="editor")) for text in ("hello", "again")]
    for event_id in events:
        outcome = await world.outcome(event_id)
        assert "E_TURN_REFUSED" == outcome["error"]["code"]
        assert "Swarm/default has no agent 'editor', its agents are planner, writer" in outcome["answer"]
    await _settled(world)
    assert [] == await world.broker.events.dead("editor")


async def test_the_queue_of_another_runtime_keeps_its_events(world, caplog):
    of = replace(turn_of(agent="foreign"), swarm_ref="Swarm/other")
    events = [
        await world.say("one", of),
        await world.broker.events.enqueue("foreign", "order.made", {}, turn=turn_of()),
    ]
    refused = await world.say("hello", turn_of("thread-2", agent="foreign"))
    assert "E_TURN_REFUSED" == (await world.outcome(refused))["error"]["code"]
    async with asyncio.timeout(20):
        while "wait for 'foreign', which is no agent of this bundle" not in caplog.text:
            await asyncio.sleep(0.05)
    for event_id in events:
        delivery = await world.broker.events.lease("foreign", wait=20)
        assert (event_id, 1) == (delivery.event.id, delivery.attempt)
        assert await delivery.ack()


@pytest.mark.rule("turns.ours-29")
@pytest.mark.embedded_only("PostgreSQL has no id of an event whose body is damaged")
async def test_a_damaged_event_has_an_outcome(world):
    await world.reported("look")
    sleeping = await world.say(plan(("notes__sleep", {"seconds": 0.3})))
    event_id = await world.say("hello")
    await lose_body(world.repository, event_id)
    await world.outcome(sleeping)
    assert "its event is damaged" in await _failure(world, event_id)


@pytest.mark.rule("turns.ours-29")
async def test_a_request_ends_with_the_damaged_event_that_it_waits_for(world):
    busy, event_ids = turn_of(agent="writer"), list[str]()
    enqueue = world.broker.events.enqueue

    async def watched(*given: Any, **more: Any) -> str:
        event_ids.append(await enqueue(*given, **more))
        return event_ids[-1]

    world.broker.events.enqueue = watched
    await world.say(plan(("notes__sleep", {"seconds": 1})), busy)
    asking = await world.say(plan(("others__request", {"target": "writer", "input": "hello", "timeout": 60})))
    async with asyncio.timeout(60):
        while len(event_ids) < 3:
            await asyncio.sleep(0.01)
    await lose_body(world.repository, event_ids[-1])
    assert ["E_AGENT_FAILED"] == json.loads((await world.outcome(asking))["answer"])


@pytest.mark.rule("turns.ours-29", "002-11.3-8")
async def test_a_request_ends_with_the_turn_that_it_waits_for_and_no_event_follows(world):
    started = asyncio.get_running_loop().time()
    assert "E_AGENT_FAILED" == await world.called("others__request", {"target": "writer", "input": "fail"})
    assert asyncio.get_running_loop().time() - started < 20, "its deadline"
    assert "the model failed with OSError" in await world.history()
    await world.reported("look")
    assert "turn.failed" not in await world.history()


@pytest.mark.rule("turns.ours-29")
async def test_the_sender_of_a_message_is_told_that_its_turn_failed(world):
    await world.called("others__send", {"target": "writer", "input": "fail", "instanceKey": "bob"})
    await _until(world, "turn.failed")
    assert "turn.failed" in await world.reported("look")
    assert "turn.failed" not in await world.reported("look", turn_of(agent="writer"))


@pytest.mark.rule("turns.ours-29")
async def test_a_turn_that_fails_on_the_news_of_a_failure_is_the_last_one(world, monkeypatch):
    async def fails(*_: Any) -> None:
        raise OSError

    monkeypatch.setattr(world.orchestrator, "_ran", fails)
    await _failure(world, await world.say("hello"))
    await _settled(world)
    await asyncio.sleep(1.5)  # another look at the dead letters
    await _settled(world)
    assert ["chat.message"] == [each["type"] for each in await world.broker.events.dead("planner")]
    _, news = await world.instances.turns(PLANNER)
    assert "OSError" in await _failure(world, news)


@pytest.mark.rule("turns.ours-29")
async def test_an_event_that_an_operator_retries_runs_and_its_answer_is_the_outcome(world, monkeypatch):
    ran = world.orchestrator._ran
    monkeypatch.setattr(world.orchestrator, "_ran", None)
    event_id = await world.say("hello")
    await _failure(world, event_id)
    for kept in True, False:  # it fails again, then it is answered
        monkeypatch.setattr(world.orchestrator, "_ran", None if kept else ran)
        assert await world.broker.dead_letters.retry("planner", event_id)
        async with asyncio.timeout(60):
            while kept and event_id not in {each.id for each in await world.broker.dead_letters.dead("planner")}:
                await asyncio.sleep(0.02)
    async with asyncio.timeout(60):
        while (outcome := await world.instances.outcome(event_id)) is None or outcome["status"] != "ok":
            await asyncio.sleep(0.02)
    assert "hello" == json.loads(outcome["answer"])[-1]


@pytest.mark.rule("turns.ours-29")
async def test_a_dead_letter_from_before_the_start_has_an_outcome_and_wakes_no_agent(world):
    await world.stop()
    event_id = await world.say("hello")
    async with asyncio.timeout(60):
        while not await world.broker.events.dead("planner"):  # as orchestrators that were killed leave it
            if (delivery := await world.broker.events.lease("planner")) is not None:
                await delivery.nack()
            await asyncio.sleep(0.02)
    assert await world.instances.outcome(event_id) is None
    running = asyncio.create_task(
        Orchestrator(world.broker, plans_from(world.broker), world.workspaces, user=USER).run()
    )
    try:
        assert "its process or its orchestrator was ended" in await _failure(world, event_id)
        await asyncio.sleep(1.5)
        assert "turn.failed" not in await world.history()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.rule("turns.ours-29")
async def test_a_dead_letter_is_seen_beside_one_that_was_retried_and_is_dead_again(world):
    await world.stop()
    failed = FailedTurns(world.broker, world.instances, requests={}, serves=lambda _swarm, _agent: False)

    async def dies(*event_ids: str) -> None:
        while len(await world.broker.events.dead("planner")) < len(event_ids):
            if (delivery := await world.broker.events.lease("planner")) is not None:
                failed.taken(delivery.to_json())
                await delivery.nack()
            await asyncio.sleep(0.02)
        await failed.look("planner")
        assert None not in [await world.instances.outcome(each) for each in event_ids]

    retried = await world.say("hello")
    await dies(retried)
    other = await world.say("hello", turn_of("thread-2"))
    assert await world.broker.dead_letters.retry("planner", retried)
    await dies(retried, other)


@pytest.mark.rule("turns.ours-29")
async def test_a_failure_never_replaces_an_answer(world):
    event_id = await world.say("hello")
    outcome = await world.outcome(event_id)
    assert not await world.instances.fail(event_id, {"status": "error"}, turn_of())
    assert outcome == await world.instances.outcome(event_id)
