"""Temporary files that a failing disk keeps: the next write removes them, at the latest the next start."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.store.file.seen_file import NAME, write_seen
from oauthbroker.store.format.port import Conflict
from oauthbroker.store.migration.raw import RawRecord
from oauthbroker.store.migration.raw_files import RawFiles
from oauthbroker.store.posix.atomic_files import collect_temps, create_whole, new_temp
from oauthbroker.store.posix.checked_files import closing
from oauthbroker.store.posix.system_calls import Fs
from oauthbroker.testing.stores import open_file_store

BODY = b"x" * 2000


class KeepsFiles(Fs):
    """A disk that removes no temporary file while `keeps`, and renames nothing while `stuck`."""

    keeps = False
    stuck = False

    def unlink(self, *name: Any, **folder: Any) -> None:
        if self.keeps and name[0].endswith(".tmp"):
            raise OSError(errno.EIO, "EIO")
        super().unlink(*name, **folder)

    def rename(self, *names: Any, **folders: Any) -> None:
        if self.stuck:
            raise OSError(errno.EIO, "EIO")
        super().rename(*names, **folders)


def left(root: Path) -> list[str]:
    return [path.name for path in root.rglob(".*.tmp")]


async def a_conflict(store: FileStore, fs: KeepsFiles) -> None:
    with pytest.raises(Conflict):
        await store.put(store.key("grants", "a"), BODY, expect=7)


async def a_failed_rename(store: FileStore, fs: KeepsFiles) -> None:
    fs.stuck = True
    with pytest.raises(BrokerError):
        await store.put(store.key("grants", "a"), BODY, expect=0)
    fs.stuck = False


async def reservation_that_was_not_used(store: FileStore, fs: KeepsFiles) -> None:
    async with store.reserve(store.key("grants", "a"), len(BODY)):
        pass


LEAVE = (a_conflict, a_failed_rename, reservation_that_was_not_used)
Leaves = Callable[[FileStore, KeepsFiles], Awaitable[None]]


@pytest.mark.parametrize("leave", LEAVE, ids=lambda it: it.__name__)
async def test_the_next_write_removes_what_a_disk_has_kept(tmp_path: Path, leave: Leaves) -> None:
    fs = KeepsFiles()
    store = open_file_store(tmp_path, fs=fs)
    fs.keeps = True
    for _ in range(3):
        await leave(store, fs)
    assert 3 == len(left(tmp_path))
    fs.keeps = False
    await store.put(store.key("grants", "b"), BODY, expect=0)
    assert [] == left(tmp_path)
    await store.close()


@pytest.mark.parametrize("leave", LEAVE, ids=lambda it: it.__name__)
async def test_an_orderly_end_removes_it_and_else_the_next_start(tmp_path: Path, leave: Leaves) -> None:
    for is_well in (True, False):
        fs = KeepsFiles()
        store = open_file_store(tmp_path, fs=fs)
        fs.keeps = True
        await leave(store, fs)
        fs.keeps = not is_well
        await store.close()
        assert ([] if is_well else [".tmp"]) == [name[-4:] for name in left(tmp_path)]
    await open_file_store(tmp_path).close()
    assert [] == left(tmp_path)
    assert [] == [path.name for path in (tmp_path / "store" / "data").glob(".open.*")]


async def test_a_thousand_of_them_cost_no_write_much(tmp_path: Path) -> None:
    """A disk that keeps everything for long is asked once a write; a disk that is well gets rid of eight at a time."""
    fs = KeepsFiles()
    store = open_file_store(tmp_path, fs=fs)
    fs.keeps, calls = True, []
    for _ in range(30):
        await a_conflict(store, fs)
    fs.keeps = False
    for number in range(4):
        calls.append(len(left(tmp_path)))
        await store.put(store.key("grants", f"b{number}"), BODY, expect=0)
    assert [30, 22, 14, 6] == calls
    assert [] == left(tmp_path)
    await store.close()


@pytest.mark.parametrize("error", [KeyboardInterrupt, None])
def test_a_new_file_that_cannot_be_locked_is_removed(tmp_path: Path, error: type[BaseException] | None) -> None:
    class Disk(Fs):
        def try_lock(self, fd: int) -> bool:
            if error is not None:
                raise error
            return False

    fs = Disk()
    with closing(fs, fs.open_root(tmp_path)) as folder, pytest.raises(error or BrokerError):
        new_temp(fs, folder, ".one.")
    assert [] == [*tmp_path.iterdir()]


def test_a_copy_that_leaves_one_has_the_next_start_look_for_it(tmp_path: Path) -> None:
    open_and_close(tmp_path)
    raw, fs = RawFiles(tmp_path / "store", make=True), KeepsFiles()
    raw._fs, fs.keeps, fs.stuck = fs, True, True
    with pytest.raises(BrokerError):
        raw.write("grants", [RawRecord("0" * 64, b"x", frozenset())])
    fs.keeps = fs.stuck = False
    raw.close()
    assert 1 == len(left(tmp_path))
    open_and_close(tmp_path)
    assert [] == left(tmp_path)


def open_and_close(tmp_path: Path) -> None:
    asyncio.run(open_file_store(tmp_path).close())


def test_a_file_that_is_replaced_whole_loses_the_leftover_of_a_killed_writer(tmp_path: Path) -> None:
    """Beside no store: the note of a store in a database, a key file, an archive."""
    fs = Fs()
    with closing(fs, fs.open_root(tmp_path)) as folder:
        _, dead = new_temp(fs, folder, f".{NAME}.")
        fs.close(dead)
        _, other = new_temp(fs, folder, ".another.")
        fs.close(other)
        living, writer = new_temp(fs, folder, f".{NAME}.")
    write_seen(tmp_path, "store", None)
    assert {living, *(name for name in left(tmp_path) if name.startswith(".another"))} == set(left(tmp_path))
    fs.close(writer)


async def test_a_leftover_counts_as_no_copy_of_damage(tmp_path: Path) -> None:
    fs: Any = KeepsFiles()
    store = open_file_store(tmp_path, fs=fs)
    corrupt = tmp_path / "store" / "data" / "corrupt"
    with closing(fs, fs.open_root(corrupt)) as folder:
        for number in range(300):
            _, fd = new_temp(fs, folder, f".grants-{number}.")
            fs.close(fd)
        create_whole(fs, folder, "grants-other", b"x")
    key = store.key("grants", "a")
    await store.put(key, BODY, expect=0)
    path = tmp_path / "store" / "data" / "grants" / key.name
    path.write_bytes(b"damaged")
    assert store._entries.keep_aside(key)
    await store.close()


def test_of_several_leftovers_those_of_the_name_are_removed_whose_writers_have_died(tmp_path: Path) -> None:
    fs = Fs()
    fs.make_root(tmp_path / "folder")
    with closing(fs, fs.open_root(tmp_path / "folder")) as folder:
        for name in ("one", "two"):
            _, fd = new_temp(fs, folder, f".{name}.")
            fs.close(fd)
        _, writing = new_temp(fs, folder, ".one.")
        collect_temps(fs, folder, ".one.")
        left = sorted(each.name[:5] for each in (tmp_path / "folder").iterdir())
        fs.close(writing)
    assert [".one.", ".two."] == left
