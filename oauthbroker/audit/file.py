"""The audit log on disk: each process appends to a slot of its own, and all slots are one trail."""

from __future__ import annotations

import errno
import os
import weakref
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile

from oauthbroker.audit import AuditEntry
from oauthbroker.audit.chain import MOST_LINE, AuditKeys
from oauthbroker.audit.checkpoint import ChainCheckpoint, read_or_begin
from oauthbroker.audit.folder import NAME, SLOTS, folder_of, is_named, open_locked, open_to_read
from oauthbroker.audit.formatting import Naming, rest_of
from oauthbroker.audit.lines import AuditTrail
from oauthbroker.audit.port import AuditWriter, RepeatedWrite
from oauthbroker.audit.slot import Slot, SlotLost, Tell
from oauthbroker.audit.trail import FileTrail
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import on_thread
from oauthbroker.core.opened_here import OpenedHere

MOST_BYTES = 64 * 1024 * 1024
SCRATCH_BYTES = 64 * 1024  # a disk with so much room takes entries
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
_PASSING = frozenset({"EIO", "EMFILE", "ENFILE", "ENOMEM"})  # a later start may not meet them


class NoSlot(OSError):
    """Other processes hold all slots."""


def _quiet(_event: str, **_words: object) -> None:
    """Ignore an event."""


