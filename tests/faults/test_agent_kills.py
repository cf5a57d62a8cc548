"""Agents and their orchestrator killed with SIGKILL at random moments, shortened; `python -m tests.faults.agent_kills`
is the long form."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.agent_kills import run

TURNS = 20


@pytest.mark.slow
@pytest.mark.rule("turns.ours-15", "turns.ours-16", "turns.ours-25")
async def test_random_kills_lose_no_event_make_no_call_twice_and_leak_no_token(tmp_path: Path) -> None:
    report = await run(tmp_path, TURNS, seed=20261123)
    assert [] == report.problems
    assert TURNS == report.turns
    assert report.orchestrators_killed + report.agents_killed > 0
