"""What a write looks at in the version that it replaces, and how writes of one process share a lock."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.file import locked_writes, versioned_entries
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.store.file.locks import Locks
from oauthbroker.store.format.port import Conflict, Key
from oauthbroker.store.format.seal import HEADER
from oauthbroker.store.posix.system_calls import Fs
from oauthbroker.testing.stores import open_file_store


class Reads(Fs):
    """Notes the bytes that are read of records."""

    def __init__(self) -> None:
        self.found = list[int]()

    def read(self, *args: Any) -> bytes:
        found: bytes = super().read(*args)
        if found.startswith(b"OAB1"):
            self.found.append(len(found))
        return found


def file_of(root: Path, key: Key) -> Path:
    return root / "store" / "data" / key.kind / key.name


def damage(file: Path) -> None:
    body = bytearray(file.read_bytes())
    body[-1] ^= 1
    file.write_bytes(body)


@pytest.mark.parametrize("known_by", ["get", "put"])
async def test_a_write_reads_the_header_alone_of_a_version_that_this_process_knows(tmp_path: Path, known_by: str):
    writer = open_file_store(tmp_path)
    key = writer.key("grants", "a")
    await writer.put(key, b"x" * 1000, expect=0)
    fs = Reads()
    store, generation = open_file_store(tmp_path, fs=fs), 1
    if known_by == "put":
        generation = (await store.put(key, b"y" * 1000, expect=1)).generation
    else:
        await store.get(key)
    fs.found.clear()
    await store.put(key, b"z", expect=generation)
    assert [HEADER + 1] == fs.found
    await store.close()
    await writer.close()


async def test_a_version_that_another_process_has_written_since_is_a_conflict(tmp_path: Path):
    store, other = open_file_store(tmp_path), open_file_store(tmp_path)
    key = store.key("grants", "a")
    await store.put(key, b"ours", expect=0)
    await other.put(key, b"theirs", expect=1)
    with pytest.raises(Conflict):
        await store.put(key, b"late", expect=1)
    with pytest.raises(Conflict):
        await store.delete(key, expect=1)
    await store.put(key, b"next", expect=2)
    await store.close()
    await other.close()


async def test_a_version_that_came_back_and_is_not_the_remembered_one_is_opened(tmp_path: Path):
    """A backup that was restored, or an entry that was removed and made again, has another salt."""
    store, other = open_file_store(tmp_path), open_file_store(tmp_path)
    key = store.key("grants", "a")
    await store.put(key, b"ours", expect=0)
    await other.delete(key, expect=1)
    await other.put(key, b"theirs", expect=0)
    damage(file_of(tmp_path, key))
    with pytest.raises(Conflict):
        await store.put(key, b"late", expect=1)
    await store.close()
    await other.close()


@pytest.mark.parametrize("expect", [0, 1], ids=["by who saw the damage", "by who did not"])
async def test_a_known_version_that_was_damaged_since_is_replaced(tmp_path: Path, expect: int):
    store = open_file_store(tmp_path)
    key = store.key("grants", "a")
    await store.put(key, b"ours", expect=0)
    damage(file_of(tmp_path, key))
    if expect == 0:
        with pytest.raises(BrokerError) as caught:
            await store.get(key)
        assert Code.RECORD_CORRUPT is caught.value.code
    assert expect + 1 == (await store.put(key, b"next", expect=expect)).generation
    await store.close()


async def test_few_headers_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(versioned_entries, "_MOST_HEADERS", 4)
    store = open_file_store(tmp_path)
    for number in range(9):
        await store.put(store.key("grants", str(number)), b"x", expect=0)
    assert 1 <= len(store._entries._headers) <= 4
    await store.close()


def under_one_lock(store: FileStore, many: int) -> list[Key]:
    keys = (store.key("grants", str(number)) for number in range(100_000))
    same = (key for key in keys if int(key.name[:4], 16) % 64 == 7)
    return [next(same) for _ in range(many)]


class SlowRename(Fs):
    """A disk whose renames take so long that writes meet."""

    def rename(self, *names: Any, **folders: Any) -> None:
        time.sleep(0.005)
        super().rename(*names, **folders)


async def test_writes_of_one_process_under_one_lock_wait_for_each_other_and_do_not_poll(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def poll(*_: object) -> None:
        raise AssertionError("a write polls for a lock that its own process holds")

    monkeypatch.setattr(Locks, "_poll", poll)
    monkeypatch.setattr(locked_writes, "_NEXT_SECONDS", 60)
    store = open_file_store(tmp_path, fs=SlowRename())
    keys = under_one_lock(store, 12)
    async with asyncio.timeout(30):
        await asyncio.gather(*(store.put(key, b"x", expect=0) for key in keys))
        await asyncio.gather(*(store.put(key, b"y", expect=1) for key in keys))
    await store.close()


class StuckRename(Fs):
    """A disk whose first rename of a record hangs for five seconds, or until the test lets it go on."""

    def __init__(self) -> None:
        self.hangs, self.goes_on = threading.Event(), threading.Event()

    def rename(self, *names: Any, **folders: Any) -> None:
        if len(names[1]) == 64 and not self.hangs.is_set():
            self.hangs.set()
            self.goes_on.wait(5)
        super().rename(*names, **folders)


async def test_a_write_gives_its_thread_back_when_the_one_before_it_takes_long(tmp_path: Path):
    fs = StuckRename()
    store = open_file_store(tmp_path, fs=fs)
    first, *others = under_one_lock(store, 31)
    stuck = asyncio.create_task(store.put(first, b"x", expect=0))
    await asyncio.to_thread(fs.hangs.wait, 60)
    waiting = [asyncio.create_task(store.put(key, b"x", expect=0)) for key in others]
    await asyncio.sleep(0.02)
    assert 0 == await store.count("sessions")
    assert not any(task.done() for task in [stuck, *waiting])
    fs.goes_on.set()
    assert {1} == {entry.generation for entry in await asyncio.gather(stuck, *waiting)}
    await store.close()
