"""The files of a store as a copy sees them: who may change its mark, and which folders hold records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.migration.raw import RawRecord
from oauthbroker.store.migration.raw_files import RawFiles
from oauthbroker.store.posix.migration_marker import MigrationMarker, MigrationState

MARK = MigrationMarker(move="m", state=MigrationState.CLOSING, here="files", there="database", at="2026")


@pytest.fixture
def raw(tmp_path: Path) -> Iterator[RawFiles]:
    raw = RawFiles(tmp_path / "store", make=True)
    raw.put_keyring(b"{}")
    yield raw
    raw.close()


def test_a_mark_is_set_and_removed_by_the_command_that_knows_the_one_before(raw: RawFiles) -> None:
    closed = replace(MARK, state=MigrationState.CLOSED)
    for before, after in ((None, MARK), (MARK, closed), (closed, None)):
        raw.set_mark(after, expect=before)
        assert after == raw.mark()


@pytest.mark.parametrize("expect", [None, replace(MARK, move="another")], ids=["none", "another"])
def test_a_mark_that_another_command_has_changed_stays(raw: RawFiles, expect: MigrationMarker | None) -> None:
    raw.set_mark(MARK, expect=None)
    for mark in (replace(MARK, state=MigrationState.CLOSED), None):
        with pytest.raises(BrokerError) as refused:
            raw.set_mark(mark, expect=expect)
        assert (Code.STORE_LOCKED, MARK) == (refused.value.code, raw.mark())


def test_tags_are_loose_once_their_record_is_gone(raw: RawFiles, tmp_path: Path) -> None:
    tags = frozenset({("app", "a" * 32), ("subject", "b" * 32)})
    raw.write("grants", [RawRecord(digit * 64, b"x", tags) for digit in "123"])
    assert 0 == raw.loose_tags("grants")
    for name in ("1" * 64, "3" * 64):
        (tmp_path / "store" / "data" / "grants" / name).unlink()
    assert 4 == raw.loose_tags("grants")


def test_a_kind_is_a_folder_with_records_and_no_hidden_one(raw: RawFiles, tmp_path: Path) -> None:
    record = RawRecord("0" * 64, b"x", frozenset())
    raw.write("grants", [record])
    for name in (".grants", "locks", "empty"):
        folder = tmp_path / "store" / "data" / name
        folder.mkdir(0o700, exist_ok=True)
        if name != "empty":
            (folder / record.name).touch(0o600)
    assert {"grants"} == raw.kinds()
