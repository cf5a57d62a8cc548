"""Many entries: their names in order and in little memory, and neither the loop nor another thread waits for all."""

from __future__ import annotations

import asyncio
import os
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker.store.file.file_store import FileStore
from oauthbroker.store.file.sorted_names import SortedNames
from oauthbroker.store.format.port import Entry, Key, Tag
from oauthbroker.store.posix.system_calls import GIVE_WAY_EVERY, Fs
from oauthbroker.testing.stores import open_file_store

NAMES = st.binary(min_size=32, max_size=32).map(bytes.hex)
COUNT = 40
MOST_AT_ONCE = 8
TAG = Tag("grants", "app", "ab" * 16)


class GivesWay(Fs):
    """Counts how often a thread gave way."""

    def __init__(self) -> None:
        self.given = 0

    def give_way(self, seconds: float = 0) -> None:
        self.given += 1


@given(st.sets(NAMES), st.one_of(NAMES, st.just("")))
def test_names_come_in_their_order_and_after_any_of_them(names: set[str], after: str) -> None:
    found = SortedNames(Fs(), names)
    assert (sorted(names), len(names)) == (list(found), len(found))
    assert [each for each in sorted(names) if each > after] == list(found.after(after))


def test_names_after_one_of_them_begin_with_the_next() -> None:
    names = sorted(os.urandom(32).hex() for _ in range(1000))
    for at in (0, 1, 500, 998, 999):
        assert names[at + 1 :] == list(SortedNames(Fs(), names).after(names[at]))


def test_names_take_the_memory_of_their_bytes() -> None:
    many = 50_000
    tracemalloc.start()
    try:
        found = SortedNames(Fs(), (os.urandom(32).hex() for _ in range(many)))
        kept, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert many == len(found)
    assert kept < 40 * many
    assert most < 60 * many


def test_a_thread_that_reads_or_sorts_many_names_gives_way(tmp_path: Path) -> None:
    fs, times = GivesWay(), 3
    names = [f"{number:064x}"[::-1] for number in range(times * GIVE_WAY_EVERY)]
    assert times * GIVE_WAY_EVERY == len(SortedNames(fs, names))
    assert 1 <= fs.given <= times
    for number in range(times * GIVE_WAY_EVERY):
        (tmp_path / str(number)).touch()
    fs.given, folder = 0, os.open(tmp_path, os.O_RDONLY)
    try:
        assert times * GIVE_WAY_EVERY == len(list(fs.each_name(folder)))
    finally:
        os.close(folder)
    assert times == fs.given


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[FileStore]:
    store = open_file_store(tmp_path)
    for number in range(COUNT):
        await store.put(store.key("grants", str(number)), b"", expect=0, tags=[TAG])
    yield store
    await store.close()


async def of_labelled(store: FileStore) -> AsyncIterator[Entry]:
    async for _, entry in store.labelled("grants", "app"):
        yield entry


READS: dict[str, Callable[[FileStore], AsyncIterator[Entry]]] = {
    "scan": lambda store: store.scan("grants"),
    "scan that skips all": lambda store: store.scan("grants", skip=lambda _: True),
    "find": lambda store: store.find(TAG),
    "labelled": of_labelled,
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
async def test_others_run_between_a_few_entries(
    store: FileStore, read: Callable[[FileStore], AsyncIterator[Entry]], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = list[int]()
    opened = store._entries.read

    def counted(key: Key) -> Entry | None:
        looks[-1] += 1
        return opened(key)

    async def other() -> None:
        while True:
            looks.append(0)
            await asyncio.sleep(0)

    monkeypatch.setattr(type(store._entries), "read", lambda _, key: counted(key))
    task = asyncio.ensure_future(other())
    await asyncio.sleep(0)
    count = len([entry async for entry in read(store)])
    task.cancel()
    assert sum(looks) == count
    assert max(looks) <= MOST_AT_ONCE
    assert len(looks) > COUNT // MOST_AT_ONCE


async def test_a_planted_name_among_the_tags_is_passed_over(store: FileStore, tmp_path: Path) -> None:
    shard = tmp_path / "store" / "data" / "tags" / "grants.app" / TAG.value[:2]
    for name in ("x", "zz" * 32, ".hidden"):
        (shard / f"{TAG.value}.{name}").touch(mode=0o600)
    assert COUNT == len([entry async for entry in store.find(TAG)])
    entries: Iterator[str] = iter(sorted([entry.key.name async for entry in store.find(TAG)]))
    first = next(entries)
    assert list(entries) == [entry.key.name async for entry in store.find(TAG, after=first)]
