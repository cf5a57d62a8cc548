"""A store that is looked at while a broker works on it: nothing is made, moved, removed or locked."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from oauthbroker.clock import Clock
from oauthbroker.errors import Code
from oauthbroker.store.file import FileStore
from oauthbroker.store.files import close
from oauthbroker.store.folders import DATA, LOCKS
from oauthbroker.store.fs import Fs, at_border
from oauthbroker.store.keys import Keyring


class ReadOnlyFs(Fs):
    """Reads like the real thing. Whatever would change something raises EROFS, and every lock is somebody else's."""

    def make_root(self, path: Path) -> None:
        """Nothing is made: opening it tells whether it is there."""

    def make_folder(self, *_: object) -> NoReturn:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))

    def open_lock(self, folder: int, name: str) -> int:
        return self.open_file(folder, name)

    def try_lock(self, *_: object) -> bool:
        return False

    def create_file(self, *_: object) -> NoReturn:
        raise _refused()

    def write(self, *_: object) -> NoReturn:
        raise _refused()

    def reserve(self, *_: object) -> NoReturn:
        raise _refused()

    def truncate(self, *_: object) -> NoReturn:
        raise _refused()

    def rename(self, *_: object) -> NoReturn:
        raise _refused()

    def unlink(self, *_: object) -> NoReturn:
        raise _refused()


def look_at(
    root: Path, keyring: Keyring, *, kinds: Sequence[str], clock: Clock, on_damage: Callable[[str, Code], None]
) -> tuple[FileStore, frozenset[str]] | None:
    """The store for reading, and those of `kinds` that it keeps; an older broker's store lacks some. None for one that
    no broker has opened yet. Raises as `FileStore.open` does."""
    fs = ReadOnlyFs()
    there = at_border(lambda: _names(fs, root))
    if LOCKS not in there:
        return None
    kept = [kind for kind in kinds if kind in there]
    store = FileStore.open(root, keyring, kinds=kept, clock=clock, fs=fs, on_damage=on_damage)
    return store, frozenset(kept)


def _names(fs: Fs, root: Path) -> set[str]:
    try:
        folder = fs.open_root(root / DATA)
    except FileNotFoundError:
        return set()
    try:
        return set(fs.listdir(folder))
    finally:
        close(fs, folder)


def _refused() -> OSError:
    return OSError(errno.EROFS, os.strerror(errno.EROFS))
