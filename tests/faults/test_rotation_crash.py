"""A store whose keys change is killed at every change of the disk: the next opening reads every record, and finishes."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from oauthbroker.core.clock import SystemClock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.store.keys.key_encryption_keys import FileKek
from oauthbroker.store.keys.keyring import SeedState
from oauthbroker.store.keys.keyring_home import KeyringFile
from oauthbroker.store.keys.rotation import LEASE_KIND, KeyRotation
from oauthbroker.store.posix.system_calls import Fs
from tests.faults.crash_kit import CrashAtChange
from tests.faults.sync_kit import different
from tests.kit.crashfs import Crash
from tests.kit.forms import swept

MOST_CHANGES = 400  # far more than the story makes; the sweep ends by itself
KINDS = ("grants", "sessions")
BODIES = {("grants", "a"): b"one", ("grants", "b"): b"two", ("sessions", "c"): b"three"}


def opened(root: Path, *keks: FileKek, fs: Fs | None = None) -> KeyRotation:
    home = KeyringFile(root / "data" / "keyring", *keks, fs=fs)
    store = FileStore(root, home.load(), kinds=KINDS, lease_kinds=(LEASE_KIND,), clock=SystemClock(), fs=fs)
    return KeyRotation(store, home, SystemClock())


async def change_everything(rotation: KeyRotation) -> None:
    assert await rotation.rotate(wait=10)
    entry = await rotation.store.get(rotation.store.key("grants", "b"))
    assert entry is not None
    await rotation.store.put(entry.key, b"two", expect=entry.generation)
    assert (await rotation.reseal()).done
    await rotation.rewrap()
    assert 0 == await rotation.retire()
    await rotation.store.close()


async def contents(rotation: KeyRotation) -> dict[tuple[str, str], bytes]:
    found = {}
    for kind, name in BODIES:
        entry = await rotation.store.get(rotation.store.key(kind, name))
        assert entry is not None
        found[kind, name] = entry.body
    return found


async def finish(root: Path, *keks: FileKek) -> None:
    """Open what a crash left, with either key, read it all, and bring the change to its end."""
    rotation = opened(root, *keks)
    assert BODIES == await contents(rotation)
    assert (await rotation.reseal()).done
    assert 0 == await rotation.retire()
    assert BODIES == await contents(rotation)
    assert rotation.ring.old_seeds == ()
    await change_everything(rotation)
    last = opened(root, *keks)
    assert BODIES == await contents(last)
    assert SeedState.ACTIVE is last.ring.seeds[-1].state
    await last.store.close()


@pytest.mark.slow
@pytest.mark.case("63")
async def test_a_change_of_keys_that_is_killed_at_any_change_of_the_disk_loses_no_record(tmp_path: Path):
    old, new = FileKek.create(tmp_path / "old.kek"), FileKek.create(tmp_path / "new.kek")
    KeyringFile(tmp_path / "store" / "data" / "keyring", old).create()
    made = opened(tmp_path / "store", old)
    for (kind, name), body in BODIES.items():
        await made.store.put(made.store.key(kind, name), body, expect=0)
    await made.store.close()
    for number in swept(MOST_CHANGES):
        root = tmp_path / f"{number}"
        shutil.copytree(tmp_path / "store", root)
        fs = CrashAtChange(root)
        fs.arm(number)
        try:
            await change_everything(opened(root, old, new, fs=fs))
        except Crash:
            await asyncio.sleep(0)
        except BrokerError as error:
            assert error.code is Code.STORE_UNAVAILABLE  # noqa: PT017  (what a task of the dead process answers)
        for clone in different(fs.clones(tmp_path / f"clones-{number}", seeds=1)):
            await finish(clone, old, new)
        fs.restore()
        shutil.rmtree(root)
        shutil.rmtree(tmp_path / f"clones-{number}")
        if fs.fired is None:
            break
    assert fs.fired is None
    assert number > 25
