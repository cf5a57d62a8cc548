"""A sync fails while a store is made: what the next try finds there is on the disk before anything is built on it."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from oauthbroker.audit.file import AuditFile
from oauthbroker.core.clock import SystemClock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.repository.repository import KINDS, LEASES
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.store.keys.keyring import FileKek
from oauthbroker.store.keys.keyring_home import KeyringFile
from oauthbroker.store.posix import system_calls
from oauthbroker.store.posix.system_calls import Fs
from tests.faults.sync_kit import FailingSync, different
from tests.kit.audit import AT, ENTRY, KEYS, SYNCS, die

FOUNDED = 8  # syncs, at least, from an empty folder to the first record


async def first_record(root: Path, key_file: Path, fs: FailingSync) -> None:
    """As `init` and a first broker make it, each step again until it is done or found done."""
    for _ in range(9):
        try:
            kek = FileKek.open(key_file, durably=True, fs=fs) if key_file.exists() else FileKek.create(key_file, fs=fs)
            KeyringFile(root / "data" / "keyring", kek, fs=fs).create()
        except BrokerError as error:
            if error.code is Code.KEY_EXISTS:
                break
            assert error.retryable  # noqa: PT017 - or it is made
        else:
            break
    for _ in range(9):
        try:
            await write_first(root, key_file, fs)
        except BrokerError as error:
            assert error.retryable  # noqa: PT017 - or it is written
        else:
            return
    raise AssertionError("one failed sync, and it never works again")


async def write_first(root: Path, key_file: Path, fs: Fs) -> None:
    store = open_store(root, key_file, fs)
    try:
        key = store.key("grants", "mail")
        entry = await store.get(key)
        await store.put(key, b"first", expect=entry.generation if entry is not None else 0)
    finally:
        await store.close()


def open_store(root: Path, key_file: Path, fs: Fs | None = None) -> FileStore:
    ring = KeyringFile(root / "data" / "keyring", FileKek.open(key_file, fs=fs), fs=fs).load()
    return FileStore(root, ring, kinds=KINDS, lease_kinds=LEASES, clock=SystemClock(), fs=fs)


@pytest.mark.slow
@pytest.mark.case("63", "71")
async def test_a_store_whose_making_met_a_failed_sync_outlives_a_loss_of_power_with_its_keys(tmp_path):
    number, failed = 0, 1
    while failed:
        whole = tmp_path / str(number)
        (whole / "store").mkdir(parents=True, mode=0o700)
        (whole / "keys").mkdir(mode=0o700)
        fs = FailingSync(whole)
        fs.arm_sync(number)
        await first_record(whole / "store", whole / "keys" / "kek", fs)
        for clone in different(fs.clones(tmp_path / f"clones-{number}", seeds=2)):
            store = open_store(clone / "store", clone / "keys" / "kek")
            entry = await store.get(store.key("grants", "mail"))
            assert entry is not None, (number, clone.name)
            assert b"first" == entry.body
            await store.close()
        number, failed = number + 1, fs.failed
    assert number > FOUNDED


def test_a_folder_above_the_store_is_on_the_disk_before_the_store_is_used(tmp_path, monkeypatch):
    """Also where the process that made it could not sync it."""
    synced, real = list[int](), os.fsync

    def sync(descriptor: int) -> None:
        if not synced:
            synced.append(0)
            raise OSError(errno.EIO, "no")
        synced.append(os.fstat(descriptor).st_ino)
        real(descriptor)

    monkeypatch.setattr(system_calls, "sync", sync)
    with pytest.raises(OSError, match="no"):
        Fs().make_root(tmp_path / "store")
    Fs().make_root(tmp_path / "store")
    assert tmp_path.stat().st_ino in synced


class Names:
    """What of a folder is surely on the disk: which file bears which name, and how long each file is."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.left, self.failed = folder, -1, False
        self.names, self.sizes, self._real = dict[str, int](), dict[int, int](), os.fsync

    def fsync(self, descriptor: int) -> None:
        self.left -= 1
        if self.left == -1:
            self.failed = True
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            self.names = {each.name: each.stat().st_ino for each in self.folder.iterdir()}
        else:
            self.sizes[found.st_ino] = found.st_size
        self._real(descriptor)

    @property
    def lost(self) -> set[str]:
        """Files that a loss of power would take or cut."""
        there = {each.name: each.stat() for each in self.folder.iterdir()}
        return {
            name
            for name, found in there.items()
            if self.names.get(name) != found.st_ino or self.sizes.get(found.st_ino) != found.st_size
        }


@pytest.mark.case("63", "71")
@pytest.mark.parametrize("cold", [False, True], ids=["the same process", "another process"])
async def test_an_audit_log_whose_anchor_is_kept_is_on_the_disk_after_any_failed_sync(tmp_path, monkeypatch, cold):
    number, failed = 0, True
    while failed:
        folder = tmp_path / str(number)
        folder.mkdir()
        names = Names(folder)
        for each in SYNCS:
            monkeypatch.setattr(each, "sync", names.fsync)
        names.left = number
        log = AuditFile(folder, KEYS, most_bytes=700)
        written = 0
        while written < 6:
            try:
                log.write(ENTRY, AT)
                written += 1
            except BrokerError:
                if cold:
                    die(log)
                    log = AuditFile(folder, KEYS, most_bytes=700)
        await kept(log)
        assert set() == names.lost, number
        names.left = -1
        log.close()
        number, failed = number + 1, names.failed
    assert number > 5
    assert (folder / "audit-000001.jsonl").exists()


async def kept(log: AuditFile) -> None:
    for _ in range(3):
        try:
            await log.keep_checkpoint()
        except BrokerError:
            continue
        return
    raise AssertionError("one failed sync, and it never works again")
