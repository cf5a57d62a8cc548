"""A machine that stops, or a disk that fails, at every single call: the entry is old or new, never neither."""

from __future__ import annotations

import asyncio
import errno
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from oauthbroker.core.clock import SystemClock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.repository.repository import KINDS, LEASES
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.store.format.port import Key, Store
from oauthbroker.store.keys.keyring import FileKek, Keyring
from oauthbroker.store.keys.keyring_home import KeyringFile
from oauthbroker.store.posix.system_calls import Fs
from oauthbroker.testing.stores import open_file_store, open_keyring
from tests.kit.crashfs import Crash, CrashFs, FaultyFs
from tests.kit.forms import swept

OLD, NEW = b"old" * 200, b"new" * 250
ERRNOS = [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE]
MOST_CALLS = 60  # far more than an operation makes; the sweeps end by themselves

Change = Callable[[Store, Key], Awaitable[object]]
CHANGES: dict[str, tuple[bytes | None, bytes | None, Change]] = {
    "create": (None, NEW, lambda store, key: store.put(key, NEW, expect=0)),
    "update": (OLD, NEW, lambda store, key: store.put(key, NEW, expect=1)),
    "delete": (OLD, None, lambda store, key: store.delete(key, expect=1)),
}
EACH_CHANGE = pytest.mark.parametrize(("before", "after", "change"), CHANGES.values(), ids=CHANGES)


def key_in(store: Store) -> Key:
    return store.key("grants", "slack-bot", "slack:team:T111")


def open_at(root: Path, ring: Keyring, fs: Fs | None = None) -> FileStore:
    return FileStore(root, ring, kinds=KINDS, lease_kinds=LEASES, clock=SystemClock(), fs=fs)


@pytest.fixture
async def template(tmp_path) -> Callable[[bytes | None], Awaitable[tuple[Path, Keyring]]]:
    """A store on disk with the entry as it was before, or without it."""

    async def make(before: bytes | None) -> tuple[Path, Keyring]:
        folder = tmp_path / "template"
        folder.mkdir()
        store = open_file_store(folder)
        await store.put(store.key("sessions", "bystander"), b"untouched", expect=0)
        if before is not None:
            await store.put(key_in(store), before, expect=0)
        await store.close()
        return folder / "store", open_keyring(folder)

    return make


async def contents(root: Path, ring: Keyring) -> tuple[bytes | None, bytes | None]:
    """What a broker that starts here finds, after which no temporary file is left."""
    store = open_at(root, ring)
    entry, bystander = await store.get(key_in(store)), await store.get(store.key("sessions", "bystander"))
    await store.close()
    assert [] == list(root.rglob("*.tmp"))
    return entry.body if entry else None, bystander.body if bystander else None


async def writes_on(root: Path, ring: Keyring) -> bool:
    """Whether the store still takes a new version of the entry."""
    store = open_at(root, ring)
    entry = await store.get(key_in(store))
    await store.put(key_in(store), b"next", expect=entry.generation if entry else 0)
    await store.close()
    return (b"next", b"untouched") == await contents(root, ring)


@pytest.mark.slow
@pytest.mark.case("63", "64")
@EACH_CHANGE
async def test_a_crash_at_any_call_leaves_old_or_new(template, tmp_path, before, after, change):
    """Every clone of the disk, in which un-synced names and bytes are kept, lost or torn."""
    root, ring = await template(before)
    for number in swept(MOST_CALLS):
        place = tmp_path / str(number)
        shutil.copytree(root, place / "live")
        fs = CrashFs(place / "live")
        store = open_at(place / "live", ring, fs)
        fs.arm(number)
        acknowledged = True
        try:
            await change(store, key_in(store))
        except Crash:
            acknowledged = False
        allowed = {after} if acknowledged else {before, after}
        for clone in fs.clones(place):
            found, bystander = await contents(clone, ring)
            assert found in allowed, f"{fs.fired} at {number}, {clone.name}"
            assert b"untouched" == bystander
        assert await writes_on(clone, ring)
        fs.restore()
        await store.close()
        shutil.rmtree(place)
        if fs.fired is None:
            break
    assert acknowledged
    assert fs.fired is None
    assert number > 8


@pytest.mark.case("64")
async def test_the_crash_kit_itself_loses_unsynced_writes(tmp_path):
    """A file layer that forgets to sync must be caught by the clones, or the sweep above proves nothing."""

    class Forgetful(CrashFs):
        def fsync(self, fd: int) -> None:
            """Says that it did."""

    store = open_file_store(tmp_path)
    await store.close()
    ring = open_keyring(tmp_path)
    fs = Forgetful(tmp_path / "store")
    store = open_at(tmp_path / "store", ring, fs)
    await store.put(key_in(store), NEW, expect=0)
    found = set()
    for clone in fs.clones(tmp_path / "clones"):
        broker = open_at(clone, ring)
        try:
            entry = await broker.get(key_in(broker))
            found.add("new" if entry else "nothing")
        except BrokerError as exc:
            found.add(exc.code.value)
        await broker.close()
    await store.close()
    assert {"new", "nothing", "recordCorrupt"} == found


