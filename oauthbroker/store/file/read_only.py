"""Read a store while a broker works on it, without creating, moving, removing or locking anything."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from oauthbroker.core.clock import Clock
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.store.format.port import Damage
from oauthbroker.store.keys.keyring import Keyring
from oauthbroker.store.posix.checked_files import closing
from oauthbroker.store.posix.folders import DATA, FIRST_KINDS, LOCKS, has_records, missing_kinds
from oauthbroker.store.posix.system_calls import Fs, at_border


class ReadOnlyFs(Fs):
    """A read-only file layer. Every change raises EROFS, and every lock counts as held by another process."""

    only_reads = True

    def make_root(self, path: Path) -> None:
        """Create nothing. Opening the root tells whether it exists."""

    def make_folder(self, *_: object, **__: object) -> NoReturn:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))

    open_lock = Fs.open_file

    def try_lock(self, *_: object) -> bool:
        return False

    def fsync(self, *_: object) -> None:
        """Do nothing: nothing was changed."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    create_file = write = reserve = truncate = rename = link = unlink = _refuse


def look_at(
    root: Path, keyring: Keyring, *, kinds: Sequence[str], clock: Clock, on_damage: Damage
) -> tuple[FileStore, frozenset[str]] | None:
    """Open the store for reading; also return those of `kinds` that it has. None if no
    broker has opened it yet. Raises as `FileStore` does."""
    fs = ReadOnlyFs()
    there = at_border(lambda: _names(fs, root))
    if there is None:
        return None
    kept = [kind for kind in kinds if kind in there]
    store = FileStore(root, keyring, kinds=kept, clock=clock, fs=fs, on_damage=on_damage)
    return store, frozenset(kept)


def _names(fs: Fs, root: Path) -> set[str] | None:
    """Return the names in `data/`; None before the first start, which has made no locks and no records."""
    try:
        folder = fs.open_root(root / DATA)
    except FileNotFoundError:
        return None
    with closing(fs, folder):
        names = set(fs.listdir(folder))
        return names if LOCKS in names or has_records(fs, folder) else None


def missing_in(root: Path) -> list[str]:
    """Return the kinds whose folder a store with records lacks. Raises OSError."""
    fs = ReadOnlyFs()
    try:
        folder = fs.open_root(root / DATA)
    except FileNotFoundError:
        return []
    with closing(fs, folder):
        return missing_kinds(fs, folder, FIRST_KINDS)
