"""A file store for a test, with its key file and keyring."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from oauthbroker.core.clock import Clock, SystemClock
from oauthbroker.repository.repository import KINDS, LEASES
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.store.keys.keyring import FileKek, Keyring
from oauthbroker.store.keys.keyring_home import KeyringFile
from oauthbroker.store.posix.system_calls import Fs


def open_file_store(
    folder: Path,
    *,
    kinds: Sequence[str] = KINDS,
    lease_kinds: Sequence[str] = LEASES,
    clock: Clock | None = None,
    fs: Fs | None = None,
) -> FileStore:
    """Open the store in `folder/store`, sealed under `folder/test.kek`; both are created the first time.

    Opened twice, also from two processes, it is one store with two brokers.
    """
    ring = open_keyring(folder)
    return FileStore(folder / "store", ring, kinds=kinds, lease_kinds=lease_kinds, clock=clock or SystemClock(), fs=fs)


def open_keyring(folder: Path) -> Keyring:
    """Open the keyring of the store in `folder`; create it with its key file if there is none."""
    root, key_file = folder / "store", folder / "test.kek"
    path = root / "data" / "keyring"
    if not path.exists():
        return KeyringFile(path, FileKek.create(key_file, outside=[root])).create()
    return KeyringFile(path, FileKek.open(key_file, outside=[root])).load()
