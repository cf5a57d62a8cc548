"""Attacks on an audit log by a user who can write to the disk and has no key: each is noticed, or is on the page."""

from __future__ import annotations

import asyncio
import hmac
import random
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from oauthbroker.audit.chain import START, ChainHead, LogBegan, mac_under, next_line
from oauthbroker.audit.checkpoint import HALF, ChainCheckpoint
from oauthbroker.audit.file import AuditFile
from oauthbroker.audit.formatting import rest_of
from oauthbroker.audit.verification import MOST_BREAKS, WHAT
from oauthbroker.audit.verify import verify
from oauthbroker.core.clock import to_iso
from tests.kit import installed
from tests.kit.audit import AT, ENTRY, FOREIGN_KEYS, KEYS, active, kinds, verification, write
from tests.kit.forms import examples

Lines = list[bytes]
Edit = Callable[[Lines], Lines]
FIRST, SECOND = "audit-000001.jsonl", "audit-000002.jsonl"


def lines_of(folder: Path) -> Lines:
    return active(folder).read_bytes().splitlines(keepends=True)


def swapped(lines: Lines, at: int) -> Lines:
    return [*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]]


def flipped(line: bytes, at: int, bit: int = 0) -> bytes:
    return line[:at] + bytes([line[at] ^ (1 << bit)]) + line[at + 1 :]


EDITS: dict[str, tuple[Edit, set[str]]] = {
    "a bit in a line's words": (lambda it: [*it[:4], flipped(it[4], 60), *it[5:]], {"changed"}),
    "a bit in a MAC": (lambda it: [*it[:4], flipped(it[4], -10), *it[5:]], {"changed", "foreign"}),
    "a bit in a number": (lambda it: [*it[:4], flipped(it[4], 7), *it[5:]], {"changed", "misplaced", "missing"}),
    "a bit in a line break": (lambda it: [*it[:4], flipped(it[4], -1), *it[5:]], {"changed"}),
    "a bit in the first line": (lambda it: [flipped(it[0], 40), *it[1:]], {"missing", "changed"}),
    "a bit in the last line": (lambda it: [*it[:-1], flipped(it[-1], 60)], {"changed", "cut"}),
    "another way to write the same JSON": (lambda it: [*it[:4], it[4].replace(b":", b": ", 1), *it[5:]], {"foreign", "missing"}),
    "a line taken out": (lambda it: [*it[:4], *it[5:]], {"missing"}),
    "three lines taken out": (lambda it: [*it[:4], *it[7:]], {"missing"}),
    "the first line taken out": (lambda it: it[1:], {"missing"}),
    "two lines swapped": (lambda it: swapped(it, 4), {"missing", "misplaced", "changed"}),
    "a line twice": (lambda it: [*it[:5], it[4], *it[5:]], {"misplaced"}),
    "an older line in a newer one's place": (lambda it: [*it[:6], it[3], *it[7:]], {"misplaced", "missing"}),
    "a line put in with a number that fits": (
        lambda it: [*it[:5], it[4].replace(b'"seq":5', b'"seq":6'), *it[5:]], {"changed"},
    ),
    "a line of text put in": (lambda it: [*it[:5], b"who reads this?\n", *it[5:]], {"foreign"}),
    "an empty line put in": (lambda it: [*it[:5], b"\n", *it[5:]], {"foreign"}),
    "a line of an old log put in": (lambda it: [*it[:5], b'{"at":"x","type":"TokenIssued"}\n', *it[5:]], {"foreign"}),
    "a line of an old log put in front": (lambda it: [b'{"at":"x","type":"TokenIssued"}\n', *it], {"changed"}),
    "the end cut off": (lambda it: it[:-1], {"cut"}),
    "the end cut off in a line": (lambda it: [*it[:-2], it[-2][:40]], {"cut"}),
    "the last line break cut off": (lambda it: [*it[:-1], it[-1][:-1]], {"cut"}),
    "everything cut off": (lambda it: it[:0], {"cut"}),
    "a forged line appended": (lambda it: [*it, it[-1].replace(b'"seq":12', b'"seq":13')], {"changed"}),
    "the log of another store": (lambda it: rewritten(len(it) + 3), {"missing", "changed", "cut"}),
}  # fmt: skip


def rewritten(count: int) -> Lines:
    """The best attack with the format and without the key: a chain with another key."""
    began = rest_of(LogBegan(file=1, bytes=0, digest="", after=START.mac.decode()))
    lines, mac = [], START.mac
    for number in range(count):
        line, mac = next_line(
            FOREIGN_KEYS.chain, mac, number + 1, to_iso(AT), rest_of(ENTRY, FOREIGN_KEYS.name) if number else began
        )
        lines.append(line)
    return lines


