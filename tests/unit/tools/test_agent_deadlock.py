"""Agents that ask each other at the same moment."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oauthbroker.tools.orchestration.agent_calls import AgentCalls, CallingTurn
from oauthbroker.tools.orchestration.instances import Instance
from oauthbroker.tools.orchestration.ipc import IpcRefused
from oauthbroker.tools.orchestration.plan import SwarmPlan
from tests.unit.tools.turn_kit import event


@pytest.mark.rule("turns.ours-20")
async def test_two_agents_that_ask_each_other_at_once_do_not_both_wait():
    async def enqueue(*_: Any, **__: Any) -> str:
        await asyncio.sleep(0.01)
        return "evt-2"

    async def outcome(_event_id: str) -> None:
        return None

    broker: Any = SimpleNamespace(events=SimpleNamespace(enqueue=enqueue))
    instances: Any = SimpleNamespace(outcome=outcome)
    calls = AgentCalls(broker, instances)
    plan = SwarmPlan(name="default", entry_agent="planner", agents={"planner": {}, "writer": {}}, grace_seconds=1)

    def caller(agent: str) -> CallingTurn:
        instance = Instance("Swarm/default", agent, "thread-1")
        return CallingTurn(plan=plan, instance=instance, event=event(), workdir=Path())

    def ask(of: str, target: str) -> Any:
        return calls.answer(caller(of), "agents.request", {"target": target, "input": "x", "timeout": 1})

    ends = await asyncio.gather(ask("planner", "writer"), ask("writer", "planner"), return_exceptions=True)
    assert ["E_AGENT_DEADLOCK", "E_AGENT_TIMEOUT"] == sorted(e.code for e in ends if isinstance(e, IpcRefused))
    assert 0 == calls.waiting
