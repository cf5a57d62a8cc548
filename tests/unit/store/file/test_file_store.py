"""The particulars of files: growth, descriptors, names on disk, how stamps settle, how waiting writers behave."""

from __future__ import annotations

import asyncio
import errno
import os
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.core.clock import SystemClock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import Pass
from oauthbroker.repository.repository import KINDS, LEASES
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.store.file.versioned_entries import EntryFiles
from oauthbroker.store.format.port import Conflict, Key, Store
from oauthbroker.store.posix.system_calls import Fs
from oauthbroker.testing.stores import open_file_store, open_keyring
from tests.kit.crashfs import CountingFs


@pytest.fixture
async def store(tmp_path):
    store = open_file_store(tmp_path)
    yield store
    await store.close()


async def body_of(store: Store, key: Key) -> bytes | None:
    entry = await store.get(key)
    return entry.body if entry else None


def fill(folder: Path, count: int) -> None:
    """Puts so many grants on disk, without the price of syncing each."""
    ring = open_keyring(folder)
    grants = folder / "store" / "data" / "grants"
    for number in range(count):
        name = ring.name("grants", str(number))
        path = grants / name
        path.touch(mode=0o600)
        path.write_bytes(ring.seal("grants", name, 1, b"grant %d" % number))


async def calls_of(folder: Path, count: int) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """File calls of a start, of a point read and of a write, among so many grants."""
    folder.mkdir()
    await open_file_store(folder).close()
    fill(folder, count)
    await open_file_store(folder).close()
    fs = CountingFs()
    store = open_file_store(folder, fs=fs)
    start = Counter(fs.calls)
    fs.calls.clear()
    await store.get(store.key("grants", "7"))
    read = Counter(fs.calls)
    fs.calls.clear()
    await store.put(store.key("grants", "7"), b"next", expect=1)
    write = Counter(fs.calls)
    assert count == await store.count("grants")
    await store.close()
    return start, read, write


@pytest.mark.slow
@pytest.mark.case("77")
async def test_start_read_and_write_do_not_depend_on_how_many_grants_there_are(tmp_path):
    few, many = await calls_of(tmp_path / "few", 10), await calls_of(tmp_path / "many", 10_000)
    assert few == many
    _, read, write = many
    assert {"open_file": 1, "fstat": 1, "read": 1, "close": 1} == read
    assert (2, 1, 0) == (write["fsync"], write["rename"], write["listdir"])


async def test_names_on_disk_reveal_no_record(store, tmp_path):
    await store.put(store.key("grants", "slack-bot", "slack:team:T111"), b"CANARY", expect=0)
    async with store.lease(store.key("provider", "slack-bot", "slack:team:T111"), wait=1):
        pass
    for path in (tmp_path / "store").rglob("*"):
        assert not any(word in str(path.relative_to(tmp_path)) for word in ("slack", "T111"))
        assert path.is_dir() or b"CANARY" not in path.read_bytes()


async def test_write_locks_do_not_grow_with_entries(store, tmp_path):
    for number in range(200):
        await store.put(store.key("events", str(number)), b"", expect=0)
    locks = {path.name for path in (tmp_path / "store" / "data" / "locks").iterdir()}
    assert locks <= {f"write-{number:02d}" for number in range(64)} | {"probe"}


async def test_descriptors_do_not_grow(store):
    async def work() -> None:
        key = store.key("grants", "a")
        entry = await store.get(key)
        await store.put(key, b"x", expect=entry.generation if entry else 0)
        async with store.lease(store.key("provider", "a"), wait=1):
            pass
        for call in (store.put(key, b"late", expect=0), store.delete(key, expect=0)):
            with pytest.raises(Conflict):
                await call
        assert 1 == len([entry async for entry in store.scan("grants")])

    await work()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        await work()
    assert before == len(list(Path("/proc/self/fd").iterdir()))


async def test_opening_and_closing_leaves_no_descriptor_and_no_thread(tmp_path):
    await open_file_store(tmp_path).close()
    before = len(list(Path("/proc/self/fd").iterdir()))
    store = open_file_store(tmp_path)
    await store.put(store.key("grants", "a"), b"", expect=0)
    await store.close()
    assert before == len(list(Path("/proc/self/fd").iterdir()))
    assert [] == [thread for thread in store._writer.pool._threads if thread.is_alive()]


