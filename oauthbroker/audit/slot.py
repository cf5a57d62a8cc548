"""One slot of the audit log: a chain that one process appends to, one write per line, in further files when full.

The process holds a flock on the slot's file while it lives, so that no entry takes a lock. It reads the chain's head
from the file once, and again if the file does not end where its last line ended.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from filelock import unlock_descriptor

from oauthbroker.audit.chain import (
    START,
    AuditKeys,
    ChainHead,
    LogBegan,
    LogBroken,
    LogContinued,
    LogEntry,
    LogRotated,
    LogTorn,
    Tail,
    next_line,
)
from oauthbroker.audit.checkpoint import (
    ChainCheckpoint,
    ChainCheckpoints,
    LogCheckpoint,
    read_or_begin,
    write_checkpoint,
)
from oauthbroker.audit.folder import (
    NAME,
    folder_of,
    is_named,
    named,
    numbers,
    open_locked,
    open_to_read,
    read,
    slots_with_lines,
    tail_of,
)
from oauthbroker.audit.formatting import rest_of
from oauthbroker.core.clock import Spelling
from oauthbroker.core.durable_sync import sync

_UNKNOWN = -1
Tell = Callable[..., None]
Changed = Callable[[str], None]
"""Takes the kind of a change that was found in the log."""


class SlotLost(OSError):
    """The slot's file was moved away, and another process has taken the slot."""


