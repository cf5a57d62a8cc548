"""The audit log's files: the folders of its slots, names, opening, locking, and reading from the end.

Slot 0 is the log of the versions that had one chain, in the same place. The others lie in `audit/001` and so on.
"""

from __future__ import annotations

import os
import re
import select
import stat
from pathlib import Path

from filelock import lock_descriptor

from oauthbroker.audit.chain import AuditKeys, Tail, last_genuine
from oauthbroker.core.durable_sync import sync

NAME = "audit.jsonl"
SLOTS = 128  # 64 workers are the most of one server, and its successor may start before it has ended
_FOLDER = "audit"
_ROTATED = re.compile(r"audit-(\d{6,9})\.jsonl")
_SAFE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_ANY = 2**31
_BLOCK = 4096
_OLD_LOG = 1 << 20  # bytes without a chained line: the log of a version without a chain
_RENAMES = 3  # tries to lock a log that is renamed meanwhile
_PAUSES = (0.001,) * 2000  # seconds; the holder of the lock is syncing the disk, or was stopped


def folder_of(root: Path, slot: int) -> Path:
    return root / _FOLDER / f"{slot:03}" if slot else root


def existing_slots(root: Path) -> list[int]:
    """Return the slots that have a folder; slot 0 always has one."""
    try:
        names = set(os.listdir(root / _FOLDER))  # noqa: PTH208 (names, not paths)
    except FileNotFoundError:
        return [0]
    return [0, *(slot for slot in range(1, SLOTS) if f"{slot:03}" in names)]


def is_unused(root: Path) -> bool:
    """Return whether no broker has opened this folder `data` yet: it is not there, or has a keyring alone."""
    try:
        return not {*os.listdir(root)} - {"keyring"}  # noqa: PTH208 (names, not paths)
    except FileNotFoundError:
        return True


def slots_with_lines(root: Path) -> list[int]:
    """Return the slots that have a byte of a log."""
    files = {slot: files_of(folder_of(root, slot)) for slot in existing_slots(root)}
    return [slot for slot, paths in files.items() if any(_has_bytes(path) for path in paths)]


def _has_bytes(path: Path) -> bool:
    """Return whether a listed file has content. One that another process has rotated away meanwhile had some."""
    try:
        return path.stat().st_size > 0
    except FileNotFoundError:
        return True


def named(number: int) -> str:
    return f"audit-{number:06}.jsonl"


def numbers(folder: Path) -> list[int]:
    """Return the numbers of the rotated files, in no order."""
    found = (_ROTATED.fullmatch(name) for name in os.listdir(folder))  # noqa: PTH208 (names, not paths)
    return [int(match[1]) for match in found if match is not None]


def files_of(folder: Path) -> list[Path]:
    """Return a slot's existing files, the oldest first."""
    rotated = [folder / named(number) for number in sorted(numbers(folder))]
    return [*rotated, folder / NAME] if (folder / NAME).exists() else rotated


def open_locked(folder: Path) -> int | None:
    """Open a slot's log to append and read, created if missing, and lock it. None if another process holds it. Raises
    OSError."""
    for missing in (each for each in (folder.parent, folder) if not each.exists()):
        missing.mkdir(mode=0o700, exist_ok=True)
    for _ in range(_RENAMES):
        descriptor = _plain(os.open(folder / NAME, os.O_RDWR | os.O_APPEND | os.O_CREAT | _SAFE, 0o600), links=1)
        locked = lock_descriptor(descriptor, blocking=False)
        if locked and is_named(folder, descriptor):
            return descriptor
        os.close(descriptor)
        if not locked:
            break
    return None


def open_to_read(path: Path, *, links: int = _ANY) -> int:
    return _plain(os.open(path, os.O_RDONLY | _SAFE), links)


def open_to_change(path: Path) -> int:
    """Open a file that is overwritten in place, created if missing."""
    return _plain(os.open(path, os.O_RDWR | os.O_CREAT | _SAFE, 0o600), _ANY)


def _plain(descriptor: int, links: int) -> int:
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and found.st_nlink <= links:
        return descriptor
    os.close(descriptor)
    raise OSError("not a plain file")


def is_named(folder: Path, descriptor: int) -> bool:
    """Tell whether the name still leads to this file. Raises OSError."""
    try:
        there = os.lstat(folder / NAME)
    except FileNotFoundError:
        return False
    here = os.fstat(descriptor)
    return (there.st_ino, there.st_dev) == (here.st_ino, here.st_dev)


def lock(descriptor: int, *, patient: bool) -> bool:
    """Lock a file. False if another process holds it; `patient`, on a thread or without an event loop: for two
    seconds."""
    locked = lock_descriptor(descriptor, blocking=False)
    for pause in _PAUSES if patient else ():
        if locked:
            break
        select.select((), (), (), pause)
        locked = lock_descriptor(descriptor, blocking=False)
    return locked


def sync_names(root: Path, slot: int) -> None:
    """Sync the folders above a slot's files: a file's name must survive a power failure as its content does. Also of
    old files: the sync of the process that made them may have failed."""
    for folder in dict.fromkeys((folder_of(root, slot), folder_of(root, slot).parent, root) if slot else (root,)):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            sync(descriptor)
        finally:
            os.close(descriptor)


def tail_of(descriptor: int, end: int, keys: AuditKeys, *, patient: bool) -> Tail | None:
    """Return the last genuine line before `end`. `patient`: there must be one, so search the whole file."""
    size = _BLOCK
    while True:
        size = min(size, end)
        tail = last_genuine(keys, read(descriptor, end - size, size))
        if tail is not None or size == end or (size > _OLD_LOG and not patient):
            return tail
        size *= 8


def read(descriptor: int, offset: int, count: int) -> bytes:
    """Read up to `count` bytes; fewer at the file's end."""
    parts = []
    while count and (part := os.pread(descriptor, count, offset)):
        parts.append(part)
        offset, count = offset + len(part), count - len(part)
    return b"".join(parts)
