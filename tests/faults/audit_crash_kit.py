"""A machine that stops at any change of the disk under an audit log, and the lines that must be there afterwards."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.audit.file import AuditFile
from oauthbroker.audit.trail import FileTrail
from tests.kit.audit import AT, ENTRY, KEYS, SYNCS, die, kinds, verification
from tests.kit.crashfs import Crash
from tests.kit.forms import swept

CALLS = ("write", "pwrite", "fsync", "ftruncate", "rename", "mkdir")
MOST_CALLS = 400


@dataclass
class Disk:
    """Stops the machine at the `left`-th change below `root`. Remembers what a loss of power cannot take any longer."""

    root: Path
    left: int
    contents: dict[int, bytes] = field(default_factory=dict)  # by inode
    names: dict[Path, dict[str, int]] = field(default_factory=dict)  # by folder
    torn: tuple[int, int, bytes] | None = None  # an overwriting that was cut off: inode, offset, the missing bytes

    def __post_init__(self) -> None:
        for folder in (self.root, *(path for path in self.root.rglob("*") if path.is_dir())):
            self.sync_folder(folder)
        for path in self.root.rglob("*.*"):
            self.contents[path.stat().st_ino] = path.read_bytes()

    def sync_folder(self, folder: Path) -> None:
        self.names[folder] = {path.name: path.stat().st_ino for path in folder.iterdir()}

    def install(self, patch: pytest.MonkeyPatch) -> None:
        for name in CALLS:
            patch.setattr(os, name, self._hooked(name, getattr(os, name)))
        for module in SYNCS:
            patch.setattr(module, "sync", os.fsync)
        patch.setattr(os, "open", self._opened(os.open))

    def _hooked(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            if name == "pwrite" and self.left == 0:
                self.torn = (os.fstat(args[0]).st_ino, args[2], args[1])
            self._step()
            done = real(*args)
            if name == "fsync":
                self._synced(args[0])
            return done

        return call

    def _opened(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, flags: int, *args: Any) -> Any:
            if flags & os.O_CREAT and not Path(path).exists():
                self._step()
            return real(path, flags, *args)

        return call

    def _step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Crash

    def _synced(self, descriptor: int) -> None:
        found, path = os.fstat(descriptor), Path(f"/proc/self/fd/{descriptor}")
        if path.is_dir():
            self.sync_folder(path.resolve())
        else:
            self.contents[found.st_ino] = path.read_bytes()

    def clones(self, place: Path) -> Iterator[tuple[Path, bool]]:
        """The disks after the crash: (folder, whether the power was lost)."""
        alive = {path.stat().st_ino: path.read_bytes() for path in self.root.rglob("*.*")}
        yield shutil.copytree(self.root, place / "killed"), False
        yield self._power_lost(place / "nothing unsynced", self.contents), True
        yield self._power_lost(place / "all data", alive), True
        if self.torn is not None:
            inode, offset, data = self.torn
            old = alive[inode].ljust(offset, b"\0")
            half = data[:60]
            yield (
                self._power_lost(place / "torn", {**alive, inode: old[:offset] + half + old[offset + len(half) :]}),
                True,
            )

    def _power_lost(self, clone: Path, contents: dict[int, bytes]) -> Path:
        self._make(clone, self.root, contents)
        return clone

    def _make(self, clone: Path, folder: Path, contents: dict[int, bytes]) -> None:
        clone.mkdir()
        for name, inode in self.names.get(folder, {}).items():
            if folder / name in self.names or (folder / name).is_dir():
                self._make(clone / name, folder / name, contents)
            else:
                (clone / name).write_bytes(contents.get(inode, b""))


@dataclass
class Story:
    """What a log was given: acknowledged entries with their slots, and which of them are anchored."""

    root: Path
    logs: list[AuditFile] = field(default_factory=list)
    acknowledged: dict[str, int] = field(default_factory=dict)
    checkpointed: set[str] = field(default_factory=set)

    def opened(self) -> AuditFile:
        self.logs.append(AuditFile(self.root, KEYS, most_bytes=1000))
        return self.logs[-1]

    def enter(self, log: AuditFile, count: int = 1) -> None:
        for _ in range(count):
            agent = f"agent-{len(self.acknowledged)}"
            log.write(replace(ENTRY, agent=agent), AT)
            self.acknowledged[agent] = number_of(log)

    def keep(self, log: AuditFile) -> None:
        """Write the checkpoint as `keep_checkpoint` does on its thread."""
        slot = log._slot
        if slot is not None and (due := slot.due) is not None:
            slot.keep(slot.descriptor, due, patient=True)
            self._checkpoint(slot.number)

    def close(self, *logs: AuditFile) -> None:
        for log in logs:
            number = number_of(log)
            log.close()
            self._checkpoint(number)

    def _checkpoint(self, slot: int) -> None:
        self.checkpointed |= {agent for agent, number in self.acknowledged.items() if number == slot}


def number_of(log: AuditFile) -> int:
    return -1 if log._slot is None else log._slot.number


async def sweep(place: Path, prepare: Callable[[Path], object], tell: Callable[[Story], None]) -> int:
    """Crash at each change that a story makes, and check the rest. Return their number."""
    for number in swept(MOST_CALLS):
        scratch = place / str(number)
        story, disk, is_over = crashed(scratch / "live", number, prepare, tell)
        for clone, is_dark in disk.clones(scratch):
            await look(clone, story.checkpointed if is_dark else story.acknowledged)
        shutil.rmtree(scratch)
        if is_over:
            return number
    raise AssertionError("the story does not end")


def crashed(
    root: Path, number: int, prepare: Callable[[Path], object], tell: Callable[[Story], None]
) -> tuple[Story, Disk, bool]:
    """Tell a story until the crash. The last value says whether it came to its end."""
    root.mkdir(parents=True)
    prepare(root)
    story, disk, is_over = Story(root), Disk(root, number), False
    with pytest.MonkeyPatch.context() as patch:
        disk.install(patch)
        with suppress(Crash):
            tell(story)
            is_over = True
    for log in story.logs:
        die(log)
    return story, disk, is_over


async def look(clone: Path, expected: Collection[str]) -> None:
    """The log is sound, or has not begun; all entries are there, once; the next process goes on with all slots."""
    had_lines = any(path.stat().st_size for path in clone.rglob("*.jsonl"))
    assert (await verification(clone)).sound or not had_lines, clone
    logs = [AuditFile(clone, KEYS) for _ in range(3)]
    for log in logs:
        log.write(ENTRY, AT)
    for log in logs:
        log.close()
    found = await verification(clone)
    assert found.sound, (clone, kinds(found))
    there = [line.fields["agent"] for line in await FileTrail(clone, KEYS).tail(1000, type="TokenIssued")]
    assert dict.fromkeys(expected, 1).items() <= {agent: there.count(agent) for agent in there}.items()
