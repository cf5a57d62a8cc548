"""The slots of agent processes: which of them are idle, and may be ended."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from oauthbroker.tools.isolation.containment import Containment
from oauthbroker.tools.orchestration import processes
from oauthbroker.tools.orchestration.agent_user import AgentUser
from oauthbroker.tools.orchestration.instances import Instance
from oauthbroker.tools.orchestration.processes import Processes


@pytest.mark.rule("turns.ours-14")
async def test_a_slot_that_a_turn_waits_for_is_not_ended_between_two_turns(tmp_path: Path, monkeypatch):
    """Else the next two turns of the instance would run at once, in two processes."""
    monkeypatch.setattr(processes, "MOST_IDLE", 1)
    user = AgentUser(containment=Containment(), workspaces=tmp_path, changesets=None, address="")
    slots = Processes(user, logging.getLogger("test"), str)
    under_way = most = 0

    def of(key: str) -> Instance:
        return Instance("Swarm/default", "planner", key)

    async def turn() -> None:
        nonlocal under_way, most
        async with slots.held(of("thread-1")):
            under_way, most = under_way + 1, max(most, under_way + 1)
            await asyncio.sleep(0.001)
            async with slots.held(of("newer")):
                pass
            under_way -= 1

    async def later(number: int) -> None:
        await asyncio.sleep(number * 0.0007)
        await turn()

    await asyncio.gather(*(later(number) for number in range(20)))
    assert 1 == most
