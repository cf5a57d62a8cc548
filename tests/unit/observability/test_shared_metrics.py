"""Figures of several processes: added up, none lost with a process that ends, none counted twice."""

from __future__ import annotations

import asyncio
import fcntl
import json
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from oauthbroker.observability.metrics import Gauge, Metric, Metrics, Now, Timing
from oauthbroker.observability.shared_metrics import MetricsFolder, Sharing
from oauthbroker.testing import TestClock


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "metrics"


def place_with(folder: Path, tokens: int, waiting: float = 0.0) -> MetricsFolder:
    """A process that has counted so much."""
    metrics, place = Metrics(), MetricsFolder.open(folder, TestClock())
    for _ in range(tokens):
        metrics.add(Metric.TOKENS_READY, "mail")
        metrics.time(Timing.TOKEN_CALL, 0.01, "ready")
    place.write(metrics.to_json(), {(Gauge.SESSIONS_WAITING, ("mail",)): waiting, (Gauge.WORKERS, ()): 1.0})
    return place


def seen_by(place: MetricsFolder) -> tuple[int, int, float, float]:
    """(tokens, timed calls, sessions that wait, processes) of all others."""
    found = place.others()
    now = found.now
    return (
        found.metrics.value(Metric.TOKENS_READY, "mail"),
        found.metrics.timed(Timing.TOKEN_CALL, "ready"),
        now.get((Gauge.SESSIONS_WAITING, ("mail",)), 0.0),
        now.get((Gauge.WORKERS, ()), 0.0),
    )


def test_the_others_are_added_up_and_oneself_is_not_among_them(folder: Path) -> None:
    places = [place_with(folder, tokens, waiting=1.0) for tokens in (1, 10, 100)]
    assert (110, 110, 2.0, 2.0) == seen_by(places[0])
    assert (11, 11, 2.0, 2.0) == seen_by(places[2])


def test_an_ended_process_keeps_its_counts_and_loses_its_gauges(folder: Path) -> None:
    ours, other = place_with(folder, 1), place_with(folder, 10, waiting=3.0)
    assert (10, 10, 3.0, 1.0) == seen_by(ours)
    other.close()
    for _ in range(3):
        assert (10, 10, 0.0, 0.0) == seen_by(ours)


def test_the_folder_does_not_grow_with_every_restart(folder: Path) -> None:
    ours = place_with(folder, 0)
    for _ in range(30):
        place_with(folder, 1).close()
        MetricsFolder.open(folder, TestClock()).close()  # one that died before it wrote anything
    assert (30, 30, 0.0, 0.0) == seen_by(ours)
    assert {"gone.json", "lock"} == {path.name for path in folder.iterdir()} - {
        path.name for path in folder.glob(f"{ours._name}*")
    }


def test_a_reader_that_dies_between_sum_and_removal_counts_no_process_twice(folder: Path) -> None:
    ours, other = place_with(folder, 0), place_with(folder, 7)
    left = folder / f"{other._name}.json"
    content = left.read_bytes()
    other.close()
    assert 7 == seen_by(ours)[0]
    left.write_bytes(content)  # as if it had never been removed
    place_with(folder, 5).close()
    assert 12 == seen_by(ours)[0]
    assert not left.exists()


@pytest.mark.parametrize("junk", [b"", b"{", b"[]", b'{"counts": 1}', b"\xff"])
def test_an_unreadable_file_hides_no_other_process(folder: Path, junk: bytes) -> None:
    ours, broken, other = place_with(folder, 0), place_with(folder, 1), place_with(folder, 2)
    (folder / f"{broken._name}.json").write_bytes(junk)
    assert 2 == seen_by(ours)[0]
    broken.close()
    assert 2 == seen_by(ours)[0]
    (folder / "gone.json").write_bytes(junk)
    assert 2 == seen_by(ours)[0]
    other.close()
    assert 2 == seen_by(ours)[0]


