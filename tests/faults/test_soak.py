"""The soak in short, and its check, which must notice what grows; `make soak` is the long form."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.soak import SMALL_CACHES, soak
from bench.soak_figures import MIB, Bounds, Growth, Moment, Process, Store, grown_processes, grown_store
from bench.soak_load import Load
from oauthbroker.repository.repository import KINDS
from oauthbroker.testing import Canaries, IdentityProvider
from tests.kit.cli import REPOSITORY, environment

BOUNDS = Bounds(slope=1.0, per_call=50, threads=2)
EMPTY = Store(dict.fromkeys(KINDS, 0), dict.fromkeys(KINDS, 0), temporary=0, locks=1, audit=10)
SMALL = Process(90.0, 30, 8)
STORIES = {"tool", "person", "device", "browser_user", "operator", "rude", "consume"}
ANSWERS = 200


def all_was_done(load: Load) -> bool:
    return load.stories.keys() == STORIES and load.answers["2xx"] > ANSWERS


@pytest.mark.slow
async def test_a_server_under_mixed_load_keeps_no_descriptor_and_no_record(
    tmp_path: Path, canaries: Canaries, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run three seconds of load, and longer on a busy machine. Memory is not checked: pools fill for a minute."""
    small = tmp_path / "small_caches"
    small.mkdir()
    noted = f"import os\nopen(os.path.join({str(small)!r}, f'worker {{os.getpid()}}'), 'w').close()\n"
    (small / "sitecustomize.py").write_text((SMALL_CACHES / "sitecustomize.py").read_text("utf-8") + noted, "utf-8")
    monkeypatch.setattr("bench.soak.SMALL_CACHES", small)
    bounds = Bounds(slope=1000, per_call=1e9, threads=14)
    with IdentityProvider(canaries=canaries) as idp:
        report = await soak(tmp_path / "w", idp, minutes=0.05, workers=2, seed=1, bounds=bounds, enough=all_was_done)
    assert report.problems == [], str(report)
    assert all((small / name).exists() for name in report.before.processes if name != "parent"), "large caches"
    assert report.stories.keys() == STORIES, str(report)
    assert report.answers["2xx"] > ANSWERS, str(report)


FILL = """
from oauthbroker.audit.chain import AuditKeys
from oauthbroker.core.bounded_cache import Bounded
from oauthbroker.records import codec
from oauthbroker.store.file.versioned_entries import EntryFiles
from oauthbroker.store.format.entry_names import entry_names
from oauthbroker.store.format.port import Key

class Files(EntryFiles):
    def __init__(self):
        self._headers = {}

kept, names, files, pseudonyms = Bounded(10_000), entry_names(b"key"), Files(), AuditKeys(lambda *_: bytes(32)).name
for number in range(10_000):
    kept.keep(number, "")
    names("turns", str(number))
    pseudonyms("grant", str(number))
    files._note(Key("turns", str(number)), b"")
print(len(kept), names.cache_info().currsize, pseudonyms.cache_info().currsize, len(files._headers))
print(codec._members_of.cache_info().maxsize)
"""


def filled(**env: str) -> list[str]:
    command = [sys.executable, "-c", FILL]
    return subprocess.run(command, check=True, env=environment(**env), capture_output=True, text=True).stdout.split()


def test_caches_of_a_soaks_server_are_full_within_its_warm_up() -> None:
    """A cache without a bound stays without one, so that a soak notices it."""
    *sizes, unbounded = filled(PYTHONPATH=f"{SMALL_CACHES}:{REPOSITORY}")
    assert all(16 <= int(size) <= 32 for size in sizes), sizes
    assert unbounded == "None"
    assert all(int(size) > 1_000 for size in filled()[:-1])


def moments(*processes: Process, calls: int = 10_000) -> list[Moment]:
    """Moments with so many calls between two that a call takes few bytes, unless `calls` says fewer."""
    return [Moment(number * 5, {"worker 1": each}, EMPTY, number * calls) for number, each in enumerate(processes)]


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


BUSY = 200  # calls in five seconds; a quiet machine answers 2,000


def test_the_check_notices_what_each_call_keeps_on_a_busy_machine() -> None:
    """One of two workers keeps 500 bytes a call."""
    leaking = [replace(SMALL, memory=90 + number * BUSY / 2 * 500 / MIB) for number in range(72)]
    before, *rest = moments(SMALL, *leaking, calls=BUSY)
    (problem,) = grown_processes(before, rest, rest[-1], BOUNDS)
    assert problem == "worker 1: memory grows by +0.57 MiB a minute, +250 bytes a call"


def test_the_check_passes_what_a_busy_machine_takes_once() -> None:
    """Python takes memory in units of 1 MiB. One of them says little about few calls."""
    settling = [replace(SMALL, memory=91.0 if number > 48 else 90.0) for number in range(72)]
    before, *rest = moments(SMALL, *settling, calls=BUSY)
    assert Growth.of("worker 1", rest).per_call > BOUNDS.per_call
    assert grown_processes(before, rest, rest[-1], BOUNDS) == []


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
