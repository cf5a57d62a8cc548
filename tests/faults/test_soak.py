"""The soak in short, and its check, which must notice what grows; `make soak` is the long form."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.soak import soak
from bench.soak_figures import Bounds, Moment, Process, Store, grown_processes, grown_store
from bench.soak_load import Load
from oauthbroker.repository.repository import KINDS
from oauthbroker.testing import Canaries, IdentityProvider

BOUNDS = Bounds(slope=1.0, threads=2)
EMPTY = Store(dict.fromkeys(KINDS, 0), dict.fromkeys(KINDS, 0), temporary=0, locks=1, audit=10)
SMALL = Process(90.0, 30, 8)
STORIES = {"tool", "person", "device", "browser_user", "operator", "rude", "consume"}
ANSWERS = 200


def all_was_done(load: Load) -> bool:
    return load.stories.keys() == STORIES and load.answers["2xx"] > ANSWERS


@pytest.mark.slow
async def test_a_server_under_mixed_load_keeps_no_descriptor_and_no_record(tmp_path: Path, canaries: Canaries) -> None:
    """Run three seconds of load, and longer on a busy machine. Memory is not checked: caches and pools fill for minutes."""
    bounds = Bounds(slope=1000, threads=14)
    with IdentityProvider(canaries=canaries) as idp:
        report = await soak(tmp_path / "w", idp, minutes=0.05, workers=2, seed=1, bounds=bounds, enough=all_was_done)
    assert report.problems == [], str(report)
    assert report.stories.keys() == STORIES, str(report)
    assert report.answers["2xx"] > ANSWERS, str(report)


def moments(*processes: Process) -> list[Moment]:
    return [Moment(number * 5, {"worker 1": each}, EMPTY, 0) for number, each in enumerate(processes)]


GROWN: dict[str, list[Process]] = {
    "memory": [replace(SMALL, memory=90 + number / 4) for number in range(12)],
    "descriptors": [replace(SMALL, descriptors=31)] * 12,
    "threads": [replace(SMALL, threads=11)] * 12,
}
LEVEL: dict[str, list[Process]] = {
    "nothing moves": [SMALL] * 12,
    "caches fill at first": [replace(SMALL, memory=min(94.0, 90.0 + number)) for number in range(12)],
    "memory is given back": [replace(SMALL, memory=100.0 - number) for number in range(12)],
    "a pool fills": [replace(SMALL, threads=10)] * 12,
}


@pytest.mark.parametrize("what", GROWN)
def test_the_check_notices_a_process_that_grows(what: str) -> None:
    before, *rest = moments(SMALL, *GROWN[what])
    (problem,) = grown_processes(before, rest, rest[-1], BOUNDS)
    assert what in problem


@pytest.mark.parametrize("what", LEVEL)
def test_the_check_passes_a_process_that_is_level(what: str) -> None:
    before, *rest = moments(SMALL, *LEVEL[what])
    assert grown_processes(before, rest, rest[-1], BOUNDS) == []


def test_the_check_notices_a_worker_that_was_replaced() -> None:
    before, *rest = moments(*[SMALL] * 12)
    after = replace(rest[-1], processes={"worker 2": SMALL})
    assert grown_processes(before, rest, after, BOUNDS) == ["a worker has ended and was replaced"]


LEFT: dict[str, dict[str, Any]] = {
    **{kind: {"files": {**EMPTY.files, kind: 1}} for kind in KINDS},
    "temporary files": {"temporary": 1},
    "locks": {"locks": 4},
}


@pytest.mark.parametrize("what", LEFT)
def test_the_check_notices_records_left_in_the_store(what: str) -> None:
    (problem,) = grown_store(EMPTY, replace(EMPTY, **LEFT[what]))
    assert what in problem
    assert grown_store(EMPTY, replace(EMPTY, audit=10**9)) == []
