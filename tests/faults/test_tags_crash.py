"""A machine that stops at any change of the disk: a record that is there is found by its tags."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.core.clock import SystemClock
from oauthbroker.repository.repository import KINDS, LEASES
from oauthbroker.store.file.cache_stamp import FolderSyncs
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.store.format.port import Entry, Key, Store, Tag
from oauthbroker.store.keys.keyring import Keyring
from oauthbroker.store.posix.system_calls import Fs
from oauthbroker.testing.stores import open_keyring
from tests.faults.crash_kit import CrashAtChange
from tests.faults.sync_kit import different
from tests.kit.crashfs import Crash
from tests.kit.forms import swept

MOST_CHANGES = 80  # far more than a change makes; the sweeps end by themselves

Change = Callable[[Store], Awaitable[object]]


def key_in(store: Store) -> Key:
    return store.key("grants", "slack-bot", "slack:team:T111")


def tags_of(store: Store, body: bytes) -> list[Tag]:
    """The body of an entry here is a list of words, and each of them is a tag."""
    return [store.tag("grants", "word", word) for word in body.decode().split()]


async def write(store: Store, body: bytes, expect: int, *, tagged: bool = True) -> Entry:
    return await store.put(key_in(store), body, expect=expect, tags=tags_of(store, body) if tagged else None)


async def move_and_untag(store: Store) -> None:
    moved = await write(store, b"two three", 1)
    await store.untag(moved, tags_of(store, b"one"))


async def delete_and_make_anew(store: Store) -> None:
    await store.delete(key_in(store), expect=1)
    await store.untag(Entry(key_in(store), 1, b""), tags_of(store, b"one two"))
    await write(store, b"one four", 0)


CHANGES: dict[str, tuple[bytes, Change]] = {
    "a first version": (b"", lambda store: write(store, b"one two", 0)),
    "other tags": (b"one two", move_and_untag),
    "the same tags": (b"one two", lambda store: write(store, b"one two", 1, tagged=False)),
    "removed and made anew": (b"one two", delete_and_make_anew),
}


def open_at(root: Path, ring: Keyring, fs: Fs | None = None, kind: type[FileStore] = FileStore) -> FileStore:
    return kind(root, ring, kinds=KINDS, lease_kinds=LEASES, clock=SystemClock(), fs=fs)


async def crashed_at_each(place: Path, before: bytes, change: Change, kind: type[FileStore] = FileStore) -> None:
    """Crash at every change of the disk, and look at each disk that may be left. Raises AssertionError."""
    ring, number, fired = open_keyring(place), 0, True
    store = open_at(place / "store", ring)
    if before:
        await write(store, before, 0)
    await store.close()
    while fired:
        root = place / str(number)
        shutil.copytree(place / "store", root)
        fs = CrashAtChange(root)
        store = open_at(root, ring, fs, kind)
        fs.arm(number)
        try:
            await change(store)
        except Crash:
            await asyncio.sleep(0)
        fired = fs.fired is not None
        for clone in different(fs.clones(place / f"clones-{number}", seeds=2)):
            await check(clone, ring, number)
        fs.restore()
        await store.close()
        number += swept(MOST_CHANGES).step
        assert number < MOST_CHANGES


async def check(clone: Path, ring: Keyring, number: int) -> None:
    store = open_at(clone, ring)
    try:
        entry = await store.get(key_in(store))
        for tag in tags_of(store, entry.body) if entry is not None else ():
            found = [each.key async for each in store.find(tag)]
            assert [key_in(store)] == found, (number, clone.name)
        if entry is None:  # the tag's remaining file leads nowhere, and the search removes it
            for word in (b"one", b"two", b"three", b"four"):
                assert [] == [each async for each in store.find(tags_of(store, word)[0])]
            assert [] == list((clone / "data" / "tags").glob("*/*/*"))
    finally:
        await store.close()


@pytest.mark.slow
@pytest.mark.case("63", "71")
@pytest.mark.parametrize(("before", "change"), CHANGES.values(), ids=CHANGES)
async def test_a_record_that_outlives_a_crash_is_found_by_its_tags(tmp_path, before, change):
    await crashed_at_each(tmp_path, before, change)


class TagAfterRecord(FileStore):
    """Wrong: the record comes first."""

    async def put(self, key: Key, body: bytes, *, tags: Collection[Tag] | None = None, **more: Any) -> Entry:
        entry = await super().put(key, body, **more)
        await self.retag([(entry, tags or ())])
        return entry


@pytest.mark.slow
async def test_a_store_that_tags_after_the_record_is_noticed(tmp_path):
    with pytest.raises(AssertionError):
        await crashed_at_each(tmp_path, *CHANGES["a first version"], TagAfterRecord)


@pytest.mark.slow
async def test_a_store_that_does_not_sync_its_tags_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(FolderSyncs, "sync", lambda *_: None)
    with pytest.raises(AssertionError):
        await crashed_at_each(tmp_path, *CHANGES["a first version"])


@pytest.mark.slow
async def test_tags_that_are_fixed_are_durable(tmp_path):
    async def repair(store: Store) -> None:
        entry = await store.get(key_in(store))
        assert entry is not None
        await store.retag([(entry, tags_of(store, b"one two"))])

    ring = open_keyring(tmp_path)
    store = open_at(tmp_path / "store", ring)
    await write(store, b"one two", 0, tagged=False)
    await store.close()
    fs = CrashAtChange(tmp_path / "store")
    store = open_at(tmp_path / "store", ring, fs)
    await repair(store)
    await store.close()
    for clone in fs.clones(tmp_path / "clones"):
        await check(clone, ring, 0)
