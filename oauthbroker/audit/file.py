"""The audit log on disk: one chain for all processes that share the store, one write a line, further files when full.

Appending holds a flock on the file for some microseconds. As long as nobody else has written, the end of the file is
where we left it and the chain's head is known; else it is read from there.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from fcntl import flock
from functools import lru_cache
from pathlib import Path

from oauthbroker.audit.anchor import Anchor, read_anchor, write_anchor
from oauthbroker.audit.chain import (
    MOST_LINE,
    START,
    AuditKeys,
    Head,
    LogBegan,
    LogBroken,
    LogContinued,
    LogEntry,
    LogRotated,
    LogTorn,
    Spelling,
    Tail,
    last_of,
    log_rest,
    next_line,
)
from oauthbroker.audit.entries import Entry, rest_of
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
from oauthbroker.errors import BrokerError, Code

MOST_BYTES = 64 * 1024 * 1024
_UNKNOWN = -1
_NEWS = 64 * 1024  # bytes of others that are worth reading line by line
Tell = Callable[..., None]


def _quiet(_event: str, **_words: object) -> None:
    """Nobody listens."""


class AuditFile:
    """`audit.jsonl` in a folder of the store, with its rotated files and its anchor. Belongs to one event loop.

    `trouble` is the code of the last write that failed, None after one that did not.
    """

    def __init__(self, folder: Path, keys: AuditKeys, *, most_bytes: int = MOST_BYTES, tell: Tell = _quiet) -> None:
        """Opens the log where there is one; the first entry makes it. Raises `storeUnavailable`."""
        self.folder, self.keys = folder, keys
        self.trouble: Code | None = None
        self._most, self._tell = most_bytes, tell
        self._spelt = Spelling()
        self._rest = lru_cache(maxsize=4096)(self._new_rest)
        self._end, self._seq, self._mac, self._file = _UNKNOWN, START.seq, START.mac, 1
        self._known: Head | None = None  # how far the chain surely reached; None before we looked
        self._anchored = START
        self._turned = False  # the chain took a turn, of which the anchor has to know soon
        self._closed = False
        self._held_up = False  # a process that was stopped holds the log: the event loop waits for it once
        try:
            self._descriptor = open_log(folder, create=False)
        except OSError:
            self._closed = True
        if self._closed:
            raise BrokerError(Code.STORE_UNAVAILABLE, note="the audit log cannot be opened")

    def write(self, entry: Entry, at: datetime) -> None:
        rest = self._rest(entry)
        try:
            kept = self._append(rest, at)
        except OSError:
            kept = False
        if kept:
            self.trouble = None
            return
        self._end, self.trouble = _UNKNOWN, Code.AUDIT_UNAVAILABLE
        raise BrokerError(Code.STORE_UNAVAILABLE, note="the audit log cannot be written")

    def close(self) -> None:
        """Leaves an anchor at the last line."""
        self._closed = True
        descriptor, self._descriptor = self._descriptor, -1  # the number may soon name another file
        if descriptor >= 0:
            with suppress(OSError):
                self._anchor(descriptor, self._head, self._file)
            os.close(descriptor)

    async def keep_anchor(self) -> None:
        """To be called every few seconds: the log reaches the disk, then its anchor. Raises `storeUnavailable`."""
        if self._closed or self._descriptor < 0:
            return
        try:
            if not is_named(self.folder, self._descriptor):
                self._end = _UNKNOWN  # somebody moved the file: the next entry finds out what is there
            await asyncio.to_thread(self._anchor_and_close, os.dup(self._descriptor), self._head, self._file)
            return
        except OSError:
            pass
        raise BrokerError(Code.STORE_UNAVAILABLE, note="the audit log's anchor cannot be written")

    def _new_rest(self, entry: Entry) -> str:
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
                self._held_up = True
                return False
        self._held_up = False
        try:
            end = os.lseek(self._descriptor, 0, os.SEEK_END)
            if (end != self._end or end >= self._most) and not self._read_on(end):
                self._settle(at)
            self._add(rest, at)
        finally:
            unlock(self._descriptor)
        if self._turned:
            with suppress(OSError):  # the line is kept; `keep_anchor` tries again, and tells
                self._anchor(self._descriptor, self._head, self._file)
                self._turned = False
        return True

    @property
    def _head(self) -> Head:
        return Head(self._seq, self._mac)

    @_head.setter
    def _head(self, head: Head) -> None:
        self._seq, self._mac = head.seq, head.mac

    def _add(self, rest: str, at: datetime, *, seq: int | None = None, before: bytes = b"") -> None:
        """One line, whole or not at all. `before`: the line break that a torn one lacks."""
        seq = self._seq + 1 if seq is None else seq
        line, mac = next_line(self.keys, self._mac, seq, self._spelt(at), rest)
        line = before + line if before else line
        written = os.write(self._descriptor, line)
        if written != len(line):
            os.ftruncate(self._descriptor, self._end)
            raise OSError("the disk took half a line")
        self._end, self._seq, self._mac = self._end + written, seq, mac

    def _add_words(self, entry: LogEntry, at: datetime, *, seq: int | None = None, before: bytes = b"") -> None:
        self._add(log_rest(entry), at, seq=seq, before=before)

    def _read_on(self, end: int) -> bool:
        """Whether others have just added lines to ours; then the chain stands at the last of them."""
        if self._end < 0 or not 0 < end - self._end <= _NEWS or end >= self._most:
            return False
        found = last_of(self.keys, self._mac, read(self._descriptor, self._end, end - self._end))
        if found is None:
            return False
        self._head, self._end = found, end
        return True

    # What follows is off the warm path: somebody rotated or changed the log, died over it, or we have just come.

    def _settle(self, at: datetime) -> None:
        """The chain's head as it is now, at the end of the file that bears the name; holds that file's lock then."""
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
        """The anchor; and `_known`, how far the chain surely reached: by the anchor, or by our own memory."""
        anchor = read_anchor(self.folder, self.keys)
        reached = [self._known or START, self._head, *([anchor.head] if anchor is not None else [])]
        self._known = max(reached, key=lambda head: head.seq)
        self._file = max(self._file, anchor.file if anchor is not None else 1)
        return anchor

    def _reopen(self) -> None:
        """From the file that we hold to the one that bears the name; made where there is none."""
        while not is_named(self.folder, self._descriptor):
            descriptor = open_log(self.folder, create=True)
            if not lock(descriptor):
                os.close(descriptor)
                raise OSError("the audit log is locked")
            old, self._descriptor = self._descriptor, descriptor
            unlock(old)
            os.close(old)

    def _step_aside(self, tail: Tail) -> None:
        """The file is full, and says so in its last line: it gets its number. Nobody will sync it after us."""
        number = int(tail.words["to"])
        os.fsync(self._descriptor)
        if number in numbers(self.folder):
            number = self._next_number()
        (self.folder / NAME).rename(self.folder / named(number))
        self._file = number + 1

    def _next_number(self) -> int:
        return max([self._file, *(number + 1 for number in numbers(self.folder))])

    def _go_on(self, tail: Tail | None, anchor: Anchor | None, at: datetime) -> None:
        """Begins the file where it is empty, and says what has happened to the log, if anything has."""
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
        """The first line of the first file, or of the next one; `_head` is what it follows."""
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
        """Before the first line: a chain without an anchor would look as if somebody had taken it away."""
        if not write_anchor(self.folder, self.keys, Anchor(START, self._file)):
            raise OSError("the anchor is locked")

    def _before(self) -> Head | None:
        """The last line of the newest rotated file."""
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
        """A log of a version that kept no chain: it stays, vouched for as it is now."""
        digest, offset, last = hashlib.sha256(), 0, b""
        while offset < self._end and (last := os.pread(self._descriptor, 1 << 20, offset)):
            digest.update(last)
            offset += len(last)
        self._first_anchor()
        self._head = START
        began = LogBegan(self._file, self._end, digest.hexdigest(), START.mac.decode())
        self._add_words(began, at, before=b"" if last.endswith(b"\n") else b"\n")

    def _anchor_and_close(self, descriptor: int, head: Head, number: int) -> None:
        """On a thread, which outlives a caller that was cancelled: the descriptor is its own."""
        try:
            self._anchor(descriptor, head, number)
        finally:
            os.close(descriptor)

    def _anchor(self, descriptor: int, head: Head, number: int) -> None:
        """May run on a thread. What is anchored is on the disk before."""
        if head == self._anchored or self._known is None:
            return
        os.fsync(descriptor)
        if write_anchor(self.folder, self.keys, Anchor(head, number)):
            self._anchored = head
