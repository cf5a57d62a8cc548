"""The newest age of a store that this host has seen: written whole, and read for this store alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from oauthbroker.store.file.seen_file import NAME, Age, read_seen, write_seen
from oauthbroker.store.posix.system_calls import Fs

AGE = Age(7, "2026-01-31T09:10:01Z")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    Fs().make_root(tmp_path / "data")
    return tmp_path / "data"


def test_an_age_is_read_as_it_was_written_and_the_last_one_counts(data: Path) -> None:
    for age in (Age(3, "before"), AGE):
        write_seen(data, "store-1", age)
    assert AGE == read_seen(data, "store-1")
    assert None is read_seen(data, "store-2"), "of another store"


def test_an_age_that_is_forgotten_is_gone(data: Path) -> None:
    write_seen(data, "store-1", AGE)
    write_seen(data, "store-1", None)
    assert None is read_seen(data, "store-1")


def test_where_nothing_was_seen_there_is_no_age(data: Path, tmp_path: Path) -> None:
    assert None is read_seen(data, "store-1")
    assert None is read_seen(tmp_path / "gone", "store-1")


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{", '{"storeId": "store-1"}', '{"storeId": "store-1", "number": "7", "at": "x"}',
        '{"storeId": "store-1", "number": 7, "at": 7}', '{"storeId": "store-1", "number": 7}',
    ],
)  # fmt: skip
def test_a_text_that_is_no_age_is_none(data: Path, text: str) -> None:
    write_seen(data, "store-1", AGE)
    (data / NAME).write_text(text)
    assert None is read_seen(data, "store-1")
