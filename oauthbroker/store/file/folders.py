"""Starting a file store: the folders, who owns them, whether locks work here, and what a crash left behind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from types import MappingProxyType

from oauthbroker.errors import BrokerError, Code
from oauthbroker.store.files import check_file, check_root, close, own_folder
from oauthbroker.store.fs import Fs, at_border

DATA, LOCKS, CORRUPT = "data", "locks", "corrupt"


class Folders:
    """Open folders by kind. Everything the store does later is relative to these descriptors."""

    __slots__ = ("_all", "_fs", "by_kind", "corrupt", "locks")

    def __init__(self, fs: Fs, opened: dict[str, int]) -> None:
        self._fs = fs
        self._all = list(opened.values())
        self.locks, self.corrupt = opened.pop(LOCKS), opened.pop(CORRUPT)
        self.by_kind = MappingProxyType(opened)

    def close(self) -> None:
        while self._all:
            close(self._fs, self._all.pop())


def open_folders(fs: Fs, root: Path, kinds: Sequence[str]) -> Folders:
    """Opens `<root>/data` and its folders, made with 0700 where missing. The work depends on the number of kinds,
    not of records, except that a folder's names are listed once to find what a crash left behind.

    Raises `storePermissions` for anything that others can reach or that is not what it should be, and
    `storeUnavailable` where files cannot be locked.
    """
    return at_border(lambda: _open_all(fs, root, [LOCKS, CORRUPT, *kinds]))


def _open_all(fs: Fs, root: Path, names: Iterable[str]) -> Folders:
    opened: dict[str, int] = {}
    try:
        data = _open_data(fs, root)
        try:
            for name in names:
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
        return own_folder(fs, fd, DATA)
    finally:
        close(fs, fd)


def _probe_locks(fs: Fs, folder: int) -> None:
    """Two descriptors of one file: only one may lock it. Where both may (some network mounts) nothing is safe.

    That the first one may not is as good a proof: another broker probes at this moment.
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
    """Removes temporary files whose writer is gone: a living one holds a lock on his."""
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
        pass  # its writer finished it first
    finally:
        close(fs, fd)
