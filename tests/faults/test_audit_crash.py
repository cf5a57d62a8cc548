"""The machine stops at any change of the disk while the audit log takes a slot, rotates or writes its roll.

Acknowledged lines are there after a process died, and anchored ones also after a loss of power. Nothing of it looks
like an attack, to `verify` and to the next process.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from oauthbroker.audit.file import AuditFile
from tests.faults.audit_crash_kit import MOST_CALLS, Story, crashed, sweep
from tests.faults.audit_crashes import random_story
from tests.kit.audit import AT, ENTRY, KEYS, die, verification, write


def take(story: Story) -> None:
    """The first process of a store takes a slot at its start, and a second process another one."""
    one, other = story.opened(), story.opened()
    one.take(AT)
    story.enter(one)
    story.enter(other)
    story.close(one, other)


def take_again(story: Story) -> None:
    """A slot goes from a process that ended, and from one that was killed, to the next."""
    for _ in range(2):
        log = story.opened()
        story.enter(log)
        story.close(log)
    killed = story.opened()
    killed.take(AT)
    story.enter(killed)
    die(killed)
    log = story.opened()
    log.take(AT)
    story.enter(log)
    story.close(log)


def rotate(story: Story) -> None:
    """Two slots are rotated."""
    one, other = story.opened(), story.opened()
    for _ in range(4):
        story.enter(one)
        story.enter(other)
    story.close(one, other)


def write_checkpoints(story: Story) -> None:
    """Two processes write the checkpoint by turns while both go on; the one that ends leaves its slot to a third."""
    one, other = story.opened(), story.opened()
    for _ in range(2):
        for log in (one, other):
            story.enter(log)
            story.keep(log)
    story.close(other)
    third = story.opened()
    story.enter(third)
    story.close(one, third)


STORIES: dict[str, tuple[Callable[[Path], object], Callable[[Story], None]]] = {
    "take": (lambda _: None, take),
    "take again": (lambda _: None, take_again),
    "rotate": (lambda _: None, rotate),
    "write rolls": (lambda _: None, write_checkpoints),
}


@pytest.mark.slow
@pytest.mark.case("63")
@pytest.mark.parametrize("name", STORIES)
async def test_a_crash_at_any_change_loses_no_acknowledged_entry_and_looks_like_no_attack(
    name: str, tmp_path: Path
) -> None:
    assert await sweep(tmp_path, *STORIES[name]) > 20


@pytest.mark.slow
@pytest.mark.case("63")
async def test_a_crash_in_a_random_life_of_slots_loses_no_acknowledged_entry(tmp_path: Path) -> None:
    assert await sweep(tmp_path, lambda _: None, random_story(20261122, steps=12)) > 20


def two_slots(root: Path) -> None:
    """Two processes that have ended, whose slots the checkpoint knows."""
    logs = [AuditFile(root, KEYS) for _ in range(2)]
    for log in logs:
        log.write(ENTRY, AT)
    for log in logs:
        log.close()


def remove_a_slot(clone: Path) -> None:
    shutil.rmtree(clone / "audit" / "001")


def empty_a_slot(clone: Path) -> None:
    (clone / "audit" / "001" / "audit.jsonl").write_bytes(b"")


def cut_a_slot(clone: Path) -> None:
    path = clone / "audit" / "001" / "audit.jsonl"
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])


def go_on(story: Story) -> None:
    """The next process takes slot 0, rotates it, and ends."""
    log = story.opened()
    story.enter(log, 6)
    story.keep(log)
    story.enter(log)
    story.close(log)


@pytest.mark.slow
@pytest.mark.case("63")
@pytest.mark.parametrize("remove", [remove_a_slot, empty_a_slot, cut_a_slot], ids=lambda each: each.__name__)
async def test_a_slot_that_is_removed_after_a_crash_at_any_change_is_missed(
    tmp_path: Path, remove: Callable[[Path], None]
) -> None:
    """No crash takes back what the checkpoint knew: also not while the other slot is taken, rotated and anchored."""
    assert await looks_after_removal(tmp_path, remove) > 10


@pytest.mark.slow
async def test_a_checkpoint_that_forgets_other_slots_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oauthbroker.audit.checkpoint._newest", lambda *checkpoints: dict(checkpoints[-1]))
    with pytest.raises(AssertionError):
        await looks_after_removal(tmp_path, remove_a_slot)


async def looks_after_removal(place: Path, remove: Callable[[Path], None]) -> int:
    for number in range(MOST_CALLS):
        _, disk, is_over = crashed(place / str(number) / "live", number, two_slots, go_on)
        for clone, _ in disk.clones(place / str(number)):
            assert (await verification(clone)).sound, (number, clone.name)
            remove(clone)
            assert not (await verification(clone)).sound, (number, clone.name)
            write(clone)
            assert not (await verification(clone)).sound, "the next process does not hide it"
        if is_over:
            return number
    raise AssertionError("the story does not end")