class Slot:
    """A slot that this process holds. `turned`: the checkpoint should be written soon."""

    __slots__ = (
        "_chain", "_changed", "_end", "_file", "_keys", "_known", "_mac", "_most", "_root_keys", "_seq", "_spelt",
        "_tell", "chains", "descriptor", "folder", "number", "root", "turned",
    )  # fmt: skip

    def __init__(
        self,
        *,
        root: Path,
        number: int,
        descriptor: int,
        keys: AuditKeys,
        most_bytes: int,
        tell: Tell,
        changed: Changed,
    ) -> None:
        """`descriptor` is the slot's locked file."""
        self.root, self.number, self.descriptor = root, number, descriptor
        self.folder = folder_of(root, number)
        self._root_keys, self._keys = keys, keys.of_slot(number)
        self._chain, self._spelt = self._keys.chain, Spelling()
        self._most, self._tell, self._changed = most_bytes, tell, changed
        self._end, self._seq, self._mac, self._file = _UNKNOWN, START.seq, START.mac, 1
        self._known: ChainHead | None = None  # the proven length of the chain; None until it was read
        self.chains: ChainCheckpoints = {}  # what this process knows: the log's checkpoint never moves back
        self.turned = True

    def append(self, rest: str, at: datetime) -> None:
        """Append an entry's line. Raises OSError; then it is not there."""
        end = os.lseek(self.descriptor, 0, os.SEEK_END)
        if end != self._end or end >= self._most:
            self._settle(at)
        self._add(rest, at)
        if self.turned:
            with suppress(OSError):  # the line is written; `keep_checkpoint` tries again and reports
                self.keep(self.descriptor, ChainCheckpoint(self._head, self._file), patient=False)
                self.turned = False

    def look(self, checkpoint: LogCheckpoint | None, at: datetime) -> None:
        """Look for changes, as before the first entry, which begins a slot that has no line yet. Raises OSError; then
        the first entry looks again."""
        try:
            if checkpoint is None or {self.number} & {*checkpoint.chains, *slots_with_lines(self.root)}:
                self._settle(at)
        except OSError:
            self.recheck()
            raise

    def recheck(self) -> None:
        """Read the chain's head anew before the next entry."""
        self._end = _UNKNOWN

    @property
    def due(self) -> ChainCheckpoint | None:
        """Return the chain's checkpoint that the log's lacks."""
        now = ChainCheckpoint(self._head, self._file)
        return None if self._known is None or self.chains.get(self.number) == now else now

    def keep(self, descriptor: int, now: ChainCheckpoint, *, patient: bool) -> None:
        """Sync the log, then write the checkpoint. May run on a thread. Raises OSError."""
        sync(descriptor)
        known = {**self.chains, self.number: now}
        self.chains = write_checkpoint(self.root, self._root_keys, known, slot=self.number, patient=patient).chains

    def leave(self) -> None:
        """Give the slot to the next process."""
        descriptor, self.descriptor = self.descriptor, -1  # its number may soon name another file
        if descriptor >= 0:
            unlock_descriptor(descriptor)  # closing is not enough: a forked child may share the descriptor
            os.close(descriptor)

    @property
    def _head(self) -> ChainHead:
        return ChainHead(self._seq, self._mac)

    @_head.setter
    def _head(self, head: ChainHead) -> None:
        self._seq, self._mac = head.seq, head.mac

    def _add(self, rest: str, at: datetime, *, seq: int = 0, before: bytes = b"") -> None:
        """Append one line, whole or not at all. `before`: the line break that a torn line lacks."""
        seq = seq or self._seq + 1
        line, mac = next_line(self._chain, self._mac, seq, self._spelt(at), rest)
        line = before + line if before else line
        written = os.write(self.descriptor, line)
        if written != len(line):
            os.ftruncate(self.descriptor, self._end)
            raise OSError("the disk took half a line")
        self._end, self._seq, self._mac = self._end + written, seq, mac

    def _add_words(self, entry: LogEntry, at: datetime, *, seq: int = 0, before: bytes = b"") -> None:
        self._add(rest_of(entry), at, seq=seq, before=before)

    # The rest is off the warm path: the log was rotated or changed, or this process has just taken the slot.

    def _settle(self, at: datetime) -> None:
        """Read the chain's head at the end of the current file."""
        self._end = _UNKNOWN
        while True:
            self._reopen()
            checkpoint = read_or_begin(self.root, self._root_keys)
            self._look_back(checkpoint)
            end = os.lseek(self.descriptor, 0, os.SEEK_END)
            tail = tail_of(self.descriptor, end, self._keys, patient=self._known != START)
            if tail is not None and not tail.junk and "to" in tail.words:
                self._step_aside(tail)
                continue
            self._end = end
            self._go_on(tail, is_robbed=checkpoint is None, at=at)
            if self._end < self._most:
                break
            self._add_words(LogRotated(to=self._next_number()), at)
        self._known, self.turned = self._head, True

    def _look_back(self, checkpoint: LogCheckpoint | None) -> None:
        """Set `_known`, the proven length of the chain, from the checkpoint or from memory."""
        chain_checkpoint = checkpoint.of(self.number) if checkpoint is not None else None
        reached = [self._known or START, self._head, *([chain_checkpoint.head] if chain_checkpoint is not None else [])]
        self._known = max(reached, key=lambda head: head.seq)
        self._file = max(self._file, chain_checkpoint.file if chain_checkpoint is not None else 1)

    def _reopen(self) -> None:
        """Open and lock the file with the current name; create it if there is none."""
        if is_named(self.folder, self.descriptor):
            return
        descriptor = open_locked(self.folder)
        if descriptor is None:
            raise SlotLost("another process has taken the slot")
        old, self.descriptor = self.descriptor, descriptor
        unlock_descriptor(old)
        os.close(old)

    def _step_aside(self, tail: Tail) -> None:
        """Rotate a full file: write its last line and rename it. Sync it here, since no later write will."""
        number = int(tail.words["to"])
        sync(self.descriptor)
        if number in numbers(self.folder):
            number = self._next_number()
        (self.folder / NAME).rename(self.folder / named(number))
        self._file = number + 1

    def _next_number(self) -> int:
        return max([self._file, *(number + 1 for number in numbers(self.folder))])

    def _go_on(self, tail: Tail | None, *, is_robbed: bool, at: datetime) -> None:
        """Write the first line of an empty file, and a line about any change to the log. `is_robbed`: the checkpoint is
        not there."""
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
        if is_robbed and known == START:
            self._break("checkpoint", 0, 0, at)
        elif known.seq > found.seq:
            self._break("cut", known.seq, 0, at)
        elif known.seq == found.seq and known.mac != found.mac:
            self._break("replaced", known.seq, 0, at)

    def _tell_of_junk(self, junk: bytes, at: datetime) -> None:
        before = b"" if junk.endswith(b"\n") else b"\n"
        if junk and b"\n" not in junk:
            self._tell("the audit log had half a line", bytes=len(junk))
            torn = LogTorn(bytes=len(junk), digest=hashlib.sha256(junk).hexdigest(), after=self._head.mac.decode())
            self._add_words(torn, at, before=before)
        elif junk:
            self._break("foreign", 0, len(junk), at, before)

    def _break(self, kind: str, known: int, count: int, at: datetime, before: bytes = b"") -> None:
        self._changed(kind)
        seq = max(known, self._head.seq) + 1
        self._add_words(
            LogBroken(kind=kind, known=known, bytes=count, after=self._head.mac.decode()), at, seq=seq, before=before
        )

    def _begin_file(self, at: datetime) -> None:
        """Write the first line of the first or next file; `_head` is the line it follows."""
        self._file, after = self._next_number(), self._head.mac.decode()
        if self._head == START:
            self._add_words(LogBegan(file=self._file, bytes=0, digest="", after=after), at)
        elif self._end:
            self._break("foreign", 0, self._end, at, before=b"\n")
        else:
            self._add_words(LogContinued(file=self._file, after=after), at)

    def _before(self) -> ChainHead | None:
        """Return the last line of the newest rotated file."""
        for number in sorted(numbers(self.folder), reverse=True):
            descriptor = open_to_read(self.folder / named(number))
            try:
                tail = tail_of(descriptor, os.lseek(descriptor, 0, os.SEEK_END), self._keys, patient=True)
            finally:
                os.close(descriptor)
            if tail is not None:
                return tail.head
        return None

    def _begin_after_old_lines(self, at: datetime) -> None:
        """Keep a log of a version without a chain, and begin the chain with its digest."""
        digest, offset, last = hashlib.sha256(), 0, b""
        while offset < self._end and (last := read(self.descriptor, offset, 1 << 20)):
            digest.update(last)
            offset += len(last)
        write_checkpoint(self.root, self._root_keys, self.chains, slot=self.number, patient=False)
        self._head = START
        began = LogBegan(file=self._file, bytes=self._end, digest=digest.hexdigest(), after=START.mac.decode())
        self._add_words(began, at, before=b"" if last.endswith(b"\n") else b"\n")
