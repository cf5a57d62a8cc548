"""What others may have put into the store's folders, or done to their modes: refused, not followed, not hung on."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.store.format.port import Key
from oauthbroker.testing.stores import open_file_store

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")


@pytest.fixture
async def store(tmp_path):
    store = open_file_store(tmp_path)
    await store.put(store.key("grants", "a"), b"body", expect=0)
    yield store
    await store.close()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "store" / "data"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Another user's file that a link may point to."""
    path = tmp_path / "target"
    path.write_bytes(b"precious")
    path.chmod(0o600)
    return path


def entry_file(data: Path, key: Key) -> Path:
    return data / key.kind / key.name


async def refused(call: Awaitable[object]) -> None:
    """Answers `storePermissions`, and does not hang."""
    failed: BrokerError | None = None
    try:
        await asyncio.wait_for(call, 30)
    except BrokerError as exc:
        failed = exc
    assert failed
    assert (Code.STORE_PERMISSIONS, None, None) == (failed.code, failed.__cause__, failed.__context__)


async def reopen(tmp_path: Path) -> None:
    await open_file_store(tmp_path).close()


def mark_of_the_dead(data: Path) -> None:
    """Leave what tells the next start that a process has died: an open mark without a lock."""
    (data / ".open.0123456789abcdef").touch(0o600)


def symlink(path: Path, target: Path) -> None:
    path.symlink_to(target)


def dangling(path: Path, target: Path) -> None:
    path.symlink_to(target.with_name("nowhere"))


def hard_link(path: Path, target: Path) -> None:
    path.hardlink_to(target)


def fifo(path: Path, target: Path) -> None:
    os.mkfifo(path, 0o600)


def folder(path: Path, target: Path) -> None:
    path.mkdir(mode=0o700)


def socket(path: Path, target: Path) -> None:
    os.mknod(path, 0o140600)


PLANTED: dict[str, Callable[[Path, Path], None]] = {
    "a link": symlink,
    "a link to nowhere": dangling,
    "a hard link": hard_link,
    "a FIFO": fifo,
    "a folder": folder,
    "a socket": socket,
}
EACH = pytest.mark.parametrize("plant", PLANTED.values(), ids=PLANTED)


@pytest.mark.case("73")
@EACH
@pytest.mark.parametrize("expect", [0, 1])
async def test_a_planted_record_is_neither_read_nor_written_nor_removed(store, data, target, plant, expect):
    key = store.key("grants", "b")
    plant(entry_file(data, key), target)
    await refused(store.get(key))
    await refused(store.put(key, b"mine", expect=expect))
    await refused(store.delete(key, expect=expect))
    assert b"precious" == target.read_bytes()
    assert not target.with_name("nowhere").exists()
    assert [] == list(data.rglob("*.tmp"))


@pytest.mark.case("73")
@EACH
async def test_a_planted_record_does_not_hide_the_others(store, data, target, plant, tmp_path):
    plant(entry_file(data, store.key("grants", "b")), target)
    heard = []
    store._on_damage = lambda place, code: heard.append((place, code))
    assert [b"body"] == [entry.body async for entry in store.scan("grants")]
    assert [(f"grants/{store.key('grants', 'b').name[:8]}", Code.STORE_PERMISSIONS)] == heard


@pytest.mark.case("73")
@EACH
async def test_a_planted_write_lock_stops_the_write(store, data, target, plant):
    key = store.key("grants", "a")
    lock = data / "locks" / f"write-{int(key.name[:4], 16) % 64:02d}"
    lock.unlink()
    plant(lock, target)
    await refused(store.put(key, b"mine", expect=1))
    await refused(store.delete(key, expect=1))
    assert b"precious" == target.read_bytes()
    assert b"body" == (await store.get(key)).body
    assert [] == list(data.rglob("*.tmp"))


@pytest.mark.case("73")
@EACH
async def test_a_planted_lease_is_not_taken(store, data, target, plant):
    key = store.key("provider", "a")
    plant(data / "locks" / f"provider-{key.name}", target)

    async def take() -> None:
        async with store.lease(key, wait=1):
            raise AssertionError

    await refused(take())
    assert b"precious" == target.read_bytes()
    assert not target.with_name("nowhere").exists()


@pytest.mark.case("73")
@EACH
@pytest.mark.parametrize("where", ["grants", "locks", "corrupt", "."])
async def test_a_planted_temporary_file_stops_the_start_after_a_death(store, data, target, plant, where, tmp_path):
    mark_of_the_dead(data)
    plant(data / where / f".{'0a' * 32}.0123456789abcdef.tmp", target)
    await refused(reopen(tmp_path))
    assert b"precious" == target.read_bytes()


