"""Three processes take leases, remove the files of free ones, and are killed at any moment."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from oauthbroker.testing.stores import open_keyring
from tests.kit.forms import is_long

ROOT = Path(__file__).parents[2]
PROCESSES = 3
MOST_SECONDS = 60  # for a process to take its first lease


class Crowd:
    """Three processes, and the lines that they have said."""

    def __init__(self, folder: Path, mistake: str) -> None:
        self.folder, self.mistake, self.said = folder, mistake, folder / "said"
        open_keyring(folder)
        self.living = [self.start() for _ in range(PROCESSES)]

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.faults.unused_locks_worker", str(self.folder), self.mistake]
        with self.said.open("ab") as out:
            return subprocess.Popen(command, stdout=out, cwd=ROOT, env={"PATH": os.environ["PATH"]})

    def counts(self) -> Counter[str]:
        return Counter(line.rpartition(" ")[0] for line in self.said.read_text("ascii").splitlines())

    def work(self, more: int) -> None:
        """Wait until they have taken so many leases more, or two held one."""
        before, end = self.counts()["taken"], time.monotonic() + MOST_SECONDS
        while (found := self.counts())["taken"] < before + more and not found["two holders"]:
            assert time.monotonic() < end, found
            assert all(each.poll() is None for each in self.living)
            time.sleep(0.01)

    def end(self) -> None:
        for each in self.living:
            each.kill()
            each.wait()


def ran(folder: Path, mistake: str, kills: int) -> Counter[str]:
    crowd, dice = Crowd(folder, mistake), random.Random(kills)
    try:
        crowd.work(more=100)
        for _ in range(kills):
            killed = crowd.living.pop(dice.randrange(PROCESSES))
            killed.kill()
            killed.wait()
            crowd.living.append(crowd.start())
            crowd.work(more=100 + dice.randrange(50))
        return crowd.counts()
    finally:
        crowd.end()


@pytest.mark.slow
@pytest.mark.case("74", "75")
def test_a_lease_whose_file_is_removed_all_the_time_has_one_holder_and_outlives_kills(tmp_path: Path) -> None:
    found = ran(tmp_path, "", kills=40 if is_long() else 6)
    assert 0 == found["two holders"]
    assert found["removed"] > found["taken"] / 10
    assert [] == list((tmp_path / "store/data").rglob("*.tmp"))


@pytest.mark.slow
def test_a_lease_on_a_file_without_its_name_is_noticed(tmp_path: Path) -> None:
    assert 0 < ran(tmp_path, "any name", kills=40)["two holders"]