class Clockwork(CountingFs):
    """Real time that moves when the test says so."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


async def test_a_young_version_is_compared_by_its_header_and_a_settled_one_by_a_stat(tmp_path):
    fs = Clockwork()
    store = open_file_store(tmp_path, fs=fs)
    entry = await store.put(store.key("grants", "a"), b"x", expect=0)
    prices = []
    for later in (0, 0.019, 0.021, 0.021, 1):
        fs.now = 100.0 + later
        fs.calls.clear()
        assert store.unchanged(entry)
        prices.append("stat" if fs.calls == {"stat": 1} else "header")
    assert ["header", "header", "header", "stat", "stat"] == prices
    await store.put(entry.key, b"y", expect=1)
    assert not store.unchanged(entry)
    await store.close()


async def test_a_version_that_only_looks_the_same_to_a_stat_is_noticed_while_young(store, tmp_path):
    """The worst that inode reuse and a coarse clock can do: same inode, size and times, other contents."""

    class SameStat(Fs):
        frozen: os.stat_result | None = None

        def fstat(self, fd: int) -> os.stat_result:
            self.frozen = self.frozen or super().fstat(fd)
            return self.frozen

    broker = open_file_store(tmp_path, fs=Fs())
    entry = await store.put(store.key("grants", "a"), b"x", expect=0)
    fs = SameStat()
    broker._entries._fs = fs
    read = await broker.get(entry.key)
    assert read
    assert broker.unchanged(read)
    await store.put(entry.key, b"y", expect=1)
    assert not broker.unchanged(read)
    broker._entries._fs = Fs()
    await broker.close()


async def test_a_closed_store_calls_no_entry_unchanged(store):
    """Another folder may have its descriptor by then."""
    entry = await store.put(store.key("grants", "a"), b"x", expect=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(entry.stamp), "holds", lambda *_: True)
        assert store.unchanged(entry)
        await store.close()
        assert not store.unchanged(entry)


async def test_an_entry_of_another_backend_is_never_unchanged(store):
    entry = await store.put(store.key("grants", "a"), b"x", expect=0)
    foreign = type(entry)(entry.key, entry.generation, entry.body, stamp=None)
    assert not store.unchanged(foreign)


async def test_space_is_reserved_once_and_only_for_a_version_that_must_be_stored(tmp_path):
    fs = CountingFs()
    store = open_file_store(tmp_path, fs=fs)
    key = store.key("grants", "a")
    fs.calls.clear()
    await store.put(key, b"x", expect=0)
    assert 0 == fs.calls["reserve"]
    async with store.reserve(key, 100) as reservation:
        await store.put(key, b"y", expect=1, reservation=reservation)
    assert 1 == fs.calls["reserve"]
    await store.close()


class SlowRename(Fs):
    """A disk on which replacing takes its time, so that writers meet."""

    def __init__(self, gate: asyncio.Event, loop: asyncio.AbstractEventLoop) -> None:
        self.gate, self.loop, self.waiting = gate, loop, asyncio.Event()

    def rename(self, *names: Any, **folders: Any) -> None:
        if len(names[1]) == 64:
            self.loop.call_soon_threadsafe(self.waiting.set)
            asyncio.run_coroutine_threadsafe(self.gate.wait(), self.loop).result(60)
        super().rename(*names, **folders)


async def test_a_writer_waits_for_the_lock_without_holding_a_thread(tmp_path):
    """Many writers of one stripe at once: the pool stays free for the others."""
    gate = asyncio.Event()
    fs = SlowRename(gate, asyncio.get_running_loop())
    store = open_file_store(tmp_path, fs=fs)
    key = store.key("grants", "a")
    slow = asyncio.create_task(store.put(key, b"slow", expect=0))
    await fs.waiting.wait()
    waiting = [asyncio.create_task(store.put(key, b"late", expect=0)) for _ in range(30)]
    await asyncio.sleep(0.02)
    assert 0 == await asyncio.wait_for(store.count("sessions"), 60)
    assert not any(task.done() for task in [slow, *waiting])
    gate.set()
    results = await asyncio.gather(slow, *waiting, return_exceptions=True)
    assert 30 == sum(isinstance(result, Conflict) for result in results)
    assert b"slow" == await body_of(store, key)
    await store.close()


async def test_a_writer_that_waited_too_long_gives_up_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("oauthbroker.store.file.locked_writes.PATIENCE_SECONDS", 0.05)
    store, other = open_file_store(tmp_path), open_file_store(tmp_path)
    key = store.key("grants", "a")
    async with other._locks.hold(f"write-{int(key.name[:4], 16) % 64:02d}", 1):
        for call in (store.put(key, b"x", expect=0), store.delete(key, expect=1), store.check_writable(key)):
            with pytest.raises(BrokerError) as caught:
                await call
            assert Code.STORE_LOCKED == caught.value.code
    assert [] == list((tmp_path / "store").rglob("*.tmp"))
    assert None is await store.get(key)
    await store.close()
    await other.close()


async def test_a_round_writes_no_file_for_an_entry_whose_lock_has_stayed_held(tmp_path):
    made = []

    class Counting(Fs):
        def create_file(self, name, **folder):
            made.append(name)
            return super().create_file(name, **folder)

    store, other = open_file_store(tmp_path, fs=Counting()), open_file_store(tmp_path)
    key = store.key("grants", "a")
    made.clear()
    async with other._locks.hold(f"write-{int(key.name[:4], 16) % 64:02d}", 1):
        with Pass().lock_budget():
            for _ in range(5):
                with pytest.raises(BrokerError) as caught:
                    await store.put(key, b"x", expect=0)
                assert Code.STORE_LOCKED == caught.value.code
    assert 1 == len(made)
    await store.put(key, b"x", expect=0)
    await store.close()
    await other.close()


async def test_a_put_cancelled_while_it_waits_is_stored_all_the_same(tmp_path):
    store, other = open_file_store(tmp_path), open_file_store(tmp_path)
    key = store.key("grants", "a")
    async with other._locks.hold(f"write-{int(key.name[:4], 16) % 64:02d}", 1):
        caller = asyncio.create_task(store.put(key, b"paid for", expect=0))
        await asyncio.sleep(0.01)
        caller.cancel()
        await asyncio.sleep(0.01)
        assert not caller.done(), "what its caller holds is given back before the write is over"
    with pytest.raises(asyncio.CancelledError):
        await caller
    await store.close()
    assert b"paid for" == await body_of(other, key)
    await other.close()


async def test_closing_waits_for_running_writes_and_sends_lease_waiters_away(tmp_path):
    gate = asyncio.Event()
    fs = SlowRename(gate, asyncio.get_running_loop())
    store, other = open_file_store(tmp_path, fs=fs), open_file_store(tmp_path)
    key, lease = store.key("grants", "a"), store.key("provider", "a")

    async def take() -> None:
        async with store.lease(lease, wait=10):
            raise AssertionError

    async with other.lease(lease, wait=0):
        writer, waiter = asyncio.create_task(store.put(key, b"x", expect=0)), asyncio.create_task(take())
        await fs.waiting.wait()
        closing = asyncio.create_task(store.close())
        await asyncio.sleep(0.01)
        assert not closing.done()
        gate.set()
        await closing
        assert b"x" == (await writer).body
        with pytest.raises(BrokerError) as caught:
            await waiter
        assert Code.STORE_UNAVAILABLE == caught.value.code
    await other.close()


async def test_a_lock_outlasts_the_work_of_a_cancelled_writer(tmp_path):
    """When a loop ends it cancels every task; the thread that renames must still hold its lock meanwhile."""
    gate = asyncio.Event()
    fs = SlowRename(gate, asyncio.get_running_loop())
    store, other = open_file_store(tmp_path, fs=fs), open_file_store(tmp_path)
    key = store.key("grants", "a")
    lock = f"write-{int(key.name[:4], 16) % 64:02d}"
    async with other._locks.hold(lock, 1):
        caller = asyncio.create_task(store.put(key, b"x", expect=0))
        await asyncio.sleep(0.01)
    await fs.waiting.wait()
    (writer,) = store._writer._under_way._tasks
    writer.cancel()
    await asyncio.sleep(0.01)
    assert None is other._locks.try_now(lock)
    gate.set()
    await asyncio.gather(caller, return_exceptions=True)
    assert b"x" == await body_of(other, key)
    await store.close()
    await other.close()


async def test_a_start_beside_a_writer_does_not_remove_its_temporary_file(tmp_path):
    store = open_file_store(tmp_path)
    key = store.key("grants", "a")
    prepared = store._entries.prepare(key, 1, b"x")
    await open_file_store(tmp_path).close()
    async with store._locks.hold("write-00", 1) as held:
        assert b"x" == store._entries.install(prepared, held).body
    await store.close()


class NoLocks(Fs):
    """A mount where every flock succeeds."""

    def try_lock(self, fd: int) -> bool:
        return True


@pytest.mark.case("76")
async def test_a_file_system_whose_locks_do_not_exclude_is_refused(tmp_path):
    await open_file_store(tmp_path).close()
    with pytest.raises(BrokerError) as caught:
        open_file_store(tmp_path, fs=NoLocks())
    assert Code.STORE_UNAVAILABLE == caught.value.code
    assert "locks" in str(caught.value)


@pytest.mark.parametrize("kind", ["", "Grants", "a/b", "..", "locks", "corrupt", "keyring", "a" * 33, "a b"])
async def test_a_kind_that_would_be_no_plain_folder_is_refused(tmp_path, kind):
    ring = open_keyring(tmp_path)
    for kinds, lease_kinds in (([kind], []), (["grants"], [kind])):
        with pytest.raises(ValueError):
            FileStore(tmp_path / "store", ring, kinds=kinds, lease_kinds=lease_kinds, clock=SystemClock())


async def test_the_kinds_of_a_store_may_grow(tmp_path):
    ring = open_keyring(tmp_path)
    for kinds in (["grants"], KINDS):
        store = FileStore(tmp_path / "store", ring, kinds=kinds, lease_kinds=LEASES, clock=SystemClock())
        await store.close()
    assert set(KINDS) <= {path.name for path in (tmp_path / "store" / "data").iterdir()}


async def test_a_lease_whose_lock_file_was_removed_is_lost(store: FileStore, tmp_path: Path) -> None:
    """Another process may lock a new file of that name."""
    async with store.lease(store.key("provider", "mail", "T111"), wait=1) as held:
        assert not held.lost
        for path in (tmp_path / "store" / "data" / "locks").glob("provider-*"):
            path.unlink()
        assert held.lost


async def test_a_search_keeps_the_tag_of_an_entry_that_it_could_not_read_and_that_is_there(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    tag = store.tag("grants", "app", "mail")
    await store.put(store.key("grants", "a"), b"x", expect=0, tags=[tag])

    def unreadable(_: EntryFiles, __: Key) -> None:
        raise BrokerError(Code.RECORD_CORRUPT)

    with monkeypatch.context() as patch:
        patch.setattr(EntryFiles, "read", unreadable)
        assert [] == [each async for each in store.find(tag)]
    assert 1 == len([each async for each in store.find(tag)])


async def test_a_disk_that_fails_ends_a_search_and_a_damaged_entry_does_not(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    tag = store.tag("grants", "app", "mail")
    for name in "ab":
        await store.put(store.key("grants", name), b"x", expect=0, tags=[tag])
    read, damaged = EntryFiles.read, store.key("grants", "a")

    def failing(error: BrokerError) -> Any:
        def failing_read(files: EntryFiles, key: Key) -> Any:
            if key == damaged:
                raise error
            return read(files, key)

        return failing_read

    monkeypatch.setattr(EntryFiles, "read", failing(BrokerError(Code.RECORD_CORRUPT)))
    assert 1 == len([each async for each in store.find(tag)])
    monkeypatch.setattr(EntryFiles, "read", failing(BrokerError(Code.STORE_UNAVAILABLE)))
    with pytest.raises(BrokerError) as raised:
        assert [each async for each in store.find(tag)]
    assert Code.STORE_UNAVAILABLE is raised.value.code


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES], ids=errno.errorcode.get)
async def test_a_search_names_an_entry_that_the_disk_does_not_give(
    store: FileStore, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    tag = store.tag("grants", "app", "mail")
    place = (await store.put(store.key("grants", "a"), b"x", expect=0, tags=[tag])).key

    def unreadable(_: EntryFiles, __: Key) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(EntryFiles, "read", unreadable)
    skipped = list[Key]()
    assert ([], [place]) == ([each async for each in store.find(tag, skipped=skipped)], skipped)


async def test_an_entry_that_needs_no_new_seal_is_no_unreadable_one(store: FileStore) -> None:
    """Another process may have sealed or removed it while its lock was awaited. None would count it as damaged."""
    sealed, gone = store.key("grants", "a"), store.key("grants", "b")
    await store.put(sealed, b"a", expect=0)
    for key in (sealed, gone):
        assert False is await store._writer.change(key, partial(store._entries.reseal, key))
