"""One audit log and many processes: they write one sound chain, and whoever is killed breaks nothing but his own line."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oauthbroker.audit.trail import FileTrail
from tests.kit.audit import KEYS, active, verdict, write

ROOT = Path(__file__).parents[2]
WORKER = ROOT / "tests" / "faults" / "audit_worker.py"
PATHS = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
Worker = subprocess.Popen[str]
Start = Callable[..., Worker]
FOREVER = 10_000_000


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a writer, which waits for a line on its stdin before it begins."""
    started: list[Worker] = []

    def run(name: str, count: int, most_bytes: int, *more: str) -> Worker:
        pipe = subprocess.PIPE
        command = [sys.executable, str(WORKER), str(tmp_path), name, str(count), str(most_bytes), *more]
        worker = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, cwd=ROOT, env=PATHS)
        started.append(worker)
        return worker

    yield run
    for worker in started:
        worker.kill()
        worker.communicate()


def go(*workers: Worker) -> None:
    for worker in workers:
        assert worker.stdout
        assert "ready\n" == worker.stdout.readline()
    for worker in workers:
        assert worker.stdin
        worker.stdin.write("go\n")
        worker.stdin.flush()


async def written(folder: Path) -> Counter[tuple[str, str]]:
    """(who, which entry) of all that is in the log."""
    lines = await FileTrail(folder, KEYS).tail(FOREVER, type="TokenIssued")
    assert all(line.genuine for line in lines)
    return Counter((line.fields["agent"], line.fields["tool"]) for line in lines)


@pytest.mark.slow
async def test_four_processes_write_one_sound_chain_over_many_files(tmp_path: Path, start: Start) -> None:
    workers = [start(f"writer-{number}", 400, 20_000) for number in range(4)]
    go(*workers)
    for worker in workers:
        _, complaint = worker.communicate(timeout=60)
        assert 0 == worker.returncode, complaint
    found = await verdict(tmp_path)
    assert (True, 0, 0, 1) == (found.sound, found.torn, found.unfinished, found.first)
    assert len([*tmp_path.glob("audit-*.jsonl")]) > 10
    assert {(f"writer-{who}", f"Tool/{number}"): 1 for who in range(4) for number in range(400)} == await written(
        tmp_path
    )


@pytest.mark.slow
async def test_whoever_is_killed_leaves_a_sound_log_with_all_that_was_acknowledged(
    tmp_path: Path, start: Start
) -> None:
    acknowledged: set[tuple[str, str]] = set()
    for life in range(5):
        workers = [start(f"{life}-{number}", FOREVER, 30_000) for number in range(2)]
        go(*workers)
        await asyncio.sleep(0.15 + life / 50)
        for worker in workers:
            worker.kill()
        for number, worker in enumerate(workers):
            said, _ = worker.communicate(timeout=60)
            acknowledged |= {
                (f"{life}-{number}", f"Tool/{line.split()[1]}")
                for line in said.splitlines(keepends=True)
                if line.endswith("\n")
            }
    write(tmp_path)
    found = await verdict(tmp_path)
    assert (True, 0) == (found.sound, found.unfinished), found.breaks
    there = await written(tmp_path)
    assert len(acknowledged) > 50
    assert acknowledged <= there.keys()
    assert {1} == set(there.values())


@pytest.mark.slow
async def test_a_line_in_the_middle_of_which_its_writer_died_is_told_of_by_the_next(
    tmp_path: Path, start: Start
) -> None:
    """Also while another process, which knew where the log ended, is at work: its next entry tells."""
    witness = start("witness", 50, 1 << 20)
    victim = start("victim", 20, 1 << 20, "tear")
    go(victim)
    victim.communicate(timeout=60)
    assert -9 == victim.returncode
    assert not active(tmp_path).read_bytes().endswith(b"\n")
    go(witness)
    _, complaint = witness.communicate(timeout=60)
    assert 0 == witness.returncode, complaint
    found = await verdict(tmp_path)
    assert (True, 1, 0) == (found.sound, found.torn, found.unfinished)
    there = await written(tmp_path)
    assert (19, 50) == tuple(sum(agent == name for agent, _ in there) for name in ("victim", "witness"))