@pytest.mark.parametrize("name", EDITS)
async def test_every_change_of_a_log_is_noticed(tmp_path: Path, name: str) -> None:
    edit, expected = EDITS[name]
    write(tmp_path, 11)
    assert (await verification(tmp_path)).sound
    active(tmp_path).write_bytes(b"".join(edit(lines_of(tmp_path))))
    found = await verification(tmp_path)
    assert set(kinds(found)) & expected, kinds(found)
    assert set(kinds(found)) <= expected | {"cut", "replaced"}


@pytest.mark.parametrize("name", sorted(EDITS))
async def test_a_change_stays_noticed_after_the_next_entry(tmp_path: Path, name: str) -> None:
    """A broker that is started on such a log goes on, and takes nothing back."""
    edit, _ = EDITS[name]
    write(tmp_path, 11)
    active(tmp_path).write_bytes(b"".join(edit(lines_of(tmp_path))))
    write(tmp_path, 3)
    found = await verification(tmp_path)
    assert not found.sound
    write(tmp_path, 3)
    assert found.broken == (await verification(tmp_path)).broken


async def test_a_removed_line_is_reported_with_its_place(tmp_path: Path) -> None:
    write(tmp_path, 11)
    lines = lines_of(tmp_path)
    active(tmp_path).write_bytes(b"".join([*lines[:4], *lines[6:]]))
    [found] = (await verification(tmp_path)).breaks
    assert {"file": "audit.jsonl", "line": 5, "kind": "missing", "missing": [5, 6]} == found.to_json()


async def test_lines_that_are_younger_than_the_checkpoint_can_be_cut_off_after_a_kill_and_no_others(
    tmp_path: Path,
) -> None:
    """A process that is killed leaves no anchor at its end; the lines anchored before are safe."""
    killed = AuditFile(tmp_path, KEYS)
    for _ in range(5):
        killed.write(ENTRY, AT)
    await killed.keep_checkpoint()
    for _ in range(5):
        killed.write(ENTRY, AT)
    lines = lines_of(tmp_path)
    active(tmp_path).write_bytes(b"".join(lines[:-3]))
    assert (await verification(tmp_path)).sound
    active(tmp_path).write_bytes(b"".join(lines[:6]))
    assert (await verification(tmp_path)).sound
    active(tmp_path).write_bytes(b"".join(lines[:5]))
    found = await verification(tmp_path)
    assert [("cut", (6, 6))] == [(each.kind, each.lines) for each in found.breaks]


async def test_a_running_broker_notices_more_than_the_checkpoint_knows(tmp_path: Path) -> None:
    running = AuditFile(tmp_path, KEYS)
    for _ in range(5):
        running.write(ENTRY, AT)
    active(tmp_path).write_bytes(b"".join(lines_of(tmp_path)[:-1]))
    running.write(ENTRY, AT)
    assert ["reported:cut"] == kinds(await verification(tmp_path))
    running.close()


REMOVALS = {
    "the log": (["audit.jsonl"], {"cut"}),
    "the checkpoint": (["audit.anchor"], {"checkpoint"}),
    "log and anchor": (["audit.jsonl", "audit.anchor", FIRST, SECOND], {"checkpoint"}),
    "a file between others": ([SECOND], {"missing"}),
    "all full files but the oldest": ([SECOND, "audit-000003.jsonl", "audit-000004.jsonl"], {"missing"}),
}


@pytest.mark.parametrize("name", REMOVALS)
async def test_a_file_that_is_taken_away_is_noticed(tmp_path: Path, name: str) -> None:
    write(tmp_path, 30, most_bytes=2000)
    gone, expected = REMOVALS[name]
    for each in [*gone, *(path.name for path in tmp_path.iterdir() if "log and anchor" == name)]:
        (tmp_path / each).unlink(missing_ok=True)
    assert expected == set(kinds(await verification(tmp_path)))


async def test_the_oldest_files_may_be_archived_and_the_rest_says_where_it_begins(tmp_path: Path) -> None:
    write(tmp_path, 30, most_bytes=2000)
    whole = await verification(tmp_path)
    kept = (tmp_path / FIRST).read_bytes()
    (tmp_path / FIRST).unlink()
    found = await verification(tmp_path)
    count = kept.count(b"\n")
    assert (True, True, count + 1, whole.verified - count) == (
        found.sound, found.slots[0].moved_away, found.slots[0].first, found.verified,
    )  # fmt: skip
    (tmp_path / FIRST).write_bytes(flipped(kept, 300))
    assert not (await verification(tmp_path)).sound
    (tmp_path / FIRST).write_bytes(kept)
    assert whole == await verification(tmp_path)


