"""A locked descriptor excludes every other one of the same file."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock, Timeout

from oauthbroker.core.descriptor_locks import try_lock, unlock


@pytest.fixture
def two(tmp_path: Path) -> Iterator[list[int]]:
    opened = [os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT) for _ in range(2)]
    yield opened
    for each in opened:
        os.close(each)


def test_a_second_descriptor_gets_the_lock_once_it_is_free(two: list[int]) -> None:
    first, second = two
    assert [True, True, False] == [try_lock(first), try_lock(first), try_lock(second)]
    unlock(first)
    assert [True, False] == [try_lock(second), try_lock(first)]


def test_an_older_version_which_locks_by_filelock_is_excluded(two: list[int], tmp_path: Path) -> None:
    assert try_lock(two[0])
    with pytest.raises(Timeout):
        FileLock(tmp_path / "lock").acquire(blocking=False)


def test_a_file_system_that_cannot_lock_is_no_held_lock(monkeypatch: pytest.MonkeyPatch, two: list[int]) -> None:
    def refused(*_: int) -> None:
        raise OSError(95, "not supported")

    monkeypatch.setattr(fcntl, "flock", refused)
    with pytest.raises(OSError, match="not supported"):
        try_lock(two[0])
