"""What every backend of the audit log promises. A backend is supported when `AuditWriterContract` is green for it.

A backend of yours subclasses `AuditBackend` and the contract, as the two here do. Wrong writers prove that each part of the
contract is able to fail.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.audit import AuditEntry, AuditGap
from oauthbroker.audit.file import AuditFile
from oauthbroker.audit.memory import AuditList
from oauthbroker.audit.on_failure import AuditAnyway
from oauthbroker.audit.port import AuditWriter, RepeatedWrite
from oauthbroker.audit.slot import Slot
from oauthbroker.audit.trail import FileTrail
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.observability.metrics import Metrics
from oauthbroker.testing import TestClock
from tests.kit.audit import AT, ENTRY, KEYS, die, verification

ROOT = Path(__file__).parents[2]
WORKER = Path(__file__).with_name("audit_worker.py")
MOST = 100_000  # entries that a test reads


class AuditBackend:
    """A backend on a folder. `is_shared`: several processes write one log, and it outlives them."""

    is_shared = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self) -> AuditWriter:
        """Open the log for one process."""
        raise NotImplementedError

    def refusing(self) -> AbstractContextManager[object]:
        """Keep nothing meanwhile, as a full disk."""
        raise NotImplementedError

    def kill(self, log: AuditWriter) -> None:
        """Leave the log as a killed process does."""

    def lose_process(self) -> None:
        """Remove all that the second process, which has ended, has written."""

    def lose_tail(self) -> None:
        """Remove the newest entry."""

    async def is_sound(self) -> bool:
        """Tell whether the log can prove that nothing is missing. A backend without proof is always sound."""
        return True

    async def entries(self, log: AuditWriter) -> list[tuple[str, str]]:
        """Return (agent, tool) of all entries, in the order of the trail."""
        lines = await log.trail(KEYS.name).tail(MOST, type="TokenIssued")
        assert all(line.genuine for line in lines)
        return [(line.fields["agent"], line.fields["tool"]) for line in lines]


def entry(number: int, agent: str = "planner") -> AuditEntry:
    return replace(ENTRY, agent=agent, tool=f"Tool/{number}")


def enter(log: AuditWriter, count: int, agent: str = "planner") -> list[tuple[str, str]]:
    for number in range(count):
        log.write(entry(number, agent), AT)
    return [(agent, f"Tool/{number}") for number in range(count)]


async def keeps_entries_in_order(backend: AuditBackend) -> None:
    log = backend.open()
    written = enter(log, 50)
    assert log.failure is None
    assert written == await backend.entries(log)
    await log.keep_checkpoint()
    log.settle()
    log.close()
    assert await backend.is_sound()


async def repeats_an_entry(backend: AuditBackend) -> None:
    log = backend.open()
    again, written = log.repeated(entry(0)), enter(log, 1)
    for _ in range(3):
        again(AT)
        written += enter(log, 1)
    with backend.refusing():
        with pytest.raises(BrokerError) as caught:
            again(AT)
        assert Code.STORE_UNAVAILABLE is caught.value.code
    again(AT)
    assert [*written, written[0], written[0], written[0], written[0]] == await backend.entries(log)
    log.close()
    assert await backend.is_sound()


async def refuses_what_it_does_not_keep(backend: AuditBackend) -> None:
    log = backend.open()
    written = enter(log, 1)
    with backend.refusing():
        for _ in range(2):
            with pytest.raises(BrokerError) as caught:
                log.write(entry(7), AT)
            assert Code.STORE_UNAVAILABLE is caught.value.code
            assert None is caught.value.__context__
    written += enter(log, 2)
    assert log.failure is None
    assert written == await backend.entries(log)
    log.close()
    assert await backend.is_sound()


async def tells_of_a_gap_without_another_entry(backend: AuditBackend) -> None:
    log = AuditAnyway(kept=backend.open(), clock=TestClock(), metrics=Metrics(), tell=lambda *_, **__: None)
    with backend.refusing():
        enter(log, 3)
        await log.try_again()
        assert Code.AUDIT_UNAVAILABLE is log.failure
    await log.try_again()
    await log.try_again()
    assert log.failure is None
    gaps = await log.trail(KEYS.name).tail(9, type=AuditGap.__name__)
    assert [3] == [line.fields["missing"] for line in gaps]
    log.close()
    assert await backend.is_sound()


async def goes_on_and_counts_what_is_missing(backend: AuditBackend) -> None:
    log = AuditAnyway(kept=backend.open(), clock=TestClock(), metrics=Metrics(), tell=lambda *_, **__: None)
    with backend.refusing():
        enter(log, 3)
        assert Code.AUDIT_UNAVAILABLE is log.failure
    written = enter(log, 1)
    assert log.failure is None
    await log.keep_checkpoint()
    gaps = await log.trail(KEYS.name).tail(9, type=AuditGap.__name__)
    assert [3] == [line.fields["missing"] for line in gaps]
    assert written == await backend.entries(log)
    log.close()


async def finds_entries_by_their_members(backend: AuditBackend) -> None:
    log = backend.open()
    enter(log, 3)
    trail = log.trail(KEYS.name)
    [line] = await trail.tail(1, app="mail", grant=trail.name("grant", ENTRY.grant), since=AT, until=AT)
    assert ("Tool/2", trail.name("instance", str(ENTRY.instance))) == (line.fields["tool"], line.fields["instance"])
    assert [] == await trail.tail(9, app="other")
    log.close()


async def blocks_no_loop_and_no_other_process(backend: AuditBackend) -> None:
    logs = [backend.open() for _ in range(2 if backend.is_shared else 1)]
    for number in range(30):
        for who, log in enumerate(logs):
            log.write(entry(number, f"writer-{who}"), AT)
        await asyncio.gather(*(log.keep_checkpoint() for log in logs))
    found = await backend.entries(logs[0])
    for who in range(len(logs)):
        assert [(f"writer-{who}", f"Tool/{number}") for number in range(30)] == [
            each for each in found if each[0] == f"writer-{who}"
        ]
    for log in logs:
        log.close()
    assert await backend.is_sound()


async def goes_on_after_a_process_that_was_killed(backend: AuditBackend) -> None:
    killed = backend.open()
    written = enter(killed, 3, "killed")
    backend.kill(killed)
    log = backend.open()
    written += enter(log, 3, "next")
    assert written == await backend.entries(log)
    log.close()
    assert await backend.is_sound()


async def notices_a_tail_that_is_gone(backend: AuditBackend) -> None:
    for close in (True, False):
        log = backend.open()
        enter(log, 3)
        if close:
            log.close()
        else:
            await log.keep_checkpoint()
            backend.kill(log)
        if close:
            assert await backend.is_sound()
    backend.lose_tail()
    assert not await backend.is_sound()


async def notices_a_process_whose_entries_are_gone(backend: AuditBackend) -> None:
    logs = [backend.open(), backend.open()]
    for log in logs:
        enter(log, 3)
    for log in logs:
        log.close()
    assert await backend.is_sound()
    backend.lose_process()
    assert not await backend.is_sound()


Part = Callable[[AuditBackend], Awaitable[None]]
PARTS: tuple[Part, ...] = (
    keeps_entries_in_order, repeats_an_entry, refuses_what_it_does_not_keep, goes_on_and_counts_what_is_missing,
    tells_of_a_gap_without_another_entry, finds_entries_by_their_members, blocks_no_loop_and_no_other_process,
)  # fmt: skip
SHARED_PARTS: tuple[Part, ...] = (
    goes_on_after_a_process_that_was_killed, notices_a_tail_that_is_gone, notices_a_process_whose_entries_are_gone,
)  # fmt: skip


class AuditWriterContract:
    """The contract. A subclass names its `backend`."""

    backend: type[AuditBackend]

    @pytest.mark.parametrize("part", [*PARTS, *SHARED_PARTS], ids=lambda part: part.__name__)
    async def test_it_keeps_the_contract(self, part: Part, tmp_path: Path) -> None:
        if part in PARTS or self.backend.is_shared:
            await part(self.backend(tmp_path))

    @pytest.mark.slow
    async def test_many_processes_write_one_log_and_a_kill_takes_nothing_that_was_acknowledged(
        self, tmp_path: Path
    ) -> None:
        if self.backend.is_shared:
            await many_processes_write(self.backend, tmp_path)


def worker(backend: type[AuditBackend], folder: Path, name: str, end: str) -> subprocess.Popen[str]:
    reference = f"{backend.__module__}:{backend.__name__}"
    return subprocess.Popen(
        [sys.executable, str(WORKER), reference, str(folder), name, "200", end],
        stdout=subprocess.PIPE, text=True, cwd=ROOT, env={"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]},
    )  # fmt: skip


async def many_processes_write(backend: type[AuditBackend], folder: Path) -> None:
    """Run rounds of processes at the same time, one of which is killed."""
    acknowledged = Counter[tuple[str, str]]()
    for turn in range(2):
        names = [f"{turn}-{number}" for number in range(4)]
        workers = {name: worker(backend, folder, name, "die" if name.endswith("1") else "close") for name in names}
        for name, process in workers.items():
            said, _ = await asyncio.to_thread(process.communicate, timeout=60)
            assert process.returncode in {0, -9}
            acknowledged.update((name, f"Tool/{line.split()[1]}") for line in said.splitlines())
    log = backend(folder).open()
    assert acknowledged == Counter(await backend(folder).entries(log))
    assert 1600 == acknowledged.total()
    log.close()
    assert await backend(folder).is_sound()


class Memory(AuditBackend):
    def open(self) -> AuditWriter:
        self.log = Limited()
        return self.log

    @contextmanager
    def refusing(self) -> Iterator[None]:
        self.log.is_full = True
        yield
        self.log.is_full = False


class Limited(AuditList):
    """A list that can be full."""

    is_full = False

    def write(self, entry: AuditEntry, at: datetime) -> None:
        if self.is_full:
            raise BrokerError(Code.STORE_UNAVAILABLE)
        super().write(entry, at)


class Files(AuditBackend):
    is_shared = True

    def open(self) -> AuditWriter:
        return AuditFile(self.folder, KEYS, most_bytes=4000)

    @contextmanager
    def refusing(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "write", full)
            yield

    def kill(self, log: AuditWriter) -> None:
        assert isinstance(log, AuditFile)
        die(log)

    def lose_process(self) -> None:
        for path in (self.folder / "audit" / "001").iterdir():
            path.unlink()

    def lose_tail(self) -> None:
        path = self.folder / "audit.jsonl"
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))

    async def is_sound(self) -> bool:
        return (await verification(self.folder)).sound


def full(*_: object) -> int:
    raise OSError(28, "No space left on device")


class TestMemory(AuditWriterContract):
    backend = Memory


class TestFiles(AuditWriterContract):
    backend = Files


class Dropping(AuditFile):
    """Wrong: acknowledges every fifth entry, and does not keep it."""

    count = 0

    def write(self, entry: AuditEntry, at: datetime) -> None:
        self.count += 1
        if self.count % 5:
            super().write(entry, at)


class Reordering(AuditFile):
    """Wrong: keeps every second entry until after the next one."""

    held: AuditEntry | None = None

    def write(self, entry: AuditEntry, at: datetime) -> None:
        held, self.held = self.held, None if self.held else entry
        if held is not None:
            super().write(entry, at)
            super().write(held, at)


class Forgetting(AuditFile):
    """Wrong: writes no checkpoint."""

    async def keep_checkpoint(self) -> None:
        return

    def write(self, entry: AuditEntry, at: datetime) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Slot, "keep", lambda *_, **__: None)
            super().write(entry, at)

    def close(self) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Slot, "keep", lambda *_, **__: None)
            super().close()


class Accepting(AuditFile):
    """Wrong: acknowledges an entry that could not be written."""

    def write(self, entry: AuditEntry, at: datetime) -> None:
        try:
            super().write(entry, at)
        except BrokerError:
            return


class Once(AuditFile):
    """Wrong: keeps a repeated entry the first time alone."""

    def repeated(self, entry: AuditEntry) -> RepeatedWrite:
        left = [super().repeated(entry)]

        def once(at: datetime) -> None:
            if left:
                left.pop()(at)

        return once


class Unnamed(AuditFile):
    """Wrong: shows the names that the log keeps as pseudonyms."""

    def trail(self, name: Any) -> Any:
        return Plain(self.folder, self.keys)


class Plain(FileTrail):
    def name(self, _kind: str, value: str) -> str:
        return value


class Restarting(AuditFile):
    """Wrong: the next process does not go on after a killed one, and begins the log again."""

    def __init__(self, folder: Path, keys: Any, **more: Any) -> None:
        (folder / "audit.jsonl").unlink(missing_ok=True)
        super().__init__(folder, keys, **more)


class Waiting(AuditFile):
    """Wrong: two processes cannot write at the same time."""

    def _take_slot(self) -> Slot:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("oauthbroker.audit.file.SLOTS", 1)
            return super()._take_slot()


WRONG: dict[type[AuditFile], list[Part]] = {
    Dropping: [keeps_entries_in_order, refuses_what_it_does_not_keep],
    Reordering: [keeps_entries_in_order],
    Forgetting: [notices_a_tail_that_is_gone, notices_a_process_whose_entries_are_gone],
    Accepting: [
        refuses_what_it_does_not_keep,
        tells_of_a_gap_without_another_entry,
        goes_on_and_counts_what_is_missing,
    ],
    Once: [repeats_an_entry],
    Unnamed: [finds_entries_by_their_members],
    Restarting: [goes_on_after_a_process_that_was_killed],
    Waiting: [blocks_no_loop_and_no_other_process],
}


def test_each_part_of_the_contract_has_a_writer_that_fails_it() -> None:
    assert {*PARTS, *SHARED_PARTS} == {part for parts in WRONG.values() for part in parts}


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.__name__)
async def test_a_wrong_writer_fails(wrong: type[AuditFile], tmp_path: Path) -> None:
    class Wrong(Files):
        def open(self) -> AuditWriter:
            return wrong(self.folder, KEYS, most_bytes=4000)

    for number, part in enumerate(WRONG[wrong]):
        folder = tmp_path / str(number)
        folder.mkdir()
        with pytest.raises((AssertionError, BrokerError, ValueError, pytest.fail.Exception)):
            await part(Wrong(folder))
