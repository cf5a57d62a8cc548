"""What every backend that processes share promises between them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATHS = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}


class Workers:
    """`worker` is a program of this folder, `place` how it finds the store of the test: its arguments."""

    worker = "store_worker.py"

    @contextmanager
    def started(self, place: list[str]) -> Iterator[Callable[[int], list[subprocess.Popen[str]]]]:
        started: list[subprocess.Popen[str]] = []

        def start(count: int) -> list[subprocess.Popen[str]]:
            for _ in range(count):
                command = [sys.executable, str(Path(__file__).with_name(self.worker)), *place]
                pipe = subprocess.PIPE
                started.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT, env=PATHS))
            assert ["ready"] * count == [answer(worker) for worker in started[-count:]]
            return started[-count:]

        yield start
        for worker in started:
            worker.kill()
            worker.communicate()


class ProcessContract(Workers):
    @pytest.fixture
    def workers(self, place: list[str]) -> Iterator[Callable[[int], list[subprocess.Popen[str]]]]:
        """Starts processes on the same store; they wait for their order."""
        with self.started(place) as start:
            yield start

    @pytest.mark.slow
    async def test_of_many_processes_that_write_one_generation_one_wins(self, store, workers):
        processes = workers(4)
        for turn in range(3):
            for number, worker in enumerate(processes):
                order(worker, f"put entry {turn} {number}")
            results = [answer(worker) for worker in processes]
            assert ["conflict"] * 3 + ["won"] == sorted(results)
            entry = await store.get(store.key("grants", "entry"))
            assert (turn + 1, b"%d" % results.index("won")) == (entry.generation, entry.body)

    @pytest.mark.slow
    async def test_no_count_is_lost_between_processes(self, store, workers):
        processes = workers(3)
        for worker in processes:
            order(worker, "count_up total 15")
        assert ["done"] * 3 == [answer(worker) for worker in processes]
        entry = await store.get(store.key("grants", "total"))
        assert (45, b"45") == (entry.generation, entry.body)

    @pytest.mark.slow
    async def test_a_lease_excludes_processes(self, store, workers, tmp_path):
        processes = workers(3)
        for worker in processes:
            order(worker, f"be_alone a 20 {tmp_path / 'marker'}")
        assert ["done"] * 3 == [answer(worker) for worker in processes]


def order(worker: subprocess.Popen[str], line: str) -> None:
    assert worker.stdin
    worker.stdin.write(line + "\n")
    worker.stdin.flush()


def answer(worker: subprocess.Popen[str]) -> str:
    assert worker.stdout
    return worker.stdout.readline().strip()
