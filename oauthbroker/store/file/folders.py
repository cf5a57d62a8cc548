"""Open the folders of a file store: check ownership, probe locks, and remove leftovers of a crash."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.file.files import check_file, check_root, close, make_folders, own_folder
from oauthbroker.store.file.fs import Fs, at_border

DATA, LOCKS, CORRUPT, TAGS = "data", "locks", "corrupt", "tags"


class Folders:
    """Open folders by kind. All later operations are relative to these descriptors."""

    __slots__ = ("_all", "_fs", "by_kind", "corrupt", "locks", "tags")

    def __init__(self, fs: Fs, opened: dict[str, int]) -> None:
        self._fs = fs
        self._all = list(opened.values())
        self.locks, self.corrupt = opened.pop(LOCKS), opened.pop(CORRUPT)
        self.tags = opened.pop(TAGS, None)
        self.by_kind = MappingProxyType(opened)

    def close(self) -> None:
        while self._all:
            close(self._fs, self._all.pop())


def open_folders(fs: Fs, root: Path, kinds: Sequence[str]) -> Folders:
    """Open `<root>/data` and its folders, created with 0700 if missing.

    The work depends on the number of kinds, not of records, except for one listing of each folder to find leftovers of
    a crash. Raises `storePermissions` for a path that others can access or that has the wrong type, and
    `storeUnavailable` where files cannot be locked.
    """
    return at_border(lambda: _open_all(fs, root, [LOCKS, CORRUPT, TAGS, *kinds]))


def _open_all(fs: Fs, root: Path, names: Collection[str]) -> Folders:
    opened: dict[str, int] = {}
    try:
        data = _open_data(fs, root)
        try:
            make_folders(fs, data, names)
            for name in names:
                with suppress(*([FileNotFoundError] if name == TAGS else [])):  # an old store that is only read
                    opened[name] = own_folder(fs, data, name)
            _collect(fs, data)
        finally:
            close(fs, data)
        _probe_locks(fs, opened[LOCKS])
        for folder in opened.values():
            _collect(fs, folder)
    except BaseException:
        for fd in opened.values():
            close(fs, fd)
        raise
    return Folders(fs, opened)


def _open_data(fs: Fs, root: Path) -> int:
    fs.make_root(root)
    fd = fs.open_root(root)
    try:
        check_root(fs.fstat(fd))
        make_folders(fs, fd, [DATA])
        return own_folder(fs, fd, DATA)
    finally:
        close(fs, fd)


def _probe_locks(fs: Fs, folder: int) -> None:
    """Check that two descriptors of one file exclude each other. Where both can lock it (some network mounts) writes
    are unsafe.

    If the first one cannot lock it, locks work too: another broker is probing at this moment.
    """
    first, second = fs.open_lock(folder, "probe"), -1
    try:
        second = fs.open_lock(folder, "probe")
        check_file(fs.fstat(first))
        excludes = not fs.try_lock(first) or not fs.try_lock(second)
    finally:
        close(fs, first)
        if second >= 0:
            close(fs, second)
    if not excludes:
        raise BrokerError(Code.STORE_UNAVAILABLE, note="file locks do not exclude each other here")


def _collect(fs: Fs, folder: int) -> None:
    """Remove temporary files whose writer has died. A living writer holds a lock on its file."""
    for name in fs.listdir(folder):
        if name.startswith(".") and name.endswith(".tmp"):
            _collect_one(fs, folder, name)


def _collect_one(fs: Fs, folder: int, name: str) -> None:
    try:
        fd = fs.open_file(folder, name)
    except FileNotFoundError:
        return
    try:
        check_file(fs.fstat(fd))
        if fs.try_lock(fd):
            fs.unlink(folder, name)
    except FileNotFoundError:
        pass  # its writer removed it first
    finally:
        close(fs, fd)