def test_no_other_user_of_the_machine_reads_it(folder: Path) -> None:
    place_with(folder, 1)
    place_with(folder, 1).others()
    assert 0o700 == stat.S_IMODE(folder.stat().st_mode)
    assert {0o600} == {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


async def test_figures_are_left_once_a_second_while_they_change_and_at_the_end(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept = list[float]()
    turn = asyncio.Event()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await turn.wait()
        turn.clear()

    place, reader = MetricsFolder.open(folder, TestClock()), MetricsFolder.open(folder, TestClock())
    written = list[dict[str, object]]()
    write = place.write

    def noted(metrics: dict[str, object], now: Now, circuits: list[object]) -> None:
        written.append(metrics)
        write(metrics, now, circuits)

    monkeypatch.setattr(place, "write", noted)
    monkeypatch.setattr("oauthbroker.observability.shared_metrics.asyncio.sleep", sleep)
    metrics = Metrics()
    sharing = Sharing(place=place, metrics=metrics, now=dict)
    task = asyncio.create_task(sharing.run())
    for add in (1, 0, 0, 1):
        rounds = len(slept)
        for _ in range(add):
            metrics.add(Metric.TOKENS_READY, "mail")
        turn.set()
        while len(slept) == rounds:
            await asyncio.to_thread(int)
    task.cancel()
    assert [0.0, 1.0, 1.0, 1.0, 1.0] == slept
    assert 2 == len(written), "nothing changed in between"
    metrics.add(Metric.TOKENS_READY, "mail")
    await sharing.close()
    assert 3 == seen_by(reader)[0]


def test_open_circuits_are_those_of_living_others(folder: Path) -> None:
    ours, one, two = (MetricsFolder.open(folder, TestClock()) for _ in range(3))
    for place, circuits in ((ours, [["a"]]), (one, [["b"], ["c"]]), (two, [["d"]])):
        place.write(Metrics().to_json(), {}, circuits)
    assert [["b"], ["c"], ["d"]] == sorted(ours.circuits())
    one.close()
    assert [["d"]] == ours.circuits()
    (odd,) = [path for path in folder.glob("*.json") if '["d"]' in path.read_text()]
    for damaged in ("[", "[]", '{"circuits": 7}'):
        odd.write_text(damaged)
        assert [] == ours.circuits()


async def test_a_full_folder_stops_no_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = MetricsFolder.open(folder, TestClock())

    def full(metrics: dict[str, object], now: Now, circuits: list[object]) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(place, "write", full)
    await Sharing(place=place, metrics=Metrics(), now=dict).close()


CHILD = """
import sys
from pathlib import Path
from oauthbroker.core.clock import SystemClock
from oauthbroker.observability.metrics import Gauge, Metric, Metrics
from oauthbroker.observability.shared_metrics import MetricsFolder
metrics, place = Metrics(), MetricsFolder.open(Path(sys.argv[1]), SystemClock())
for line in sys.stdin:
    metrics.add(Metric.TOKENS_READY, "mail")
    place.write(metrics.to_json(), {(Gauge.WORKERS, ()): 1.0})
    print("noted", flush=True)
"""


@pytest.mark.slow
def test_a_killed_process_stays_in_the_sum_and_a_stopped_one_counts_as_living(folder: Path) -> None:
    ours = MetricsFolder.open(folder, TestClock())
    children = [
        subprocess.Popen([sys.executable, "-c", CHILD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(3)
    ]
    try:
        for times, child in enumerate(children, start=1):
            assert child.stdin is not None
            assert child.stdout is not None
            for _ in range(times):
                child.stdin.write(b"x\n")
                child.stdin.flush()
                assert b"noted\n" == child.stdout.readline()
        assert (6, 3.0) == seen_by(ours)[::3]
        children[0].kill()
        children[0].wait(60)
        assert (6, 2.0) == seen_by(ours)[::3]
        children[1].kill()
        children[1].wait(60)
        assert (6, 1.0) == seen_by(ours)[::3]
        assert 3 == sum(row[2] for row in json.loads((folder / "gone.json").read_bytes())["counts"])
    finally:
        for child in children:
            child.kill()
            child.communicate()


@pytest.mark.case("74")
def test_a_folder_that_a_stopped_process_holds_keeps_no_start_and_no_scrape_waiting(folder: Path) -> None:
    first = MetricsFolder.open(folder, TestClock())
    first.others()
    with (folder / "lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        began = time.monotonic()
        second = MetricsFolder.open(folder, TestClock())
        for ask in (second.others, second.circuits):
            with pytest.raises(OSError, match="locked"):
                ask()
        assert time.monotonic() - began < 20
    second.others()
    for place in (first, second):
        place.close()
