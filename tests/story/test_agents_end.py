"""The end of an orchestrator at each moment of a turn: no process is left behind, and a turn that has not ended keeps its
event and its attempts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.tools.orchestration.agent_user import AgentProcess
from tests.kit.processes import ended
from tests.story.agent_world import agent_world

BEFORE_THE_START, STARTED, CONFIGURED = "before the start", "agent.configure", "turn.begin"


@pytest.mark.rule("turns.ours-21")
@pytest.mark.parametrize("moment", [BEFORE_THE_START, STARTED, CONFIGURED])
async def test_a_turn_whose_process_starts_at_the_end_costs_no_attempt_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
):
    reached, go_on, pids, faults = asyncio.Event(), asyncio.Event(), [], []
    start, ask = AgentProcess.start, AgentProcess.ask
    asyncio.get_running_loop().set_exception_handler(lambda _loop, fault: faults.append(fault))

    async def stop_here(at: str) -> None:
        if at == moment and not go_on.is_set():
            reached.set()
            await go_on.wait()

    async def started(*arguments: Any) -> AgentProcess:
        await stop_here(BEFORE_THE_START)
        process = await start(*arguments)
        pids.append(process._process.pid)
        return process

    async def asked(self: AgentProcess, kind: str, payload: Any) -> Any:
        await stop_here(kind)
        return await ask(self, kind, payload)

    monkeypatch.setattr(AgentProcess, "start", started)
    monkeypatch.setattr(AgentProcess, "ask", asked)
    async with agent_world(tmp_path) as world:
        event_id = await world.say("hello")
        await asyncio.wait_for(reached.wait(), 60)
        ending = asyncio.create_task(world.stop())
        await asyncio.sleep(0.05)
        go_on.set()
        await asyncio.wait_for(ending, 60)
        assert all([await ended(pid) for pid in pids])
        if (outcome := await world.instances.outcome(event_id)) is None:
            lease = await world.broker.events.lease("planner", wait=5)
            assert lease is not None
            assert (event_id, 1) == (lease.to_json()["eventId"], lease.attempt)
        else:
            assert "planner: hello" == outcome["answer"]
    assert [] == faults
