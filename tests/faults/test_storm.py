"""The storm, shortened; `python -m tests.faults.storm` (`make storm`) is the long form and prints its figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.storm_rush import longest_pause, rush
from tests.faults.storm_siege import siege

PROCESSES, TASKS = 8, 10
KILLS, WORKERS = 24, 4


@pytest.mark.slow
@pytest.mark.case("46")
async def test_one_expired_grant_is_refreshed_once_for_all_processes_and_tasks(tmp_path: Path) -> None:
    report = await rush(tmp_path, PROCESSES, TASKS)
    assert [] == report.problems
    assert {"ready": PROCESSES * TASKS} == report.figures["answers"]


def test_a_rush_is_judged_by_its_longest_pause_and_not_by_its_end() -> None:
    """A machine under load takes a minute for all; a process that sleeps until its patience ends is told."""
    assert 2.0 == longest_pause([100.0 + 2 * number for number in range(31)])
    assert 30.0 == longest_pause([100.0, 100.1, 130.1, 130.2])


@pytest.mark.slow
@pytest.mark.case("47")
@pytest.mark.rule("12.5.3-3")
async def test_brokers_killed_at_random_leave_living_grants_or_report_the_loss(tmp_path: Path) -> None:
    report = await siege(tmp_path, KILLS, seed=20261121, workers=WORKERS)
    assert [] == report.problems
    assert KILLS == sum(report.figures["kills"].values())
    assert sum(report.figures["of these after a lost answer"].values()) > 0  # else the killer missed every window