@pytest.mark.case("73")
@EACH
async def test_a_planted_open_mark_stops_the_start(store, data, target, plant, tmp_path):
    plant(data / ".open.0123456789abcdef", target)
    await refused(reopen(tmp_path))
    assert b"precious" == target.read_bytes()


@pytest.mark.case("73")
@EACH
async def test_a_planted_probe_stops_the_start(store, data, target, plant, tmp_path):
    (data / "locks" / "probe").unlink()
    plant(data / "locks" / "probe", target)
    await refused(reopen(tmp_path))


@pytest.mark.case("73")
@pytest.mark.parametrize("name", ["grants", "locks", "corrupt"])
async def test_a_linked_or_replaced_folder_stops_the_start(store, data, tmp_path, name):
    (data / name).rename(tmp_path / "moved")
    (data / name).symlink_to(tmp_path / "moved")
    await refused(reopen(tmp_path))
    (data / name).unlink()
    (data / name).write_bytes(b"")
    await refused(reopen(tmp_path))


@pytest.mark.case("73")
async def test_a_linked_data_folder_stops_the_start(store, data, tmp_path):
    ring = store.keyring.ring
    data.rename(tmp_path / "moved")
    data.symlink_to(tmp_path / "moved")
    with pytest.raises(BrokerError) as caught:
        FileStore(tmp_path / "store", ring, kinds=["grants"], clock=store._locks._clock)
    assert Code.STORE_PERMISSIONS == caught.value.code


FOLDER_MODES = [0o777, 0o755, 0o750, 0o701]


@pytest.mark.case("72")
@pytest.mark.parametrize("mode", FOLDER_MODES, ids=[f"{mode:o}" for mode in FOLDER_MODES])
@pytest.mark.parametrize("name", [".", "grants", "locks", "corrupt"])
async def test_a_folder_that_others_can_enter_stops_the_start(store, data, tmp_path, name, mode):
    (data / name).chmod(mode)
    await refused(reopen(tmp_path))
    assert mode == (data / name).stat().st_mode & 0o777


@pytest.mark.case("72")
async def test_a_world_writable_root_stops_the_start(store, tmp_path):
    (tmp_path / "store").chmod(0o777)
    await refused(reopen(tmp_path))
    (tmp_path / "store").chmod(0o755)
    await reopen(tmp_path)


@pytest.mark.case("72")
@needs_root
@pytest.mark.parametrize("name", [".", "grants", "locks"])
async def test_a_folder_of_another_user_stops_the_start(store, data, tmp_path, name):
    os.chown(data / name, 4242, 4242)
    await refused(reopen(tmp_path))


@pytest.mark.case("72")
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o666, 0o602])
async def test_a_record_or_lock_that_others_can_reach_is_refused(store, data, mode):
    key = store.key("grants", "a")
    entry_file(data, key).chmod(mode)
    await refused(store.get(key))
    await refused(store.put(key, b"mine", expect=1))
    entry_file(data, key).chmod(0o600)
    for lock in (data / "locks").glob("write-*"):
        lock.chmod(mode)
    await refused(store.put(key, b"mine", expect=1))
    assert b"body" == (await store.get(key)).body


@pytest.mark.case("72")
@needs_root
async def test_a_record_of_another_user_is_refused(store, data):
    key = store.key("grants", "a")
    os.chown(entry_file(data, key), 4242, 4242)
    await refused(store.get(key))


@pytest.mark.case("72")
@pytest.mark.parametrize("umask", [0, 0o022, 0o077])
async def test_everything_is_private_under_any_umask(tmp_path, umask):
    before = os.umask(umask)
    try:
        store = open_file_store(tmp_path)
        entry = await store.put(store.key("grants", "a"), b"one", expect=0)
        await store.put(entry.key, b"two", expect=1)
        async with store.lease(store.key("provider", "a"), wait=1):
            pass
        record = entry_file(tmp_path / "store" / "data", entry.key)
        record.write_bytes(b"damaged")
        with pytest.raises(BrokerError):
            await store.get(entry.key)
        await store.close()
    finally:
        os.umask(before)
    modes = {(path.is_dir(), path.stat().st_mode & 0o7777) for path in (tmp_path / "store").rglob("*")}
    assert {(True, 0o700), (False, 0o600)} == modes
    assert 0o600 == (tmp_path / "test.kek").stat().st_mode & 0o7777
