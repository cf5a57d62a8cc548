"""One entry as a file: read it, prepare its next version, put that in place, remove it, keep a damaged one aside.

Plain blocking functions; `file.py` decides which thread runs them and which lock is held.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oauthbroker.errors import BrokerError, Code
from oauthbroker.store.files import close, create_whole, drop_temp, new_temp, read_file, write_file
from oauthbroker.store.folders import Folders
from oauthbroker.store.fs import Fs
from oauthbroker.store.keys import Keyring
from oauthbroker.store.locks import Held
from oauthbroker.store.names import fingerprint
from oauthbroker.store.port import Conflict, Entry, Key
from oauthbroker.store.seal import HEADER, MAX_RECORD, record_size
from oauthbroker.store.stamp import Stamp

_MOST_ASIDE = 256  # damaged copies that are kept; beyond that a fault repeats itself


@dataclass(frozen=True, slots=True)
class Taken:
    """Disk space under a temporary name, which is locked while it lives."""

    temp: str
    fd: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """The next version of an entry, durable under a temporary name, which is locked while it lives."""

    key: Key
    temp: str
    fd: int
    generation: int
    body: bytes
    header: bytes


class Entries:
    """The files of one store. Methods raise OSError, BrokerError and Conflict."""

    __slots__ = ("_folders", "_fs", "_kinds", "_ring")

    def __init__(self, fs: Fs, folders: Folders, ring: Keyring, kinds: Sequence[str]) -> None:
        self._fs, self._folders, self._ring, self._kinds = fs, folders, ring, tuple(kinds)

    def read(self, key: Key) -> Entry | None:
        """The entry, opened. Takes no lock: a version is replaced whole or not at all."""
        found = read_file(self._fs, self._folders.by_kind[key.kind], key.name, MAX_RECORD)
        if found is None:
            return None
        record, stat = found
        generation, body = self._ring.unseal(key.kind, key.name, record, kinds=self._kinds)
        return Entry(key, generation, body, Stamp(stat, record[:HEADER], self._fs.monotonic()))

    def names(self, kind: str) -> list[str]:
        """The names in a kind's folder; temporary files are none of them."""
        return [name for name in self._fs.listdir(self._folders.by_kind[kind]) if not name.startswith(".")]

    def unchanged(self, key: Key, stamp: Stamp) -> bool:
        return stamp.holds(self._fs, self._folders.by_kind[key.kind], key.name)

    def reserve(self, key: Key, size: int) -> Taken:
        """Takes the space for a record around a body of `size` bytes."""
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

    def prepare(self, key: Key, generation: int, body: bytes, taken: Taken | None = None) -> Prepared:
        """Seals and writes the next version beside the current one, durably; into the space taken for it, if any."""
        folder = self._folders.by_kind[key.kind]
        temp, fd = (taken.temp, taken.fd) if taken is not None else new_temp(self._fs, folder, key.name)
        try:
            record = self._ring.seal(key.kind, key.name, generation, body)
            write_file(self._fs, fd, record, reserved=taken is not None)
        except BaseException:
            drop_temp(self._fs, folder, temp, fd)
            raise
        return Prepared(key, temp, fd, generation, body, record[:HEADER])

    def install(self, prepared: Prepared, held: Held) -> Entry:
        """Puts a prepared version in place, under the entry's lock. Raises Conflict when the generation moved."""
        key, folder = prepared.key, self._folders.by_kind[prepared.key.kind]
        renamed = False
        try:
            self._expect(key, prepared.generation - 1, held)
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
        """Gives up a prepared version that no lock could be had for."""
        drop_temp(self._fs, self._folders.by_kind[prepared.key.kind], prepared.temp, prepared.fd)

    def remove(self, key: Key, expect: int, held: Held) -> None:
        """Removes an entry durably, under its lock. Raises Conflict when the generation moved."""
        folder = self._folders.by_kind[key.kind]
        if self._expect(key, expect, held):
            raise Conflict
        self._fs.unlink(folder, key.name)
        self._fs.fsync(folder)

    def sync(self, kind: str) -> None:
        """Makes durable which entries of the kind there are, and in which version; their bytes are already."""
        self._fs.fsync(self._folders.by_kind[kind])

    def keep_aside(self, key: Key) -> None:
        """Copies a damaged record to `corrupt/`, once for each state of damage. The original stays where it is."""
        found = read_file(self._fs, self._folders.by_kind[key.kind], key.name, MAX_RECORD)
        if found is None:
            return
        name = f"{key.kind}-{key.name}-{fingerprint(found[0])}"
        kept = self._fs.listdir(self._folders.corrupt)
        if name in kept or len(kept) >= _MOST_ASIDE:
            return
        create_whole(self._fs, self._folders.corrupt, name, found[0])

    def _expect(self, key: Key, generation: int, held: Held) -> bool:
        """Raises Conflict unless the entry's generation is the given one. True when there is no entry at all.

        A damaged entry counts as generation 0, once it is kept aside: whoever was told of the damage can write anew.
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
        if not held.still_named():
            raise BrokerError(Code.STORE_LOCKED, note="the lock file was removed while it was held")
        return missing
