"""A file store that counts its file calls."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from oauthbroker.repository.repository import KINDS, LEASES
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.testing import TestClock
from oauthbroker.testing.stores import open_keyring
from tests.kit.crashfs import CountingFs

WRITES = {"create_file", "write", "rename", "link", "unlink", "fsync", "open_lock"}


def counted_store(folder: Path, clock: TestClock) -> tuple[FileStore, Counter[str]]:
    """A file store that counts its calls."""
    fs = CountingFs()
    ring = open_keyring(folder)
    return FileStore(folder / "store", ring, kinds=KINDS, lease_kinds=LEASES, clock=clock, fs=fs), fs.calls
