"""One audit log and many processes: each writes a sound chain, and a killed one breaks nothing but its own line."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from oauthbroker.audit.file import AuditFile
from oauthbroker.audit.trail import FileTrail
from oauthbroker.core.errors import BrokerError
from tests.kit.audit import AT, ENTRY, KEYS, active, die, verification, write

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
async def test_four_processes_write_one_sound_trail_over_many_files(tmp_path: Path, start: Start) -> None:
    workers = [start(f"writer-{number}", 400, 20_000) for number in range(4)]
    go(*workers)
    for worker in workers:
        _, complaint = worker.communicate(timeout=60)
        assert 0 == worker.returncode, complaint
    found = await verification(tmp_path)
    assert (True, 0, 0, 1) == (found.sound, found.torn, found.unfinished, found.slots[0].first)
    assert len([*tmp_path.rglob("audit-*.jsonl")]) > 10
    assert {0, 1, 2, 3} == {*found.slots}
    assert {(f"writer-{who}", f"Tool/{number}"): 1 for who in range(4) for number in range(400)} == await written(
        tmp_path
    )


@pytest.mark.slow
async def test_a_killed_writer_leaves_a_sound_log_with_all_acknowledged_lines(tmp_path: Path, start: Start) -> None:
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
    found = await verification(tmp_path)
    assert (True, 0) == (found.sound, found.unfinished), found.breaks
    there = await written(tmp_path)
    assert len(acknowledged) > 50
    assert acknowledged <= there.keys()
    assert {1} == set(there.values())


@pytest.mark.slow
async def test_a_line_in_the_middle_of_which_its_writer_died_is_reported_by_the_next(
    tmp_path: Path, start: Start
) -> None:
    """The next process takes the slot of the dead one; one that is at work has a slot of its own."""
    victim = start("victim", 20, 1 << 20, "tear")
    go(victim)
    victim.communicate(timeout=60)
    assert -9 == victim.returncode
    assert not active(tmp_path).read_bytes().endswith(b"\n")
    witness = start("witness", 50, 1 << 20)
    go(witness)
    _, complaint = witness.communicate(timeout=60)
    assert 0 == witness.returncode, complaint
    found = await verification(tmp_path)
    assert (True, 1, 0) == (found.sound, found.torn, found.unfinished)
    there = await written(tmp_path)
    assert (19, 50) == tuple(sum(agent == name for agent, _ in there) for name in ("victim", "witness"))


@pytest.mark.slow
@pytest.mark.case("74")
async def test_a_stopped_process_keeps_its_slot_and_no_other_process_waits_for_it(tmp_path: Path, start: Start) -> None:
    stopped = start("stopped", FOREVER, 1 << 20)
    go(stopped)
    assert stopped.stdout
    assert "wrote 0\n" == stopped.stdout.readline()
    stopped.send_signal(signal.SIGSTOP)
    other = start("other", 50, 1 << 20)
    go(other)
    _, complaint = other.communicate(timeout=60)
    assert 0 == other.returncode, complaint
    found = await verification(tmp_path)
    assert (True, 51) == (found.sound, found.slots[1].verified)


@pytest.mark.case("74")
def test_a_forked_child_neither_writes_to_its_parents_slot_nor_keeps_it_from_others(tmp_path: Path) -> None:
    log = AuditFile(tmp_path, KEYS)
    log.write(ENTRY, AT)
    asked, answer = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover
        with suppress(BrokerError):
            log.write(ENTRY, AT)
            os.write(answer, b"written")
        os.write(answer, b"refused")
        signal.pause()
        os._exit(0)
    try:
        assert b"refused" == os.read(asked, 7)
        die(log)  # the parent is killed, and its child lives
        write(tmp_path)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(asked)
        os.close(answer)
    found = asyncio.run(verification(tmp_path))
    assert (True, {0: 3}) == (found.sound, {slot: it.verified for slot, it in found.slots.items()})
