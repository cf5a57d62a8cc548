"""The audit log on disk: private, one chain for each process, further files when full, and it reports damage to itself."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from oauthbroker.audit import folder as audit_folder
from oauthbroker.audit.file import AuditFile
from oauthbroker.audit.formatting import line_of
from oauthbroker.audit.slot import Slot
from oauthbroker.core.errors import BrokerError, Code
from tests.kit.audit import AT, ENTRY, KEYS, active, die, kinds, verification, write


async def test_the_files_are_ours_alone_and_two_brokers_write_one_chain_each(tmp_path: Path) -> None:
    one, other = AuditFile(tmp_path, KEYS), AuditFile(tmp_path, KEYS)
    for writer in (one, other, one, one, other):
        writer.write(ENTRY, AT)
    one.close()
    other.close()
    assert {"audit.anchor", "audit.jsonl", "audit/001/audit.jsonl"} == modes(tmp_path, Path.is_file, 0o600)
    assert {"audit", "audit/001"} == modes(tmp_path, Path.is_dir, 0o700)
    found = await verification(tmp_path)
    assert (True, 7, {0: 4, 1: 3}) == (found.sound, found.verified, {no: it.head.seq for no, it in found.slots.items()})


def modes(folder: Path, which: Callable[[Path], bool], mode: int) -> set[str]:
    """The names of the files or folders with this mode."""
    there = [path for path in folder.rglob("*") if which(path)]
    return {str(path.relative_to(folder)) for path in there if stat.S_IMODE(path.stat().st_mode) == mode}


def test_a_log_is_made_by_its_first_entry(tmp_path: Path) -> None:
    log = AuditFile(tmp_path, KEYS)
    assert [] == [*tmp_path.iterdir()]
    log.close()
    assert [] == [*tmp_path.iterdir()]


@pytest.mark.parametrize("plant", [lambda path, to: path.symlink_to(to), lambda path, to: os.mkfifo(path)])
def test_only_plain_files_are_opened(tmp_path: Path, plant: Callable[[Path, Path], None]) -> None:
    target = tmp_path / "elsewhere"
    plant(active(tmp_path), target)
    with pytest.raises(BrokerError) as caught:
        AuditFile(tmp_path, KEYS)
    assert (Code.STORE_UNAVAILABLE, None) == (caught.value.code, caught.value.__context__)
    assert not target.exists()


@pytest.mark.parametrize("written", [OSError(28, "No space left on device"), 3], ids=["disk full", "half a line"])
async def test_an_entry_that_is_not_kept_is_an_error_that_can_be_tried_again(
    written: OSError | int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path)
    log, real = AuditFile(tmp_path, KEYS), os.write
    log.write(ENTRY, AT)

    def refuse(descriptor: int, line: bytes) -> int:
        if isinstance(written, OSError):
            raise written
        return real(descriptor, line[:written])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", refuse)
        with pytest.raises(BrokerError) as caught:
            log.write(ENTRY, AT)
        assert (Code.STORE_UNAVAILABLE, None, Code.AUDIT_UNAVAILABLE) == (
            caught.value.code, caught.value.__context__, log.failure,
        )  # fmt: skip
    log.write(ENTRY, AT)
    assert log.failure is None
    log.close()
    found = await verification(tmp_path)
    assert (True, 4, 0, 0) == (found.sound, found.slots[0].head.seq, found.torn, found.unfinished)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
@pytest.mark.parametrize("is_first", [True, False], ids=["the first entry", "a later entry"])
async def test_a_log_without_room_is_well_as_soon_as_its_disk_has_room_and_no_sooner(
    number: int, is_first: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = AuditFile(tmp_path, KEYS)
    if not is_first:
        log.write(ENTRY, AT)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", raising(OSError(number, "no room")))
        patch.setattr(os, "pwrite", raising(OSError(number, "no room")))
        with pytest.raises(BrokerError):
            log.write(ENTRY, AT)
        await log.try_again()
        assert Code.AUDIT_UNAVAILABLE is log.failure
    await log.try_again()
    assert log.failure is None
    log.write(ENTRY, AT)
    log.close()
    assert (await verification(tmp_path)).sound
    assert {"audit.jsonl", "audit.anchor"} == {path.name for path in tmp_path.iterdir()}


async def test_a_log_that_fails_in_another_way_is_not_well_before_it_has_taken_an_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = AuditFile(tmp_path, KEYS)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", raising(OSError(errno.EIO, "no")))
        with pytest.raises(BrokerError):
            log.write(ENTRY, AT)
    await log.try_again()
    assert Code.AUDIT_UNAVAILABLE is log.failure
    log.write(ENTRY, AT)
    assert log.failure is None
    log.close()


def raising(error: OSError) -> Callable[..., int]:
    def refuse(*_: object) -> int:
        raise error

    return refuse


async def test_half_a_line_that_cannot_be_taken_back_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, real = AuditFile(tmp_path, KEYS), os.write
    log.write(ENTRY, AT)

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "no")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda descriptor, line: real(descriptor, line[:30]))
        patch.setattr(os, "ftruncate", fail)
        with pytest.raises(BrokerError):
            log.write(ENTRY, AT)
    log.write(ENTRY, AT)
    log.close()
    found = await verification(tmp_path)
    assert (True, 1, 4) == (found.sound, found.torn, found.slots[0].head.seq)


@pytest.mark.parametrize(
    "half", [b"{", b'{"seq":3,"at":"2026-01-31T09', b'{"seq":3,"at":"x","type":"TokenIssued","mac":"00"}', b"\0" * 99]
)
async def test_a_line_that_a_crash_has_torn_is_reported_by_the_next_writer(tmp_path: Path, half: bytes) -> None:
    write(tmp_path)
    with active(tmp_path).open("ab") as file:
        file.write(half)
    found = await verification(tmp_path)
    assert (True, 2, len(half)) == (found.sound, found.slots[0].head.seq, found.unfinished)
    reported: list[tuple[str, dict[str, object]]] = []
    log = AuditFile(tmp_path, KEYS, tell=lambda event, **words: reported.append((event, words)))
    log.write(ENTRY, AT)
    log.close()
    found = await verification(tmp_path)
    assert (True, 4, 1, 0) == (found.sound, found.slots[0].head.seq, found.torn, found.unfinished)
    assert [("the audit log had half a line", {"bytes": len(half)})] == reported


async def test_a_full_file_gets_a_number_and_the_chain_goes_on_in_the_next(tmp_path: Path) -> None:
    write(tmp_path, 30, most_bytes=2000)
    files = audit_folder.files_of(tmp_path)
    rotated = [f"audit-{number:06}.jsonl" for number in range(1, len(files))]
    assert len(rotated) > 2
    assert [*rotated, "audit.jsonl"] == [path.name for path in files]
    assert all(path.stat().st_size < 2600 for path in files)
    found = await verification(tmp_path)
    assert (True, False, 30 + len(files) + len(rotated)) == (found.sound, found.slots[0].moved_away, found.verified)
    files[0].unlink()
    found = await verification(tmp_path)
    assert (True, True) == (found.sound, found.slots[0].moved_away)
    assert found.slots[0].first > 1
    for path in audit_folder.files_of(tmp_path)[:-1]:
        path.unlink()
    write(tmp_path, 20, most_bytes=2000)
    found = await verification(tmp_path)
    assert (True, True) == (found.sound, found.slots[0].moved_away)
    assert f"audit-{len(files):06}.jsonl" in {path.name for path in audit_folder.files_of(tmp_path)}


@pytest.mark.parametrize("step", ["told", "renamed"])
async def test_a_rotation_that_a_crash_cut_off_is_finished_by_the_next_writer(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = AuditFile(tmp_path, KEYS, most_bytes=1000)
    with monkeypatch.context() as patch, pytest.raises(BrokerError):
        if step == "told":
            patch.setattr(Path, "rename", _stop)
        else:
            patch.setattr(Slot, "_begin_file", _begin_first_only)
        for _ in range(20):
            log.write(ENTRY, AT)
    die(log)
    assert (step == "told") == active(tmp_path).exists() or active(tmp_path).stat().st_size == 0
    write(tmp_path, 3, most_bytes=1000)
    found = await verification(tmp_path)
    assert (True, 0) == (found.sound, found.torn)
    assert (tmp_path / "audit-000001.jsonl").exists()


def _stop(*_: object) -> None:
    raise OSError(errno.EIO, "the machine stopped here")


_begin_file = Slot._begin_file


def _begin_first_only(log: Slot, at: object) -> None:
    if log._head.seq:
        _stop()
    _begin_file(log, at)  # type: ignore[arg-type]


async def test_lines_of_a_version_without_a_chain_stay_and_are_confirmed_as_they_are(tmp_path: Path) -> None:
    active(tmp_path).write_text(line_of(ENTRY, AT) * 3)
    found = await verification(tmp_path)
    assert (True, 3, 0) == (found.sound, found.unchained, found.verified)
    write(tmp_path)
    found = await verification(tmp_path)
    assert (True, 3, 2) == (found.sound, found.unchained, found.verified)
    text = active(tmp_path).read_text()
    active(tmp_path).write_text(text.replace("Tool/mail", "Tool/evil", 1))
    assert ["changed"] == kinds(await verification(tmp_path))
    active(tmp_path).write_text(text.split("\n", 1)[1])
    assert ["changed"] == kinds(await verification(tmp_path))


async def test_an_old_log_that_ended_in_half_a_line_is_confirmed_too(tmp_path: Path) -> None:
    active(tmp_path).write_text(line_of(ENTRY, AT) * 3 + '{"at":"20')
    assert (await verification(tmp_path)).sound
    write(tmp_path)
    found = await verification(tmp_path)
    assert (True, 4, 2) == (found.sound, found.unchained, found.verified)


async def test_an_old_log_that_is_full_already_is_confirmed_and_steps_aside(tmp_path: Path) -> None:
    active(tmp_path).write_text(line_of(ENTRY, AT) * 30)
    write(tmp_path, 3, most_bytes=2000)
    found = await verification(tmp_path)
    assert (True, 30, []) == (found.sound, found.unchained, kinds(found))
    assert (tmp_path / "audit-000001.jsonl").exists()


def test_a_second_name_of_the_log_is_refused(tmp_path: Path) -> None:
    write(tmp_path)
    os.link(active(tmp_path), tmp_path / "mine")
    with pytest.raises(BrokerError):
        AuditFile(tmp_path, KEYS)


async def test_a_log_that_is_moved_away_under_a_running_broker_is_begun_again_and_says_so(tmp_path: Path) -> None:
    log = AuditFile(tmp_path, KEYS)
    log.write(ENTRY, AT)
    active(tmp_path).rename(tmp_path / "mine.txt")
    await log.keep_checkpoint()
    log.write(ENTRY, AT)
    log.close()
    assert ["reported:cut"] == kinds(await verification(tmp_path))


async def test_a_log_that_is_cut_under_a_running_broker_says_so(tmp_path: Path) -> None:
    log = AuditFile(tmp_path, KEYS)
    for _ in range(5):
        log.write(ENTRY, AT)
    lines = active(tmp_path).read_bytes().splitlines(keepends=True)
    os.truncate(active(tmp_path), sum(map(len, lines[:3])))
    log.write(ENTRY, AT)
    log.close()
    assert ["reported:cut"] == kinds(await verification(tmp_path))


async def test_a_removed_checkpoint_stays_reported_after_later_entries(tmp_path: Path) -> None:
    write(tmp_path, 5)
    (tmp_path / "audit.anchor").unlink()
    assert ["checkpoint"] == kinds(await verification(tmp_path))
    write(tmp_path)
    assert ["reported:checkpoint"] == kinds(await verification(tmp_path))
    write(tmp_path)
    assert ["reported:checkpoint"] == kinds(await verification(tmp_path))


async def test_appended_foreign_lines_are_reported_by_the_next_writer(tmp_path: Path) -> None:
    write(tmp_path)
    forged = active(tmp_path).read_bytes().splitlines(keepends=True)[-1].replace(b'"seq":2', b'"seq":3')
    with active(tmp_path).open("ab") as file:
        file.write(forged)
    assert ["changed"] == kinds(await verification(tmp_path))
    write(tmp_path)
    assert "reported:foreign" in kinds(await verification(tmp_path))


@pytest.mark.parametrize(
    "forge", [lambda line: line.replace(b'"seq":3', b'"seq":4'), lambda line: line[:60], lambda _: b"\n"]
)
async def test_a_running_broker_does_not_take_a_foreign_line_for_its_own(
    tmp_path: Path, forge: Callable[[bytes], bytes]
) -> None:
    log = AuditFile(tmp_path, KEYS)
    log.write(ENTRY, AT)
    log.write(ENTRY, AT)
    forged = forge(active(tmp_path).read_bytes().splitlines(keepends=True)[-1])
    with active(tmp_path).open("ab") as file:
        file.write(forged)
    log.write(ENTRY, AT)
    log.close()
    found = await verification(tmp_path)
    whole = forged.endswith(b"\n")
    assert (not whole, not whole) == (found.sound, found.torn == 1)
    assert ("reported:foreign" in kinds(found)) is whole


def test_a_name_that_is_too_long_for_a_line_is_refused(tmp_path: Path) -> None:
    log = AuditFile(tmp_path, KEYS)
    with pytest.raises(BrokerError) as caught:
        log.write(replace(ENTRY, agent="x" * 200_000), AT)
    log.close()
    assert Code.REQUEST_INVALID is caught.value.code
