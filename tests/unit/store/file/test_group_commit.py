"""Writes that wait at the same time share the sync of their folder, and none is answered by a sync that began too early."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.file.group_commit import GroupCommit
from oauthbroker.store.posix.system_calls import Fs
from oauthbroker.testing.stores import open_file_store

TOGETHER = 8
WRITERS = 16


class Disk:
    """A folder whose changes are durable once a sync that began after them has ended."""

    def __init__(self, fails: tuple[int, ...] = ()) -> None:
        self.changes = self.durable = self.syncs = 0
        self.fails = fails
        self._lock = threading.Lock()

    def change(self) -> int:
        with self._lock:
            self.changes += 1
            return self.changes

    def sync(self) -> None:
        covers, number = self.changes, self.syncs
        self.syncs += 1
        time.sleep(0.002)
        if number in self.fails:
            raise OSError(errno.ENOSPC, "full")
        self.durable = covers


def answered(disk: Disk, commit: GroupCommit) -> int:
    """Change and sync, as a write does. Return 0 if the change is durable, else the error."""
    change = disk.change()
    try:
        commit.cover()
    except OSError as exc:
        return exc.errno or -1
    assert disk.durable >= change
    return 0


def test_every_change_is_durable_when_it_is_answered_and_many_share_a_sync() -> None:
    disk = Disk()
    commit = GroupCommit(disk.sync)
    with ThreadPoolExecutor(TOGETHER) as pool:
        assert {0} == set(pool.map(lambda _: answered(disk, commit), range(400)))
    assert 400 / TOGETHER <= disk.syncs < 300


def test_one_change_alone_is_one_sync() -> None:
    disk = Disk()
    commit = GroupCommit(disk.sync)
    assert [0, 0] == [answered(disk, commit), answered(disk, commit)]
    assert 2 == disk.syncs


def test_a_sync_that_fails_fails_all_that_it_was_for_and_no_other() -> None:
    disk = Disk(fails=(1, 4))
    commit = GroupCommit(disk.sync)
    with ThreadPoolExecutor(TOGETHER) as pool:
        results = list(pool.map(lambda _: answered(disk, commit), range(100)))
    assert {0, errno.ENOSPC} == set(results)
    assert 2 <= results.count(errno.ENOSPC) <= 2 * TOGETHER


def test_a_leader_that_dies_leaves_the_others_an_error_and_no_lock() -> None:
    begun, going = threading.Event(), threading.Event()

    def dies() -> None:
        begun.set()
        going.wait(60)
        raise KeyboardInterrupt

    commit, ends = GroupCommit(dies), list[BaseException | None]()
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(commit.cover)
        begun.wait(60)
        others = [pool.submit(commit.cover) for _ in range(2)]
        time.sleep(0.05)  # both wait for the next sync
        going.set()
        ends = [each.exception(60) for each in (first, *others)]
    assert sorted(type(each).__name__ for each in ends) == ["KeyboardInterrupt", "KeyboardInterrupt", "OSError"]


class SlowFolders(Fs):
    """Counts the syncs of folders, which take a while; they fail while `full`."""

    def __init__(self) -> None:
        self.syncs, self.full = 0, False

    def fsync(self, fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            self.syncs += 1
            time.sleep(0.02)
            if self.full:
                raise OSError(errno.ENOSPC, "full")
        super().fsync(fd)


async def test_writes_of_a_store_that_wait_together_share_syncs(tmp_path: Path) -> None:
    fs = SlowFolders()
    store = open_file_store(tmp_path, fs=fs)
    fs.syncs = 0
    keys = [store.key("grants", str(number)) for number in range(3 * TOGETHER)]
    entries = await asyncio.gather(*(store.put(key, b"x", expect=0) for key in keys))
    assert {1} == {entry.generation for entry in entries}
    assert fs.syncs <= 2 * TOGETHER
    fs.full = True
    refused = await asyncio.gather(*(store.put(key, b"y", expect=1) for key in keys), return_exceptions=True)
    assert {Code.STORE_UNAVAILABLE} == {each.code for each in refused if isinstance(each, BrokerError)}
    assert len(keys) == len([each for each in refused if isinstance(each, BrokerError)])
    fs.full = False
    await store.close()


async def test_a_damaged_record_is_set_aside_durably(tmp_path: Path) -> None:
    """Else a loss of power brings it back, over the record that has taken its place."""
    fs = SlowFolders()
    store = open_file_store(tmp_path, fs=fs)
    key = store.key("grants", "a")
    await store.put(key, b"x", expect=0)
    (tmp_path / "store" / "data" / "grants" / key.name).write_bytes(b"damaged")
    assert store._entries.keep_aside(key)
    fs.full = True
    with pytest.raises(BrokerError) as refused:
        await store.set_aside(key)
    assert Code.STORE_UNAVAILABLE is refused.value.code
    fs.full = False
    await store.close()


class Gathering(Fs):
    """A disk whose file syncs end once `WRITERS` of them are under way, with the folder's syncs counted since."""

    def __init__(self) -> None:
        self.files, self.folders, self.is_armed = threading.Barrier(WRITERS, timeout=20), 0, False

    def fsync(self, fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            self.folders += 1
            time.sleep(0.02)
        elif self.is_armed:
            self.files.wait()
        super().fsync(fd)


async def test_sixteen_writers_sync_their_files_at_once_and_their_folder_a_few_times(tmp_path: Path) -> None:
    fs = Gathering()
    store = open_file_store(tmp_path, fs=fs)
    fs.folders, fs.is_armed = 0, True
    await asyncio.gather(*(store.put(store.key("grants", str(number)), b"x", expect=0) for number in range(WRITERS)))
    assert not fs.files.broken
    assert 1 <= fs.folders <= WRITERS // 2
    await store.close()
