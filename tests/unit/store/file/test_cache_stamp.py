"""The stamp of a cached entry on file systems whose times move in steps: it never takes a later version for its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker.store.file.cache_stamp import Stamp, identity
from oauthbroker.store.file.versioned_entries import EntryFiles
from oauthbroker.store.format.seal import HEADER

EPOCH = 1_795_000_000_123_456_789  # nanoseconds; no multiple of any step
STEPS = {"1 ns": 1, "4 ms": 4_000_001, "10 ms": 10**7, "100 ms": 10**8, "1 s": 10**9, "2 s": 2 * 10**9}


class OneFile:
    """A file whose versions look as alike as they can: one inode, one size, and times in steps."""

    def __init__(self, step: int) -> None:
        self.step, self.passed, self.version = step, 0, 0
        self.opened = 0
        self.write()

    def write(self) -> None:
        self.version += 1
        self.written = (EPOCH + self.passed) // self.step * self.step

    def stat(self, *_: object, **__: object) -> Any:
        return SimpleNamespace(st_ino=7, st_size=512, st_mtime_ns=self.written, st_ctime_ns=self.written)

    fstat = stat

    def open_file(self, *_: object, **__: object) -> int:
        self.opened += 1
        return 3

    def read(self, *_: object) -> bytes:
        return str(self.version).encode().ljust(HEADER)

    def close(self, fd: int) -> None:
        """Nothing to give back."""

    def monotonic(self) -> float:
        return 50 + self.passed / 1e9

    def stamp(self) -> Stamp:
        return Stamp(identity(self.stat()), self.read(), self.monotonic())


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
@given(moves=st.lists(st.tuples(st.sampled_from(["look", "look", "write"]), st.integers(0, 3 * 10**9)), max_size=12))
def test_a_version_that_another_writer_replaced_never_counts_as_unchanged(step, moves):
    file: Any = OneFile(step)
    stamp, own = file.stamp(), file.version
    for move, later in moves:
        file.passed += later
        if move == "write":
            file.write()
        else:
            assert stamp.holds(file, 0, "a") is (file.version == own) or file.version == own


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_looks_at_short_intervals_meet_the_next_version_of_the_same_second(step):
    """What a busy broker does while another process revokes."""
    file: Any = OneFile(step)
    stamp = file.stamp()
    for _ in range(30):
        file.passed += 25_000_000
        assert stamp.holds(file, 0, "a")
    file.passed += 1_000_000
    file.write()
    assert not stamp.holds(file, 0, "a")


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_a_version_that_stays_costs_a_stat_in_the_end(step):
    file: Any = OneFile(step)
    stamp = file.stamp()
    for _ in range(2):
        file.passed += 3 * 10**9
        assert stamp.holds(file, 0, "a")
    before = file.opened
    assert stamp.holds(file, 0, "a")
    assert before == file.opened


class OneFolder(OneFile):
    """A folder in which `write` renames a file; `durable` is how many of the renames the last sync covered."""

    def __init__(self, step: int) -> None:
        self.durable = self.syncs = 0
        super().__init__(step)

    def fsync(self, fd: int) -> None:
        self.syncs += 1
        self.durable = self.version

    def files(self) -> EntryFiles:
        folders: Any = SimpleNamespace(by_kind={"grants": 3}, tags=None)
        fs: Any = self
        keyring: Any = None
        return EntryFiles(fs=fs, folders=folders, keyring=keyring)


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
@given(moves=st.lists(st.tuples(st.sampled_from(["sync", "sync", "rename"]), st.integers(0, 3 * 10**9)), max_size=12))
def test_a_sync_that_is_spared_leaves_no_rename_uncovered(step, moves):
    folder = OneFolder(step)
    files = folder.files()
    for move, later in moves:
        folder.passed += later
        if move == "rename":
            folder.write()
        else:
            files.sync("grants")
            assert folder.version == folder.durable


def test_a_folder_in_which_nothing_is_renamed_is_synced_twice_at_most():
    folder = OneFolder(1)
    files = folder.files()
    for _ in range(10):
        folder.passed += 10**9
        files.sync("grants")
    assert 2 == folder.syncs


def test_a_sync_that_failed_is_not_spared_the_next_time():
    folder: Any = OneFolder(1)
    files = folder.files()
    for _ in range(2):
        folder.passed += 10**9
        folder.fsync = lambda fd: (_ for _ in ()).throw(OSError(5, "failed"))
        with pytest.raises(OSError, match="failed"):
            files.sync("grants")
        del folder.fsync
        files.sync("grants")
    assert folder.version == folder.durable
