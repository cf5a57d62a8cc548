"""Many slots, one trail: read together, verified together, and no slot, file, line or roll is removed unnoticed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from oauthbroker.audit import folder as audit_folder
from oauthbroker.audit.chain import ChainHead
from oauthbroker.audit.checkpoint import NAME as ROLL
from oauthbroker.audit.checkpoint import read_checkpoint
from oauthbroker.audit.file import AuditFile
from oauthbroker.audit.trail import FileTrail, Follow
from oauthbroker.core.errors import BrokerError, Code
from tests.kit.audit import AT, ENTRY, KEYS, active, die, kinds, verification, write

SECOND = "audit/001"


def write_in_two(folder: Path, count: int = 10, most_bytes: int = 2000) -> None:
    """`count` entries each by two processes that run at the same time and end in order."""
    logs = [AuditFile(folder, KEYS, most_bytes=most_bytes) for _ in range(2)]
    for _ in range(count):
        for log in logs:
            log.write(ENTRY, AT)
    for log in logs:
        log.close()


async def test_the_tail_has_the_entries_of_all_slots_by_time_and_each_slot_in_its_order(tmp_path: Path) -> None:
    one, other = AuditFile(tmp_path, KEYS, most_bytes=900), AuditFile(tmp_path, KEYS, most_bytes=900)
    for number, (log, seconds) in enumerate([(one, 0), (other, 0.5), (one, 1), (one, 1), (other, 1), (other, 2)]):
        log.write(replace(ENTRY, agent=str(number)), AT + timedelta(seconds=seconds))
    found = await FileTrail(tmp_path, KEYS).tail(100, type="TokenIssued")
    assert ["0", "1", "2", "3", "4", "5"] == [line.fields["agent"] for line in found]
    assert [0, 1, 0, 0, 1, 1] == [line.slot for line in found]
    assert all(line.genuine for line in found)
    assert ["4", "5"] == [line.fields["agent"] for line in await FileTrail(tmp_path, KEYS).tail(2)]
    one.close()
    other.close()


async def test_following_meets_the_lines_of_all_slots_also_of_one_that_is_taken_meanwhile(tmp_path: Path) -> None:
    one, other = AuditFile(tmp_path, KEYS), AuditFile(tmp_path, KEYS)
    one.write(ENTRY, AT)
    follow = Follow(FileTrail(tmp_path, KEYS))
    other.write(ENTRY, AT + timedelta(seconds=2))
    one.write(ENTRY, AT + timedelta(seconds=1))
    assert [(0, 3), (1, 1), (1, 2)] == [(line.slot, line.seq) for line in await follow.more()]
    one.write(ENTRY, AT)
    assert [(0, True)] == [(line.slot, line.genuine) for line in await follow.more()]
    follow.close()
    one.close()
    other.close()


async def test_a_slot_is_reused_and_its_chain_goes_on(tmp_path: Path) -> None:
    write_in_two(tmp_path, 3)
    first, killed = AuditFile(tmp_path, KEYS), AuditFile(tmp_path, KEYS)
    first.write(ENTRY, AT)
    killed.write(ENTRY, AT)
    die(killed)
    write(tmp_path)
    first.close()
    found = await verification(tmp_path)
    assert (True, {0: 5, 1: 6}) == (found.sound, {slot: it.verified for slot, it in found.slots.items()})


def test_a_process_that_finds_no_slot_does_not_start_and_is_told_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oauthbroker.audit.file.SLOTS", 2)
    logs = [AuditFile(tmp_path, KEYS) for _ in range(3)]
    logs[0].take(AT)
    logs[1].take(AT)
    with pytest.raises(BrokerError, match="hold all 2 slots") as caught:
        logs[2].take(AT)
    assert (Code.STORE_UNAVAILABLE, None) == (caught.value.code, caught.value.__context__)
    with pytest.raises(BrokerError):
        logs[2].write(ENTRY, AT)
    assert Code.AUDIT_UNAVAILABLE is logs[2].failure
    logs[0].close()
    logs[2].write(ENTRY, AT)
    assert logs[2].failure is None
    for log in logs:
        log.close()


async def test_a_slot_whose_only_file_is_gone_is_named_with_its_folder(tmp_path: Path) -> None:
    write_in_two(tmp_path, 2, most_bytes=1 << 20)
    (tmp_path / SECOND / "audit.jsonl").unlink()
    assert [f"{SECOND}/audit.jsonl"] == [each.file for each in (await verification(tmp_path)).breaks]


REMOVALS: dict[str, tuple[Callable[[Path], object], set[str]]] = {
    "a slot": (lambda root: shutil.rmtree(root / SECOND), {"cut"}),
    "all slots but the first": (lambda root: shutil.rmtree(root / "audit"), {"cut"}),
    "a slot's newest file": (lambda root: (root / SECOND / "audit.jsonl").unlink(), {"cut"}),
    "a slot's file between others": (lambda root: (root / SECOND / "audit-000002.jsonl").unlink(), {"missing"}),
    "a slot's tail": (lambda root: cut(root / SECOND / "audit.jsonl"), {"cut"}),
    "the checkpoint": (lambda root: (root / ROLL).unlink(), {"checkpoint"}),
    "the checkpoint and a slot": (lambda root: remove_both(root / SECOND, root / ROLL), {"checkpoint"}),
    "two slots' places": (lambda root: swap(root, root / SECOND), {"changed", "missing", "cut", "replaced"}),
    "a copy of a slot as another": (
        lambda root: shutil.copytree(root / SECOND, root / "audit/002"),
        {"changed", "missing"},
    ),
}


def remove_both(folder: Path, file: Path) -> None:
    shutil.rmtree(folder)
    file.unlink()


def cut(path: Path) -> None:
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


def swap(one: Path, other: Path) -> None:
    text = active(one).read_bytes()
    active(one).write_bytes(active(other).read_bytes())
    active(other).write_bytes(text)


@pytest.mark.parametrize("name", REMOVALS)
async def test_a_removal_is_noticed_and_stays_noticed_after_the_next_entry(tmp_path: Path, name: str) -> None:
    write_in_two(tmp_path, 20)
    assert (await verification(tmp_path)).sound
    remove, expected = REMOVALS[name]
    remove(tmp_path)
    found = set(kinds(await verification(tmp_path)))
    assert found
    assert found <= expected, found
    write_in_two(tmp_path, 3)
    assert not (await verification(tmp_path)).sound


async def test_a_running_process_restores_a_checkpoint_that_was_removed_or_set_back(tmp_path: Path) -> None:
    write_in_two(tmp_path)
    old = (tmp_path / ROLL).read_bytes()
    write_in_two(tmp_path)
    for damage in ((tmp_path / ROLL).unlink, lambda: (tmp_path / ROLL).write_bytes(old)):
        running = AuditFile(tmp_path, KEYS)
        running.write(ENTRY, AT)
        before = read_checkpoint(tmp_path, KEYS)
        damage()
        running.write(ENTRY, AT)
        await running.keep_checkpoint()
        now = read_checkpoint(tmp_path, KEYS)
        assert before is not None
        assert now is not None
        assert before.chains[1] == now.chains[1]
        running.close()
    assert (await verification(tmp_path)).sound


async def test_a_line_that_was_noted_elsewhere_is_looked_for_in_its_slot(tmp_path: Path) -> None:
    write_in_two(tmp_path)
    trail = FileTrail(tmp_path, KEYS)
    heads = {slot: it.head for slot, it in (await trail.verify()).slots.items()}
    write_in_two(tmp_path)
    assert (await trail.verify(heads)).sound
    assert ["replaced"] == kinds(await trail.verify({1: heads[0]}))
    assert ["replaced"] == kinds(await trail.verify({7: ChainHead(1, heads[0].mac)}))


async def test_the_result_in_json_has_the_members_of_before_and_each_slot(tmp_path: Path) -> None:
    write_in_two(tmp_path, 3, 1 << 20)
    found = json.loads(json.dumps((await verification(tmp_path)).to_json()))
    assert (True, 8, 1, 4, 4, []) == tuple(
        found[name] for name in ("sound", "verified", "first", "last", "checkpointed", "breaks")
    )
    assert {"0": 4, "1": 4} == {slot: it["last"] for slot, it in found["slots"].items()}
    assert found["slots"]["0"]["mac"] == found["mac"] != found["slots"]["1"]["mac"]


def test_a_file_that_another_process_rotates_away_meanwhile_counts_as_one_with_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_folder, "files_of", lambda folder: [folder / "rotated just now"])
    assert [0] == audit_folder.slots_with_lines(tmp_path)