async def test_an_old_copy_of_log_and_checkpoint_is_noticed_with_a_line_number_noted_elsewhere(
    tmp_path: Path,
) -> None:
    write(tmp_path, 5)
    shutil.copytree(tmp_path, tmp_path / "copy")
    write(tmp_path, 5)
    noted = (await verification(tmp_path)).slots[0].head
    chain_checkpoint, log = (tmp_path / "copy" / "audit.anchor"), active(tmp_path / "copy")
    shutil.copy(chain_checkpoint, tmp_path / "audit.anchor")
    shutil.copy(log, active(tmp_path))
    found = await verification(tmp_path)
    assert found.sound
    head = found.slots[0].head
    again = verify([("audit.jsonl", lines_of(tmp_path))], KEYS, ChainCheckpoint(head, 1), noted)
    assert [("replaced", (noted.seq, noted.seq))] == [(each.kind, each.lines) for each in again.breaks]
    assert not verify([("audit.jsonl", lines_of(tmp_path))], KEYS, ChainCheckpoint(head, 1), head).broken


@pytest.mark.parametrize("at", [0, 31, 32, 33, 60, 110])
async def test_an_checkpoint_with_a_flipped_bit_is_none(tmp_path: Path, at: int) -> None:
    write(tmp_path, 5)
    chain_checkpoint = tmp_path / "audit.anchor"
    text = chain_checkpoint.read_bytes()
    chain_checkpoint.write_bytes(flipped(text, at))
    assert (await verification(tmp_path)).sound, "a crash damages one half"
    chain_checkpoint.write_bytes(flipped(flipped(text, at), HALF + at))
    assert ["checkpoint"] == kinds(await verification(tmp_path))


async def test_the_log_of_another_store_does_not_verify(tmp_path: Path) -> None:
    write(tmp_path, 5)
    assert not (await verification(tmp_path, FOREIGN_KEYS)).sound


async def test_no_older_checkpoint_is_left_on_the_disk_to_be_put_back(tmp_path: Path) -> None:
    chain_checkpoint = tmp_path / "audit.anchor"
    for length in range(5, 20, 5):
        write(tmp_path, 5)
        text = chain_checkpoint.read_bytes()
        assert (2, 2) == (text.count(b'"mac"'), text.count((await verification(tmp_path)).slots[0].head.mac)), length


@given(st.binary(max_size=64), st.binary(max_size=300))
def test_the_mac_is_hmac_sha256(key: bytes, text: bytes) -> None:
    assert hmac.digest(key, text, "sha256").hex()[:32].encode() == mac_under(key)(text)


def test_a_log_that_is_wholly_forged_does_not_fill_the_memory() -> None:
    found = verify([("audit.jsonl", rewritten(1000))], KEYS, ChainCheckpoint(ChainHead(5, b"0" * 32), 1))
    assert (MOST_BREAKS, True) == (len(found.breaks), found.broken >= 1000)
    assert set(WHAT) >= {each.kind for each in found.breaks}


@cache
def sample() -> tuple[bytes, bytes]:
    """A log of three processes, one of which was killed, and its checkpoint; everything is anchored."""
    with tempfile.TemporaryDirectory(dir=installed.memory()) as name:
        folder = Path(name)
        write(folder, 6)
        with active(folder).open("ab") as file:
            file.write(b'{"seq":8,"at')
        write(folder, 6)
        return active(folder).read_bytes(), (folder / "audit.anchor").read_bytes()


def verified_line(log: bytes) -> bool:
    with tempfile.TemporaryDirectory(dir=installed.memory()) as name:
        folder = Path(name)
        active(folder).write_bytes(log)
        (folder / "audit.anchor").write_bytes(sample()[1])
        return asyncio.run(verification(folder)).sound


CUTS = st.integers(0, 1_000_000)


@settings(max_examples=examples(150), deadline=None)
@example([("flip", 1749, 64659, 0)])  # in the half line that a crash had left
@given(
    st.lists(
        st.tuples(st.sampled_from(["flip", "cut", "copy", "put", "swap"]), CUTS, CUTS, CUTS), min_size=1, max_size=4
    )
)
def test_no_edit_of_checkpointed_lines_goes_unnoticed(edits: list[tuple[str, int, int, int]]) -> None:
    """The law: a log is sound only if it begins with the very bytes that were written, and then comes half a line."""
    good = sample()[0]
    log = good
    for how, one, two, three in edits:
        log = edited(log, how, one, two, three)
    assert verified_line(log) == (log.startswith(good) and b"\n" not in log[len(good) :])


def edited(log: bytes, how: str, one: int, two: int, three: int) -> bytes:
    if not log:
        return log
    start, end = sorted((one % len(log), two % len(log)))
    lines = log.splitlines(keepends=True)
    match how:
        case "flip":
            return flipped(log, start, three % 8)
        case "cut":
            return log[:start] + log[end:]
        case "copy":
            return log[:start] + log[start:end] + log[start:]
        case "put":
            junk = random.Random(three).randbytes(1 + three % 40)
            return log[:start] + junk + log[start:]
        case _:
            at, to = one % len(lines), two % len(lines)
            lines[at], lines[to] = lines[to], lines[at]
            return b"".join(lines)