class AuditFile(AuditWriter):
    """The log in a folder of the store. Takes a slot for its first entry, and holds it until it is closed."""

    failure: Code | None = None  # of the last write if it failed, else of a change that was found, until the end

    def __init__(self, folder: Path, keys: AuditKeys, *, most_bytes: int = MOST_BYTES, tell: Tell = _quiet) -> None:
        """Check that the log can be opened; the first entry creates it. Raises `storeUnavailable`."""
        self.folder, self.keys = folder, keys
        self._most, self._tell = most_bytes, tell
        self._slot: Slot | None = None
        self._lasting: Code | None = None
        self._refused: OSError | None = None  # why the last entry that was refused was not written
        self._syncing: set[int] = set()  # descriptors of threads
        why = _why_not_opened(folder)
        self._opened_here = OpenedHere()
        if why:
            note = f"the audit log cannot be opened: {why}"
            raise BrokerError(Code.STORE_UNAVAILABLE, note=note, lasting=why not in _PASSING)
        _writers.add(self)

    def take(self, at: datetime) -> None:
        """Take a slot now, so that a broker without one does not start, and look for changes of its lines since the
        last process. Waits for two seconds at most.

        A disk that refuses is left to the first entry. Raises `storeUnavailable` if other processes hold all slots.
        """
        is_late = False
        try:
            slot = self._slot or self._take_slot()
            slot.look(read_or_begin(self.folder, self.keys, patient=True), at)
        except NoSlot:
            is_late = True
        except OSError:
            pass
        if is_late:
            raise BrokerError(Code.STORE_UNAVAILABLE, note=f"other processes hold all {SLOTS} slots of the audit log")

    def write(self, entry: AuditEntry, at: datetime) -> None:
        self._write(self._rest(entry), at)

    def repeated(self, entry: AuditEntry) -> RepeatedWrite:
        return partial(self._write, self._rest(entry))

    def _write(self, rest: str, at: datetime) -> None:
        try:
            try:
                (self._slot or self._take_slot()).append(rest, at)
            except SlotLost:  # another process has taken the slot: into another slot
                self._leave()
                self._take_slot().append(rest, at)
        except OSError as error:
            self._refused = error.with_traceback(None)  # its frames hold the entry
            why = errno.errorcode.get(error.errno or 0, type(error).__name__)
        else:
            self.failure = self._lasting
            return
        if self._slot is not None:
            self._slot.recheck()
        self.failure = Code.AUDIT_UNAVAILABLE
        raise BrokerError(Code.STORE_UNAVAILABLE, note=f"the audit log cannot be written: {why}")

    async def try_again(self) -> None:
        """Look whether a disk that was full has room. Only the next entry can tell that another fault has passed."""
        refused = self._refused
        if self.failure is not Code.AUDIT_UNAVAILABLE or not _is_for_room(refused):
            return
        with suppress(OSError):
            folder = (self._slot or self._take_slot()).folder
            await on_thread(partial(_take_room, folder))
            if refused is self._refused:
                self.failure = self._lasting

    async def keep_checkpoint(self) -> None:
        """Sync the log, then write the checkpoint. Call it every few seconds. Raises `storeUnavailable`."""
        slot = self._slot
        if slot is None:
            return
        with suppress(OSError):
            if not is_named(slot.folder, slot.descriptor):
                slot.recheck()  # the file was moved: the next entry opens it anew
            due = slot.due
            if due is not None:
                descriptor = os.dup(slot.descriptor)
                self._syncing.add(descriptor)
                await on_thread(partial(self._keep_and_close, slot, descriptor, due))
            return
        raise BrokerError(Code.STORE_UNAVAILABLE, note="the audit log's checkpoint cannot be written")

    def close(self) -> None:
        """Write the checkpoint with the last line, and give the slot to the next process. Waits for two seconds at
        most."""
        self._opened_here.end()
        with suppress(OSError):
            if self._slot is not None and (due := self._slot.due) is not None:
                self._slot.keep(self._slot.descriptor, due, patient=True)
        self._leave()

    def trail(self, name: Naming) -> AuditTrail:  # noqa: ARG002  (the log holds its own pseudonyms)
        return FileTrail(self.folder, self.keys)

    def after_fork(self) -> None:
        """Forget the slot in a child process, which must neither write to it nor keep it from others."""
        slot, self._slot = self._slot, None
        if slot is not None:
            self._syncing.add(slot.descriptor)
            slot.descriptor = -1
        for descriptor in self._syncing:
            with suppress(OSError):
                os.close(descriptor)
        self._syncing.clear()

    def _rest(self, entry: AuditEntry) -> str:
        rest = rest_of(entry, self.keys.name)
        if len(rest) > MOST_LINE // 2:
            raise BrokerError(Code.REQUEST_INVALID, note="a name is too long for the audit log")
        return rest

    def _take_slot(self) -> Slot:
        """Take the first slot that no other process holds, and keep it. Raises OSError, NoSlot if there is none, and
        `storeUnavailable` where the log is not open."""
        self._opened_here.check_open()
        for number in range(SLOTS):
            descriptor = open_locked(folder_of(self.folder, number))
            if descriptor is not None:
                self._slot = Slot(
                    root=self.folder,
                    number=number,
                    descriptor=descriptor,
                    keys=self.keys,
                    most_bytes=self._most,
                    tell=self._tell,
                    changed=self._changed,
                )
                return self._slot
        raise NoSlot("no slot is free")

    def _changed(self, kind: str) -> None:
        self._tell("the audit log was changed", kind=kind)
        self.failure = self._lasting = Code.AUDIT_CHANGED

    def _leave(self) -> None:
        slot, self._slot = self._slot, None
        if slot is not None:
            slot.leave()

    def _keep_and_close(self, slot: Slot, descriptor: int, due: ChainCheckpoint) -> None:
        """Write the checkpoint on a thread, which survives a cancelled caller: the descriptor is the thread's own."""
        try:
            slot.keep(descriptor, due, patient=True)
        finally:
            self._syncing.discard(descriptor)
            os.close(descriptor)


_writers: weakref.WeakSet[AuditFile] = weakref.WeakSet()


def _after_fork() -> None:
    for writer in list(_writers):
        writer.after_fork()


os.register_at_fork(after_in_child=_after_fork)


def _is_for_room(error: OSError | None) -> bool:
    """Return whether an entry was refused for want of room: on the disk, or for one more process."""
    return isinstance(error, NoSlot) or (error is not None and error.errno in _FULL)


def _take_room(folder: Path) -> None:
    """Write and remove a file beside the log. Raises OSError while the disk has no room for it."""
    with TemporaryFile(dir=folder, buffering=0) as scratch:
        if os.write(scratch.fileno(), bytes(SCRATCH_BYTES)) != SCRATCH_BYTES:
            raise OSError(errno.ENOSPC, "the disk took a part")


def _why_not_opened(folder: Path) -> str:
    """Return why the log cannot be read; empty for a plain file, and for one that does not exist yet."""
    try:
        descriptor = open_to_read(folder / NAME, links=1)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, "not a plain file")
    os.close(descriptor)
    return ""
