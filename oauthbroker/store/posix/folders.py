"""Open the folders of a file store: check ownership, probe locks, and remove leftovers of a crash.

An open store has an *open mark*, a file in `data/` that is locked while its process lives and removed when the store is
closed. So a mark that is not locked shows that a process has died, or could not remove a temporary file. Only then may
temporary files be left beside the records, and only then are the folders of the records listed: that takes longer the
more records there are.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import MappingProxyType

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.posix.atomic_files import collect_temps, drop_temp, new_temp
from oauthbroker.store.posix.checked_files import (
    check_file,
    check_root,
    close,
    closing,
    make_folders,
    own_folder,
    read_file,
)
from oauthbroker.store.posix.migration_marker import MOST_BYTES, MigrationMarker
from oauthbroker.store.posix.system_calls import Fs, at_border

DATA, LOCKS, CORRUPT, TAGS = "data", "locks", "corrupt", "tags"
FIRST_KINDS = frozenset(
    {"grants", "sessions", "waiting", "events", "queues", "secrets", "due", "turns", "apikeys", "browsersessions",
     "uses", "plugins", "clients", "tombstones"}
)  # fmt: skip
"""The kinds that format 1 has from its beginning. A store with records has a folder for each of them."""
_NO_RECORDS = {LOCKS, CORRUPT, "audit"}
OPEN, MARK, PROBE = ".open.", "move", "probe"
_NONE = -1  # no folder: a copy has no locks, and none are taken where a store is only read
_Named = dict[str, tuple[str, tuple[int, int]]]  # by name: path, inode and device
_MOST_MARK = 1024 * 1024  # 16 bytes for each keyring that the process has opened


class Folders:
    """Open folders by kind. All later operations are relative to these descriptors. `closing` removes the open mark."""

    __slots__ = ("_closing", "_named", "by_kind", "corrupt", "data", "locks", "mark", "tags")

    def __init__(
        self, opened: dict[str, int], closing: ExitStack, named: _Named, *, data: int, mark: int | None
    ) -> None:
        """`named` has each folder; `data` is the one above the others; `mark` is the open mark, None in a
        store that is only read."""
        self._closing, self._named, self.data, self.mark = closing, named, data, mark
        self.locks, self.corrupt = opened.pop(LOCKS, _NONE), opened.pop(CORRUPT, _NONE)
        self.tags = opened.pop(TAGS, None)
        self.by_kind = MappingProxyType(opened)

    def check_named(self, fs: Fs, *kinds: str) -> None:
        """Raise `storeUnavailable` if a folder lies no longer where the next start looks for it: another process would
        write there, and take its locks there. Looks at those of `kinds` and of the locks, or without any at all."""
        for path, file in map(self._named.__getitem__, (LOCKS, *kinds) if kinds else self._named):
            named = None
            with suppress(FileNotFoundError, NotADirectoryError):
                named = _file_of(fs.stat(path))
            if named != file:
                hint = "put it back, or restart the broker on the folder that is there now"
                note = f"the store's folder {path} was moved away or replaced: {hint}"
                raise BrokerError(Code.STORE_UNAVAILABLE, note=note, lasting=True)

    def close(self) -> None:
        self._closing.close()


def _file_of(found: os.stat_result) -> tuple[int, int]:
    return found.st_ino, found.st_dev


def open_folders(fs: Fs, root: Path, kinds: Sequence[str]) -> Folders:
    """Open `<root>/data` and its folders, created with 0700 if missing.

    The work depends on the number of kinds, not of records. After the death of a process, each folder is listed once
    to remove its leftovers. Raises `storePermissions` for a path that others can access or that has the wrong type,
    and `storeUnavailable` where files cannot be locked.
    """
    return at_border(lambda: _open_all(fs, root, [LOCKS, CORRUPT, TAGS, *kinds]))


def _open_all(fs: Fs, root: Path, names: Collection[str]) -> Folders:
    with ExitStack() as stack:
        data, opened = open_data(fs, root), dict[str, int]()
        stack.callback(close, fs, data)
        with ExitStack() as checking:
            there = fs.listdir(data)
            dead = _dead_marks(fs, data, there, checking)
            mark = _mark_as_open(fs, data, stack)
            _check_not_moved(fs, data)
            if not FIRST_KINDS.intersection(names).issubset(there):
                check_whole(missing_kinds(fs, data, names))
            make_folders(fs, data, names)  # the sync makes the mark durable, too
            for name in names:
                with suppress(*([FileNotFoundError] if fs.only_reads else [])):  # a copy
                    opened[name] = own_folder(fs, data, name)
                    stack.callback(close, fs, opened[name])
            if not fs.only_reads or PROBE in fs.listdir(opened.get(LOCKS, data)):
                _probe_locks(fs, opened[LOCKS])
            for folder in (data, *(opened.values() if dead else ())):
                collect_temps(fs, folder)
            for name in dead:
                with suppress(OSError):
                    fs.unlink(name, dir_fd=data)
        below = {"": data, **opened}
        named = {name: (str(root / DATA / name), _file_of(fs.fstat(folder))) for name, folder in below.items()}
        return Folders(opened, stack.pop_all(), named, data=data, mark=mark)


def missing_kinds(fs: Fs, data: int, kinds: Collection[str]) -> list[str]:
    """Return the kinds whose folder is lost: the store has records, so a start has made it before them. A kind that a
    newer version brings is none of them."""
    return sorted(FIRST_KINDS.intersection(kinds).difference(fs.listdir(data))) if has_records(fs, data) else []


def has_records(fs: Fs, data: int) -> bool:
    """Tell whether a folder below `data/` has a record, or the tag of one."""
    return any(_has_entries(fs, data, name) for name in fs.listdir(data) if name not in _NO_RECORDS)


def _has_entries(fs: Fs, data: int, name: str) -> bool:
    with suppress(FileNotFoundError):  # an open mark that went meanwhile
        if stat.S_ISDIR(fs.stat(name, dir_fd=data).st_mode):
            with closing(fs, fs.open_folder(name, dir_fd=data)) as fd:
                return any(True for _ in fs.each_name(fd))
    return False


def check_whole(missing: Sequence[str]) -> None:
    """Refuse a store that lacks folders of kinds: a start that made them anew would hide the loss."""
    if missing:
        names, them = ", ".join(f"{DATA}/{kind}" for kind in missing), "is missing: restore it"
        if len(missing) > 1:
            them = "are missing: restore them"
        note = f"{names} {them} from a backup, or make an empty folder (0700) where no record was"
        raise BrokerError(Code.STORE_UNAVAILABLE, note=note, lasting=True)


def living_marks(fs: Fs, data: int) -> list[bytes]:
    """Return the contents of the open marks of living processes."""
    found = list[bytes]()
    for name in fs.listdir(data):
        if not name.startswith(OPEN):
            continue
        with (
            suppress(FileNotFoundError),
            closing(fs, fs.open_file(name, dir_fd=data)) as fd,
        ):  # its store was closed just now
            if not fs.try_lock(fd):
                found.append(fs.read(fd, _MOST_MARK))
    return found


def _dead_marks(fs: Fs, data: int, there: Collection[str], checking: ExitStack) -> list[str]:
    """Return the open marks of processes that have died. They stay locked until `checking` ends."""
    dead = list[str]()
    for name in there:
        if not name.startswith(OPEN):
            continue
        with suppress(FileNotFoundError):  # its store was closed just now
            fd = fs.open_file(name, dir_fd=data)
            checking.callback(close, fs, fd)
            check_file(fs.fstat(fd), name)
            if fs.try_lock(fd):
                dead.append(name)
    return dead


def _mark_as_open(fs: Fs, data: int, stack: ExitStack) -> int | None:
    """Create the open mark; `stack` removes it. A store that is only read has none."""
    try:
        name, fd = new_temp(fs, data, OPEN, end="")
    except OSError as exc:
        if exc.errno != errno.EROFS:
            raise
        return None
    stack.callback(_unmark, fs, data, name, fd, os.getpid())
    return fd


def _check_not_moved(fs: Fs, data: int) -> None:
    """Refuse a store that takes part in a move. Called after the open mark is made: a move writes its mark and then
    looks for open marks, so one of the two sees the other."""
    found = read_file(fs, data, MARK, MOST_BYTES)
    if found is not None:
        raise MigrationMarker.decoded(found[0]).refusal()


def _unmark(fs: Fs, data: int, name: str, fd: int, opened_by: int) -> None:
    """Remove the open mark. It stays beside a temporary file that cannot be removed, so that the next start looks for
    that one. A forked child that closes its copy of the store leaves its parent's mark."""
    if os.getpid() == opened_by and not fs.leftovers:
        drop_temp(fs, data, name, fd)
    else:
        close(fs, fd)
    fs.leftovers.clear()


def open_data(fs: Fs, root: Path) -> int:
    """Open `<root>/data`, created durably if it is missing."""
    fs.make_root(root)
    with closing(fs, fs.open_root(root)) as fd:
        check_root(fs.fstat(fd))
        make_folders(fs, fd, [DATA])
        return own_folder(fs, fd, DATA)


def _probe_locks(fs: Fs, folder: int) -> None:
    """Check that two descriptors of one file exclude each other. Where both can lock it (some network mounts) writes
    are unsafe.

    If the first one cannot lock it, locks work too: another broker is probing at this moment.
    """
    first, second = fs.open_lock(PROBE, dir_fd=folder), -1
    try:
        second = fs.open_lock(PROBE, dir_fd=folder)
        check_file(fs.fstat(first))
        excludes = not fs.try_lock(first) or not fs.try_lock(second)
    finally:
        close(fs, first)
        if second >= 0:
            close(fs, second)
    if not excludes:
        raise BrokerError(Code.STORE_UNAVAILABLE, note="file locks do not exclude each other here", lasting=True)