@pytest.mark.slow
@pytest.mark.case("71")
@pytest.mark.parametrize("number_of_error", ERRNOS, ids=[errno.errorcode[number] for number in ERRNOS])
@EACH_CHANGE
async def test_a_failing_call_leaves_old_or_new_and_a_store_that_works(
    template, tmp_path, before, after, change, number_of_error
):
    root, ring = await template(before)
    outcomes = set()
    for number in swept(MOST_CALLS):
        live = tmp_path / "live"
        shutil.copytree(root, live)
        fs = FaultyFs()
        store = open_at(live, ring, fs)
        await store.get(key_in(store))
        open_files = count_open()
        fs.arm(number, number_of_error)
        outcome = await code_of(change(store, key_in(store)))
        fs.disarm()
        outcomes.add(outcome)
        assert outcome in {None, Code.STORE_UNAVAILABLE}, fs.fired
        assert count_open() == open_files, fs.fired
        assert [] == list(live.rglob("*.tmp")), fs.fired
        found = (await contents(live, ring))[0]
        assert found in ({before, after} if outcome else {after}), fs.fired
        entry = await store.get(key_in(store))
        await store.put(key_in(store), b"again", expect=entry.generation if entry else 0)
        await store.close()
        shutil.rmtree(live)
        if fs.fired is None:
            break
    assert fs.fired is None
    assert {None, Code.STORE_UNAVAILABLE} == outcomes


@pytest.mark.case("71")
@pytest.mark.parametrize("number_of_error", ERRNOS, ids=[errno.errorcode[number] for number in ERRNOS])
async def test_a_failing_read_or_lease_is_told_and_forgotten(template, number_of_error):
    root, ring = await template(OLD)
    fs = FaultyFs()
    store = open_at(root, ring, fs)
    key, lease = key_in(store), store.key("provider", "a")

    async def take() -> None:
        async with store.lease(lease, wait=0.01):
            pass

    async def listed() -> None:
        assert OLD in [entry.body async for entry in store.scan("grants")]

    for attempt in (lambda: store.get(key), take, lambda: store.count("grants")):
        open_files = count_open()
        for number in range(MOST_CALLS):
            fs.arm(number, number_of_error)
            assert await code_of(attempt()) in {None, Code.STORE_UNAVAILABLE}, fs.fired
            assert count_open() == open_files, fs.fired
            if fs.fired is None:
                break
        fs.disarm()
        assert fs.fired is None
    await take()
    await listed()
    await store.close()


@pytest.mark.case("71")
async def test_a_failing_start_leaves_nothing_open_and_nothing_behind(template):
    root, ring = await template(OLD)
    open_files = count_open()
    for number in range(200):
        fs = FaultyFs()
        fs.arm(number, errno.EIO)
        try:
            await open_at(root, ring, fs).close()
        except BrokerError as exc:
            assert exc.code is Code.STORE_UNAVAILABLE  # noqa: PT017 - or it started, where a close failed
        assert count_open() == open_files, fs.fired
        if fs.fired is None:
            break
    assert fs.fired is None
    assert (OLD, b"untouched") == await contents(root, ring)


@pytest.mark.case("63", "71")
def test_a_keyring_is_made_whole_or_not_at_all(tmp_path):
    """Crash and failure at each call of its making; where none came out, the next attempt makes one."""
    kek = FileKek.create(tmp_path / "broker.kek")
    for number in range(MOST_CALLS):
        place = tmp_path / str(number)
        (place / "crash").mkdir(parents=True)
        crash, faulty = CrashFs(place / "crash"), FaultyFs()
        crash.arm(number)
        faulty.arm(number, errno.ENOSPC)
        made = [create(place / "crash" / "data" / "keyring", kek, crash)]
        made += [create(place / "fault" / "data" / "keyring", kek, faulty)]
        for clone in crash.clones(tmp_path / f"clones {number}"):
            path = clone / "data" / "keyring"
            assert path.exists() or not made[0]
            assert load_or_create(path, kek)
        assert load_or_create(place / "fault" / "data" / "keyring", kek)
        if crash.fired is faulty.fired is None:
            break
    assert made == [True, True]


def create(path: Path, kek: FileKek, fs: Fs) -> bool:
    try:
        KeyringFile(path, kek, fs=fs).create()
    except (BrokerError, Crash):
        return False
    return True


def load_or_create(path: Path, kek: FileKek) -> Keyring:
    return KeyringFile(path, kek).load() if path.exists() else KeyringFile(path, kek).create()


async def code_of(call: Awaitable[object]) -> Code | None:
    failed: BrokerError | None = None
    try:
        await asyncio.wait_for(call, 60)
    except BrokerError as exc:
        failed = exc
    assert failed is None or failed.__cause__ is failed.__context__ is None
    return failed.code if failed else None


def count_open() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
