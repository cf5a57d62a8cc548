"""Read, write, remove and set aside single entries as files.

Plain blocking functions; `file_store` chooses the thread and holds the lock.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.file.files import close, create_whole, drop_temp, new_temp, read_file, write_file
from oauthbroker.store.file.folders import Folders
from oauthbroker.store.file.fs import Fs
from oauthbroker.store.file.locks import HeldLock
from oauthbroker.store.file.stamp import FolderStamp, Stamp
from oauthbroker.store.file.tags import TagFiles
from oauthbroker.store.keys import Keyring
from oauthbroker.store.names import fingerprint
from oauthbroker.store.port import Conflict, Entry, Key, Tag
from oauthbroker.store.seal import HEADER, MAX_RECORD, record_size

_MOST_ASIDE = 256  # damaged copies that are kept, so that a repeated fault does not fill the disk
_UNOPENED = frozenset({Code.RECORD_CORRUPT, Code.RECORD_MISPLACED, Code.KEY_UNKNOWN})


@dataclass(frozen=True, slots=True)
class Taken:
    """Disk space under a temporary name, locked while its writer lives."""

    temp: str
    fd: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """The next version of an entry, durable under a temporary name, locked while its writer lives."""

    key: Key
    temp: str
    fd: int
    generation: int
    body: bytes
    header: bytes
    tags: Collection[Tag]


class EntryFiles:
    """The entry files of one store. Methods raise OSError, BrokerError and Conflict."""

    __slots__ = ("_folders", "_fs", "_kinds", "_ring", "_synced", "tags")

    def __init__(self, fs: Fs, folders: Folders, ring: Keyring, kinds: Sequence[str]) -> None:
        self._fs, self._folders, self._ring, self._kinds = fs, folders, ring, tuple(kinds)
        self.tags = TagFiles(fs, folders.tags)
        self._synced: dict[str, FolderStamp] = {}

    def read(self, key: Key) -> Entry | None:
        """Return the entry, opened. Takes no lock: a version is replaced whole or not at all."""
        found = read_file(self._fs, self._folders.by_kind[key.kind], key.name, MAX_RECORD)
        if found is None:
            return None
        record, stat = found
        generation, body = self._ring.unseal(key.kind, key.name, record, kinds=self._kinds)
        return Entry(key, generation, body, Stamp(stat, record[:HEADER], self._fs.monotonic()))

    def names(self, kind: str) -> list[str]:
        """Return the entry names in a kind's folder, without temporary files."""
        return [name for name in self._fs.listdir(self._folders.by_kind[kind]) if not name.startswith(".")]

    def reserve(self, key: Key, size: int) -> Taken:
        """Reserve disk space for a record around a body of `size` bytes."""
        length, folder = record_size(size), self._folders.by_kind[key.kind]
        temp, fd = new_temp(self._fs, folder, key.name)
        try:
            self._fs.reserve(fd, length)
        except BaseException:
            drop_temp(self._fs, folder, temp, fd)
            raise
        return Taken(temp, fd)

    def give_back(self, key: Key, taken: Taken) -> None:
        drop_temp(self._fs, self._folders.by_kind[key.kind], taken.temp, taken.fd)

    def prepare(
        self, key: Key, generation: int, body: bytes, taken: Taken | None = None, tags: Collection[Tag] = ()
    ) -> Prepared:
        """Seal and write the next version beside the current one, durably; into the reserved space, if any."""
        folder = self._folders.by_kind[key.kind]
        temp, fd = (taken.temp, taken.fd) if taken is not None else new_temp(self._fs, folder, key.name)
        try:
            record = self._ring.seal(key.kind, key.name, generation, body)
            write_file(self._fs, fd, record, reserved=taken is not None)
        except BaseException:
            drop_temp(self._fs, folder, temp, fd)
            raise
        return Prepared(key, temp, fd, generation, body, record[:HEADER], tags)

    def install(self, prepared: Prepared, held: HeldLock) -> Entry:
        """Put a prepared version in place, under the entry's lock. Raises Conflict if the generation has changed."""
        key, folder = prepared.key, self._folders.by_kind[prepared.key.kind]
        renamed = False
        try:
            self._expect(key, prepared.generation - 1, held)
            self.tags.add((key, tag) for tag in prepared.tags)
            self._fs.rename(folder, prepared.temp, key.name)
            renamed = True
            self._fs.fsync(folder)
            stat = self._fs.fstat(prepared.fd)
        finally:
            if renamed:
                close(self._fs, prepared.fd)
            else:
                drop_temp(self._fs, folder, prepared.temp, prepared.fd)
        stamp = Stamp(stat, prepared.header, self._fs.monotonic())
        return Entry(key, prepared.generation, prepared.body, stamp)

    def discard(self, prepared: Prepared) -> None:
        """Discard a prepared version whose lock could not be taken."""
        drop_temp(self._fs, self._folders.by_kind[prepared.key.kind], prepared.temp, prepared.fd)

    def remove(self, key: Key, expect: int, held: HeldLock) -> None:
        """Remove an entry durably, under its lock. Raises Conflict if the generation has changed."""
        folder = self._folders.by_kind[key.kind]
        if self._expect(key, expect, held):
            raise Conflict
        self._fs.unlink(folder, key.name)
        self._fs.fsync(folder)

    def untag(self, entry: Entry, tags: Collection[Tag]) -> None:
        """Take tags from an entry that is gone, or still of this version. Called under its lock, which `install` has
        when it adds them."""
        newest = self.read(entry.key)
        if newest is None or newest.generation == entry.generation:
            self.tags.remove(entry.key, tags)

    def set_aside(self, key: Key, held: HeldLock) -> None:
        """Remove an entry that cannot be opened, durably and under its lock, after copying its bytes to `corrupt/`."""
        try:
            self.read(key)
        except BrokerError as exc:
            if exc.code not in _UNOPENED:
                raise
            failed = exc
        else:
            return
        if not self.keep_aside(key):
            raise failed
        self._check_lock(held)
        folder = self._folders.by_kind[key.kind]
        self._fs.unlink(folder, key.name)
        self._fs.fsync(folder)

    def sync(self, kind: str) -> None:
        """Make a kind's folder durable: which entries it has, and in which version. Their bytes are durable already.

        Costs one stat where nothing was renamed in the folder since a sync that is known to cover all of it.
        """
        folder = self._folders.by_kind[kind]
        seen, last = FolderStamp.of(self._fs, folder), self._synced.get(kind)
        if last is not None and last.covers(seen):
            return
        self._fs.fsync(folder)
        self._synced[kind] = seen.after(last)

    def keep_aside(self, key: Key) -> bool:
        """Copy a damaged record to `corrupt/`, once for each state of damage. The original stays in place.

        Returns False if there are too many copies to keep another one.
        """
        found = read_file(self._fs, self._folders.by_kind[key.kind], key.name, MAX_RECORD)
        if found is None:
            return False
        name = f"{key.kind}-{key.name}-{fingerprint(found[0])}"
        kept = self._fs.listdir(self._folders.corrupt)
        if name in kept:
            return True
        if len(kept) >= _MOST_ASIDE:
            return False
        create_whole(self._fs, self._folders.corrupt, name, found[0])
        return True

    def _expect(self, key: Key, generation: int, held: HeldLock) -> bool:
        """Check the entry's generation and raise Conflict if it differs. Return True if there is no entry.

        A damaged entry counts as generation 0 after it is copied aside, so that a caller that saw the damage can write
        anew.
        """
        missing, current = False, 0
        try:
            entry = self.read(key)
            missing, current = entry is None, entry.generation if entry else 0
        except BrokerError as exc:
            if exc.code is not Code.RECORD_CORRUPT:
                raise
            self.keep_aside(key)
        if current != generation:
            raise Conflict
        self._check_lock(held)
        return missing

    @staticmethod
    def _check_lock(held: HeldLock) -> None:
        if not held.still_named():
            raise BrokerError(Code.STORE_LOCKED, note="the lock file was removed while it was held")
