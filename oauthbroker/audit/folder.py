"""The audit log's files: how they are called, opened, locked, and read from their end."""

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
_OLD_LOG = 1 << 20  # bytes without a line of the chain: a log of a version that kept none
_PAUSES = (0.00005,) * 40 + (0.001,) * 2000  # seconds; whoever holds the lock is about to write one line, or to rotate


def named(number: int) -> str:
    return f"audit-{number:06}.jsonl"


def numbers(folder: Path) -> list[int]:
    """Those of the rotated files that are there, in no order."""
    found = (_ROTATED.fullmatch(name) for name in os.listdir(folder))  # noqa: PTH208 (names, not paths)
    return [int(match[1]) for match in found if match is not None]


def open_log(folder: Path, *, create: bool) -> int:
    """A descriptor to append to and read from; -1 where there is no log and none is to be made. Raises OSError."""
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
    """Whether this is still the file that others would write to. Raises OSError."""
    try:
        there = os.lstat(folder / NAME)
    except FileNotFoundError:
        return False
    here = os.fstat(descriptor)
    return (there.st_ino, there.st_dev) == (here.st_ino, here.st_dev)


def lock(descriptor: int) -> bool:
    """Holds the file for one line; False when somebody has held it for two seconds (a process that was stopped)."""
    return _try(descriptor) or any(_try_after(descriptor, pause) for pause in _PAUSES)


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
    """By word, not only by closing: a child that was forked meanwhile may share the descriptor."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def settled_size(descriptor: int) -> int:
    """The file's size while nobody is in the middle of a line."""
    held = lock(descriptor)
    try:
        return os.lseek(descriptor, 0, os.SEEK_END)
    finally:
        if held:
            unlock(descriptor)


def files_of(folder: Path) -> list[Path]:
    """The log's files that are there, the oldest first."""
    rotated = [folder / named(number) for number in sorted(numbers(folder))]
    return [*rotated, folder / NAME] if (folder / NAME).exists() else rotated


def tail_of(descriptor: int, end: int, keys: AuditKeys, *, patient: bool) -> Tail | None:
    """The last genuine line before `end`. `patient`: there must be one, so that a long way back is worth it."""
    size = _BLOCK
    while True:
        size = min(size, end)
        tail = last_genuine(keys, read(descriptor, end - size, size))
        if tail is not None or size == end or (size > _OLD_LOG and not patient):
            return tail
        size *= 8


def read(descriptor: int, offset: int, count: int) -> bytes:
    """Up to `count` bytes; fewer at the file's end."""
    parts = []
    while count and (part := os.pread(descriptor, count, offset)):
        parts.append(part)
        offset, count = offset + len(part), count - len(part)
    return b"".join(parts)
