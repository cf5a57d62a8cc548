"""A store as the last version of keyring format 1 left it, and its upgrade on a file layer of the test's choice."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from oauthbroker.repository.repository import KINDS, LEASES
from oauthbroker.repository.upgrade_steps import STEPS
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.store.keys.keyring import FileKek, Keyring
from oauthbroker.store.keys.keyring_home import KeyringFile
from oauthbroker.store.keys.upgrade import LEASE_KIND, UpgradeStep, upgrade
from oauthbroker.store.posix.system_calls import Fs
from oauthbroker.testing.clock import TestClock

FROZEN: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "store-v1.json").read_text())
MADE_AT = datetime.fromisoformat(FROZEN["madeAt"])


def unpack(place: Path) -> Path:
    """Write the frozen store to `place/store` and its key to `place/test.kek`; the store's root."""
    place.mkdir(mode=0o700, exist_ok=True)
    for name in FROZEN["folders"]:
        (place / name).mkdir(mode=0o700)
    for name, text in FROZEN["files"].items():
        (place / name).touch(mode=0o600)
        (place / name).write_bytes(base64.b64decode(text))
    return place / "store"


def keyring_file(root: Path, key_file: Path, fs: Fs | None = None) -> KeyringFile:
    return KeyringFile(root / "data" / "keyring", FileKek.open(key_file, outside=[root]), fs=fs)


async def open_upgraded(
    root: Path, key_file: Path, *, steps: Sequence[UpgradeStep] = STEPS, fs: Fs | None = None, wait: float = 30
) -> FileStore:
    """Open the store as a broker does. Raises what the upgrade raises."""
    file = keyring_file(root, key_file, fs)
    ring = file.load()
    store = FileStore(root, ring, kinds=KINDS, lease_kinds=(*LEASES, LEASE_KIND), clock=TestClock(MADE_AT), fs=fs)
    try:
        await upgrade(store, ring, file, steps, wait=wait)
    except BaseException:
        await store.close()
        raise
    return store


def ring_of(root: Path, key_file: Path) -> Keyring:
    return keyring_file(root, key_file).load()
