"""The storm, shortened; `python -m tests.faults.storm` (`make storm`) is the long form and prints its figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.storm_rush import rush
from tests.faults.storm_siege import siege

PROCESSES, TASKS = 8, 10
KILLS, WORKERS = 24, 4


@pytest.mark.slow
@pytest.mark.case("46")
async def test_one_expired_grant_is_refreshed_once_for_all_processes_and_tasks(tmp_path: Path) -> None:
    report = await rush(tmp_path, PROCESSES, TASKS, within=30)
    assert [] == report.problems
    assert {"ready": PROCESSES * TASKS} == report.figures["answers"]


@pytest.mark.slow
@pytest.mark.case("47")
@pytest.mark.rule("12.5.3-3")
async def test_brokers_killed_at_random_leave_living_grants_or_report_the_loss(tmp_path: Path) -> None:
    report = await siege(tmp_path, KILLS, seed=20261121, workers=WORKERS)
    assert [] == report.problems
    assert KILLS == sum(report.figures["kills"].values())
    assert sum(report.figures["of these after a lost answer"].values()) > 0  # else the killer missed every window
