"""The audit log's files: names, opening, locking, and reading from the end."""

from __future__ import annotations

import fcntl
import os
import re
import select
import stat
from pathlib import Path

from oauthbroker.audit.chain import AuditKeys, Tail, last_genuine

NAME = "audit.jsonl"
LOCK_NOW = fcntl.LOCK_EX | fcntl.LOCK_NB
_ROTATED = re.compile(r"audit-(\d{6,9})\.jsonl")
_SAFE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_BLOCK = 4096
_OLD_LOG = 1 << 20  # bytes without a chained line: the log of a version without a chain
_PAUSES = (0.00005,) * 40  # seconds; the holder of the lock is about to write one line
_LONG_PAUSES = (0.001,) * 2000  # or is rotating the file, or was stopped


def named(number: int) -> str:
    return f"audit-{number:06}.jsonl"


def numbers(folder: Path) -> list[int]:
    """Return the numbers of the rotated files, in no order."""
    found = (_ROTATED.fullmatch(name) for name in os.listdir(folder))  # noqa: PTH208 (names, not paths)
    return [int(match[1]) for match in found if match is not None]


def open_log(folder: Path, *, create: bool) -> int:
    """Open the log to append and read; -1 if there is none and `create` is false. Raises OSError."""
    flags = os.O_RDWR | os.O_APPEND | _SAFE | (os.O_CREAT if create else 0)
    try:
        return _plain(os.open(folder / NAME, flags, 0o600), links=1)
    except FileNotFoundError:
        if create:
            raise
        return -1


def open_to_read(path: Path) -> int:
    return _plain(os.open(path, os.O_RDONLY | _SAFE))


def _plain(descriptor: int, links: int = 2**31) -> int:
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


def lock(descriptor: int, *, patient: bool = False) -> bool:
    """Lock the file for one line. False if another process holds it for two milliseconds, or for two seconds with
    `patient`: on a thread, or without an event loop."""
    pauses = _PAUSES + _LONG_PAUSES if patient else _PAUSES
    return _try(descriptor) or any(_try_after(descriptor, pause) for pause in pauses)


def _try_after(descriptor: int, pause: float) -> bool:
    select.select((), (), (), pause)
    return _try(descriptor)


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, LOCK_NOW)
    except BlockingIOError:
        return False
    return True


def unlock(descriptor: int) -> None:
    """Unlock explicitly: closing is not enough, since a forked child may share the descriptor."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def settled_size(descriptor: int) -> int:
    """Return the file's size while no process is in the middle of a line."""
    held = lock(descriptor, patient=True)
    try:
        return os.lseek(descriptor, 0, os.SEEK_END)
    finally:
        if held:
            unlock(descriptor)


def files_of(folder: Path) -> list[Path]:
    """Return the log's existing files, the oldest first."""
    rotated = [folder / named(number) for number in sorted(numbers(folder))]
    return [*rotated, folder / NAME] if (folder / NAME).exists() else rotated


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
