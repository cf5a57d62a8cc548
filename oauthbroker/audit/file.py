"""The audit log on disk: one chain for all processes that share the store, one write per line, rotated when full.

Appending holds a flock on the file for some microseconds, and waits for another process without blocking the loop.
While no other process has written, the file ends where this process left it and the chain's head is known; else the
head is read from the file.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from fcntl import flock
from functools import lru_cache, partial
from pathlib import Path

from oauthbroker.audit import AuditEntry, rest_of
from oauthbroker.audit.anchor import Anchor, read_anchor, write_anchor
from oauthbroker.audit.chain import (
    MOST_LINE,
    START,
    AuditKeys,
    ChainHead,
    LogBegan,
    LogBroken,
    LogContinued,
    LogEntry,
    LogRotated,
    LogTorn,
    Spelling,
    Tail,
    last_of,
    next_line,
)
from oauthbroker.audit.folder import (
    LOCK_NOW,
    NAME,
    is_named,
    lock,
    named,
    numbers,
    open_log,
    open_to_read,
    read,
    tail_of,
    unlock,
)
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import on_thread

MOST_BYTES = 64 * 1024 * 1024
_UNKNOWN = -1
_NEWS = 64 * 1024  # bytes of other processes' lines that are worth reading line by line
PATIENCE_SECONDS = 2.0  # that entries wait for a process that holds the log
_SHORT, _LONG = 0.001, 0.05  # seconds between two tries to lock
Tell = Callable[..., None]


class LogHeld(BrokerError):
    """Another process holds the log. Call `wait`, then write again."""

    def __init__(self, wait: Callable[[float], Awaitable[None]]) -> None:
        super().__init__(Code.STORE_UNAVAILABLE, note="the audit log is held by another process")
        self.wait = wait


def _quiet(_event: str, **_words: object) -> None:
    """Ignore an event."""


class AuditFile:
    """`audit.jsonl` in a folder of the store, with its rotated files and its anchor. Belongs to one event loop.

    `trouble` is the code of the last write if it failed, else None.
    """

    def __init__(self, folder: Path, keys: AuditKeys, *, most_bytes: int = MOST_BYTES, tell: Tell = _quiet) -> None:
        """Open the log if it exists; the first entry creates it. Raises `storeUnavailable`."""
        self.folder, self.keys = folder, keys
        self.trouble: Code | None = None
        self._most, self._tell = most_bytes, tell
        self._spelt = Spelling()
        self._rest = lru_cache(maxsize=4096)(self._new_rest)
        self._end, self._seq, self._mac, self._file = _UNKNOWN, START.seq, START.mac, 1
        self._known: ChainHead | None = None  # the proven length of the chain; None until it was read
        self._anchored = START
        self._turned = False  # rotated or repaired: write the anchor soon
        self._closed = False
        self._held_up = False  # a stopped process holds the log: entries wait for it once
        self._waiting = asyncio.Lock()  # in order of arrival, so that entries keep it
        try:
            self._descriptor = open_log(folder, create=False)
        except OSError:
            self._closed = True
        if self._closed:
            raise BrokerError(Code.STORE_UNAVAILABLE, note="the audit log cannot be opened")

    def write(self, entry: AuditEntry, at: datetime) -> None:
        """Write an entry; blocks for some milliseconds at most. Raises `LogHeld` if a wait may help, else
        `storeUnavailable`."""
        rest, held = self._rest(entry), False
        if self._waiting.locked():  # the waiting ones come first
            raise LogHeld(self._wait)
        try:
            kept = self._append(rest, at)
        except BlockingIOError:
            kept, held = False, not self._held_up
        except OSError:
            kept = False
        if kept:
            self.trouble = None
            return
        if held:
            raise LogHeld(self._wait)
        self._end, self.trouble = _UNKNOWN, Code.AUDIT_UNAVAILABLE
        raise BrokerError(Code.STORE_UNAVAILABLE, note="the audit log cannot be written")

    async def _wait(self, until: float) -> None:
        """Wait until no other process holds the log, at most `until` this time of the loop. After that entries are
        refused at once, until the log is free."""
        loop, pause = asyncio.get_running_loop(), _SHORT
        async with self._waiting:
            while not (self._held_up or self._is_free()):
                if loop.time() >= until:
                    self._held_up = True
                    return
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONG)

    def _is_free(self) -> bool:
        """Tell whether the next entry is worth a try."""
        try:
            flock(self._descriptor, LOCK_NOW)
        except BlockingIOError:
            return False
        except (OSError, ValueError):  # closed meanwhile: the entry will be refused
            return True
        unlock(self._descriptor)
        return True

    def close(self) -> None:
        """Write an anchor for the last line and close the log."""
        self._closed = True
        descriptor, self._descriptor = self._descriptor, -1  # its number may soon name another file
        if descriptor >= 0:
            with suppress(OSError):
                self._anchor(descriptor, self._head, self._file)
            os.close(descriptor)

    async def keep_anchor(self) -> None:
        """Sync the log, then write its anchor. Call it every few seconds. Raises `storeUnavailable`."""
        if self._closed or self._descriptor < 0:
            return
        try:
            if not is_named(self.folder, self._descriptor):
                self._end = _UNKNOWN  # the file was moved: the next entry opens it anew
            await on_thread(partial(self._anchor_and_close, os.dup(self._descriptor), self._head, self._file))
            return
        except OSError:
            pass
        raise BrokerError(Code.STORE_UNAVAILABLE, note="the audit log's anchor cannot be written")

    def _new_rest(self, entry: AuditEntry) -> str:
        rest = rest_of(entry, self.keys.name)
        if len(rest) > MOST_LINE // 2:
            raise BrokerError(Code.REQUEST_INVALID, note="a name is too long for the audit log")
        return rest

    def _append(self, rest: str, at: datetime) -> bool:
        if self._closed:
            return False
        if self._descriptor < 0:
            self._descriptor = open_log(self.folder, create=True)
        try:
            flock(self._descriptor, LOCK_NOW)
        except BlockingIOError:
            if self._held_up or not lock(self._descriptor):
                raise
        self._held_up = False
        try:
            end = os.lseek(self._descriptor, 0, os.SEEK_END)
            if (end != self._end or end >= self._most) and not self._read_on(end):
                self._settle(at)
            self._add(rest, at)
        finally:
            unlock(self._descriptor)
        if self._turned:
            with suppress(OSError):  # the line is written; `keep_anchor` tries again and reports
                self._anchor(self._descriptor, self._head, self._file)
                self._turned = False
        return True

    @property
    def _head(self) -> ChainHead:
        return ChainHead(self._seq, self._mac)

    @_head.setter
    def _head(self, head: ChainHead) -> None:
        self._seq, self._mac = head.seq, head.mac

    def _add(self, rest: str, at: datetime, *, seq: int | None = None, before: bytes = b"") -> None:
        """Append one line, whole or not at all. `before`: the line break that a torn line lacks."""
        seq = self._seq + 1 if seq is None else seq
        line, mac = next_line(self.keys, self._mac, seq, self._spelt(at), rest)
        line = before + line if before else line
        written = os.write(self._descriptor, line)
        if written != len(line):
            os.ftruncate(self._descriptor, self._end)
            raise OSError("the disk took half a line")
        self._end, self._seq, self._mac = self._end + written, seq, mac

    def _add_words(self, entry: LogEntry, at: datetime, *, seq: int | None = None, before: bytes = b"") -> None:
        self._add(rest_of(entry), at, seq=seq, before=before)

    def _read_on(self, end: int) -> bool:
        """Read lines that other processes have just added. True if they follow ours; then the head is the last of
        them."""
        if self._end < 0 or not 0 < end - self._end <= _NEWS or end >= self._most:
            return False
        found = last_of(self.keys, self._mac, read(self._descriptor, self._end, end - self._end))
        if found is None:
            return False
        self._head, self._end = found, end
        return True

    # The rest is off the warm path: the log was rotated or changed, a writer died, or this process has just started.

    def _settle(self, at: datetime) -> None:
        """Read the chain's head at the end of the current file, and keep that file locked."""
        self._end = _UNKNOWN
        while True:
            self._reopen()
            anchor = self._look_back()
            end = os.lseek(self._descriptor, 0, os.SEEK_END)
            tail = tail_of(self._descriptor, end, self.keys, patient=self._known != START)
            if tail is not None and not tail.junk and "to" in tail.words:
                self._step_aside(tail)
                continue
            self._end = end
            self._go_on(tail, anchor, at)
            if self._end < self._most:
                break
            self._add_words(LogRotated(self._next_number()), at)
        self._known = self._head

    def _look_back(self) -> Anchor | None:
        """Return the anchor, and set `_known`, the proven length of the chain, from the anchor or from memory."""
        anchor = read_anchor(self.folder, self.keys)
        reached = [self._known or START, self._head, *([anchor.head] if anchor is not None else [])]
        self._known = max(reached, key=lambda head: head.seq)
        self._file = max(self._file, anchor.file if anchor is not None else 1)
        return anchor

    def _reopen(self) -> None:
        """Open the file with the current name; create it if there is none."""
        while not is_named(self.folder, self._descriptor):
            descriptor = open_log(self.folder, create=True)
            if not lock(descriptor):
                os.close(descriptor)
                raise BlockingIOError("the audit log is locked")
            old, self._descriptor = self._descriptor, descriptor
            unlock(old)
            os.close(old)

    def _step_aside(self, tail: Tail) -> None:
        """Rotate a full file: write its last line and rename it. Sync it here, since no later write will."""
        number = int(tail.words["to"])
        os.fsync(self._descriptor)
        if number in numbers(self.folder):
            number = self._next_number()
        (self.folder / NAME).rename(self.folder / named(number))
        self._file = number + 1

    def _next_number(self) -> int:
        return max([self._file, *(number + 1 for number in numbers(self.folder))])

    def _go_on(self, tail: Tail | None, anchor: Anchor | None, at: datetime) -> None:
        """Write the first line of an empty file, and a line about any change to the log."""
        known = self._known or START
        if tail is not None:
            self._head = found = tail.head
            self._tell_of_junk(tail.junk, at)
        elif self._end and known == START:
            self._begin_after_old_lines(at)
            return
        else:
            found = self._before() or START
            self._head = found if found != START else known
            self._begin_file(at)
        if anchor is None and known == START and found != START:
            self._break("anchor", 0, 0, at)
        elif known.seq > found.seq:
            self._break("cut", known.seq, 0, at)
        elif known.seq == found.seq and known.mac != found.mac:
            self._break("replaced", known.seq, 0, at)

    def _tell_of_junk(self, junk: bytes, at: datetime) -> None:
        before = b"" if junk.endswith(b"\n") else b"\n"
        if junk and b"\n" not in junk:
            self._tell("the audit log had half a line", bytes=len(junk))
            torn = LogTorn(len(junk), hashlib.sha256(junk).hexdigest(), self._head.mac.decode())
            self._add_words(torn, at, before=before)
        elif junk:
            self._break("foreign", 0, len(junk), at, before)

    def _break(self, kind: str, known: int, count: int, at: datetime, before: bytes = b"") -> None:
        self._tell("the audit log was changed", kind=kind)
        seq = max(known, self._head.seq) + 1
        self._add_words(LogBroken(kind, known, count, self._head.mac.decode()), at, seq=seq, before=before)
        self._turned = True

    def _begin_file(self, at: datetime) -> None:
        """Write the first line of the first or next file; `_head` is the line it follows."""
        self._file, after = self._next_number(), self._head.mac.decode()
        if self._head == START:
            self._first_anchor()
            self._add_words(LogBegan(self._file, 0, "", after), at)
        elif self._end:
            self._break("foreign", 0, self._end, at, before=b"\n")
        else:
            self._add_words(LogContinued(self._file, after), at)
            self._turned = True

    def _first_anchor(self) -> None:
        """Write an anchor before the first line: a chain without an anchor would look like a deleted one."""
        if not write_anchor(self.folder, self.keys, Anchor(START, self._file)):
            raise BlockingIOError("the anchor is locked")

    def _before(self) -> ChainHead | None:
        """Return the last line of the newest rotated file."""
        for number in sorted(numbers(self.folder), reverse=True):
            descriptor = open_to_read(self.folder / named(number))
            try:
                tail = tail_of(descriptor, os.lseek(descriptor, 0, os.SEEK_END), self.keys, patient=True)
            finally:
                os.close(descriptor)
            if tail is not None:
                return tail.head
        return None

    def _begin_after_old_lines(self, at: datetime) -> None:
        """Keep a log of a version without a chain, and begin the chain with its digest."""
        digest, offset, last = hashlib.sha256(), 0, b""
        while offset < self._end and (last := os.pread(self._descriptor, 1 << 20, offset)):
            digest.update(last)
            offset += len(last)
        self._first_anchor()
        self._head = START
        began = LogBegan(self._file, self._end, digest.hexdigest(), START.mac.decode())
        self._add_words(began, at, before=b"" if last.endswith(b"\n") else b"\n")

    def _anchor_and_close(self, descriptor: int, head: ChainHead, number: int) -> None:
        """Write the anchor on a thread, which survives a cancelled caller: the descriptor is the thread's own."""
        try:
            self._anchor(descriptor, head, number)
        finally:
            os.close(descriptor)

    def _anchor(self, descriptor: int, head: ChainHead, number: int) -> None:
        """Sync the log, then write the anchor. May run on a thread."""
        if head == self._anchored or self._known is None:
            return
        os.fsync(descriptor)
        if write_anchor(self.folder, self.keys, Anchor(head, number)):
            self._anchored = head
