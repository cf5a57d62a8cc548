"""Read, write, remove and set aside single entries as files.

Plain blocking functions; `file_store` chooses the thread and holds the lock.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.file.cache_stamp import FolderSyncs, Stamp, identity
from oauthbroker.store.file.group_commit import GroupCommit
from oauthbroker.store.file.locks import HeldLock
from oauthbroker.store.file.sorted_names import SortedNames
from oauthbroker.store.file.tags import TagFiles
from oauthbroker.store.format.entry_names import fingerprint, is_name
from oauthbroker.store.format.port import Conflict, Entry, Key, Reservation, Tag
from oauthbroker.store.format.seal import HEADER, KID, MAGIC, MAX_RECORD, UNOPENED, generation_of, record_size
from oauthbroker.store.keys.keyring_home import KEYRING, KEYRING_LIMIT
from oauthbroker.store.keys.live_keyring import LiveKeyring
from oauthbroker.store.posix.atomic_files import create_whole, drop_temp, new_temp, write_file
from oauthbroker.store.posix.checked_files import close, content_of, read_file
from oauthbroker.store.posix.folders import Folders
from oauthbroker.store.posix.system_calls import Fs

_MOST_ASIDE = 256  # damaged copies that are kept, so that a repeated fault does not fill the disk
_MOST_HEADERS = 4096
_LOCK_REMOVED = "the lock file was removed while it was held"


@dataclass(frozen=True, slots=True)
class Taken:
    """Disk space under a temporary name, locked while its writer lives."""

    key: Key
    temp: str
    fd: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The next version of an entry, durable under a temporary name, locked while its writer lives."""

    key: Key
    temp: str
    fd: int
    generation: int
    body: bytes
    header: bytes
    tags: Collection[Tag]
    replaces: int


class EntryFiles:
    """The entry files of one store. Methods raise OSError, BrokerError and Conflict."""

    __slots__ = ("_commits", "_folders", "_fs", "_headers", "_keyring", "_kinds", "_syncs", "tags")

    def __init__(self, *, fs: Fs, folders: Folders, keyring: LiveKeyring) -> None:
        self._fs, self._folders, self._keyring, self._kinds = fs, folders, keyring, tuple(folders.by_kind)
        self.tags = TagFiles(fs, folders.tags)
        self._commits = {kind: GroupCommit(partial(fs.fsync, folder)) for kind, folder in folders.by_kind.items()}
        self._syncs = FolderSyncs(fs)
        self._headers = dict[Key, bytes]()  # of versions that were opened or sealed here: none has another's salt

    def document(self) -> bytes | None:
        """Return the document of the keyring."""
        return content_of(self._fs, self._folders.data, KEYRING, KEYRING_LIMIT)

    def read_anew(self, key: Key) -> Entry | None:
        """Return the entry after an unknown seed: another process may have made it, and may have sealed the entry anew.
        Called on a thread, because it may ask a key service."""
        self._keyring.adopt(self.document())
        return self.read(key)

    def read(self, key: Key) -> Entry | None:
        """Return the entry, opened. Takes no lock: a version is replaced whole or not at all."""
        found = read_file(self._fs, self._folders.by_kind[key.kind], key.name, MAX_RECORD)
        if found is None:
            return None
        record, stat = found
        generation, body = self._keyring.ring.unseal(key.kind, key.name, record, kinds=self._kinds)
        header = self._note(key, record[:HEADER])
        return Entry(key, generation, body, stamp=Stamp(identity(stat), header, self._fs.monotonic()))

    def _note(self, key: Key, header: bytes) -> bytes:
        """Remember a genuine header, so that the next write need not open the version again."""
        if len(self._headers) >= _MOST_HEADERS:
            self._headers.clear()
        self._headers[key] = header
        return header

    def names(self, kind: str) -> SortedNames:
        """Return the entry names in a kind's folder, in their order."""
        return SortedNames(self._fs, filter(is_name, self._fs.each_name(self._folders.by_kind[kind])))

    def count(self, kind: str) -> int:
        """Count the entries in a kind's folder."""
        return sum(1 for _ in filter(is_name, self._fs.each_name(self._folders.by_kind[kind])))

    def fill(self, reservation: Reservation, *kinds: str) -> None:
        """Reserve disk space for a record around a body of the reservation's size. It holds none yet. Looks whether the
        folders of `kinds` were moved, or without any whether one was at all."""
        length, folder = record_size(reservation.size), self._folders.by_kind[reservation.key.kind]
        self._folders.check_named(self._fs, *kinds)
        temp, fd = new_temp(self._fs, folder, f".{reservation.key.name}.")
        try:
            self._fs.reserve(fd, length)
        except BaseException:
            drop_temp(self._fs, folder, temp, fd)
            raise
        reservation.held = Taken(reservation.key, temp, fd)

    def prepare(
        self,
        key: Key,
        generation: int,
        body: bytes,
        taken: Taken | None = None,
        ahead: Reservation | None = None,
        tags: Collection[Tag] = (),
        replaces: int | None = None,
    ) -> Prepared:
        """Seal and write the next version beside the current one, durably; into the reserved space, if any. The space
        `ahead` is taken before anything is written. `replaces` is the generation in place, by default the one before.
        """
        folder = self._folders.by_kind[key.kind]
        temp, fd = (taken.temp, taken.fd) if taken is not None else new_temp(self._fs, folder, f".{key.name}.")
        try:
            if ahead is not None:
                self.fill(ahead, key.kind)
            record = self._keyring.ring.seal(key.kind, key.name, generation, body)
            write_file(self._fs, fd, record, reserved=taken is not None)
        except BaseException:
            drop_temp(self._fs, folder, temp, fd)
            raise
        return Prepared(
            key=key,
            temp=temp,
            fd=fd,
            generation=generation,
            body=body,
            header=record[:HEADER],
            tags=tags,
            replaces=generation - 1 if replaces is None else replaces,
        )

    def install(self, prepared: Prepared, held: HeldLock) -> Entry:
        """Put a prepared version in place, under the entry's lock. Raises Conflict if the generation has changed."""
        key, folder = prepared.key, self._folders.by_kind[prepared.key.kind]
        renamed = False
        try:
            prepared = self._sealed_now(prepared)
            self._expect(key, prepared.replaces, held)
            if prepared.tags:
                self.tags.add((key, tag) for tag in prepared.tags)
            self._fs.rename(prepared.temp, key.name, src_dir_fd=folder, dst_dir_fd=folder)
            renamed = True
            self._commits[key.kind].cover()
            stat = self._fs.fstat(prepared.fd)
        finally:
            if renamed:
                close(self._fs, prepared.fd)
            else:
                drop_temp(self._fs, folder, prepared.temp, prepared.fd)
        stamp = Stamp(identity(stat), self._note(key, prepared.header), self._fs.monotonic())
        return Entry(key, prepared.generation, prepared.body, stamp=stamp)

    def _sealed_now(self, prepared: Prepared) -> Prepared:
        """Return the version, sealed anew if its seed is no longer the active one. Called under the entry's lock: who
        takes all locks after a rotation knows that no process seals with the old seed any more."""
        document = content_of(self._fs, self._folders.data, KEYRING, KEYRING_LIMIT)
        if not self._keyring.seals(document):
            self._keyring.adopt(document)
        if prepared.header[KID] == self._keyring.ring.active.kid:
            return prepared
        again = self.prepare(
            prepared.key, prepared.generation, prepared.body, tags=prepared.tags, replaces=prepared.replaces
        )
        self.discard(prepared)
        return again

    def _read_surely(self, key: Key) -> Entry | None:
        try:
            return self.read(key)
        except BrokerError as error:
            if error.code is not Code.KEY_UNKNOWN:
                raise
        return self.read_anew(key)

    def seed_of(self, key: Key) -> bytes:
        """Return the id of the seed that an entry is sealed with; empty for one that is gone or no record."""
        found = read_file(self._fs, self._folders.by_kind[key.kind], key.name, HEADER)
        return found[0][KID] if found is not None and found[0].startswith(MAGIC) else b""

    def reseal(self, key: Key, held: HeldLock) -> bool:
        """Seal an entry under the active seed, under its lock, in its generation. False if it is, or is gone."""
        if self.seed_of(key) == self._keyring.ring.active.kid:
            return False
        entry = self._read_surely(key)
        if entry is None:
            return False
        self.install(self.prepare(key, entry.generation, entry.body, replaces=entry.generation), held)
        return True

    def discard(self, left: Prepared | Taken) -> None:
        """Discard a prepared version whose lock could not be taken, or space that was not used."""
        drop_temp(self._fs, self._folders.by_kind[left.key.kind], left.temp, left.fd)

    def remove(self, key: Key, expect: int, held: HeldLock) -> None:
        """Remove an entry durably, under its lock. Raises Conflict if the generation has changed."""
        folder = self._folders.by_kind[key.kind]
        if self._expect(key, expect, held):
            raise Conflict
        self._fs.unlink(key.name, dir_fd=folder)
        self._commits[key.kind].cover()

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
            if exc.code not in UNOPENED:
                raise
            failed = exc
        else:
            return
        if not self.keep_aside(key):
            raise failed
        if not held.still_named():
            raise BrokerError(Code.STORE_LOCKED, note=_LOCK_REMOVED)
        folder = self._folders.by_kind[key.kind]
        self._fs.unlink(key.name, dir_fd=folder)
        self._commits[key.kind].cover()

    def sync(self, kind: str) -> None:
        """Make a kind's folder durable: which entries it has, and in which version. Their bytes are durable already."""
        self._syncs.sync(kind, self._folders.by_kind[kind])

    def keep_aside(self, key: Key) -> bool:
        """Copy a damaged record to `corrupt/`, once for each state of damage. The original stays in place.

        Returns False if there are too many copies to keep another one.
        """
        found = read_file(self._fs, self._folders.by_kind[key.kind], key.name, MAX_RECORD)
        if found is None:
            return False
        name = f"{key.kind}-{key.name}-{fingerprint(found[0])}"
        kept = [each for each in self._fs.listdir(self._folders.corrupt) if not each.startswith(".")]
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
        missing, current = False, generation
        if not self._is_known(key, generation):
            try:
                entry = self._read_surely(key)
                missing, current = entry is None, entry.generation if entry else 0
            except BrokerError as exc:
                if exc.code is not Code.RECORD_CORRUPT:
                    raise
                self.keep_aside(key)
                current = 0
        if current != generation:
            raise Conflict
        if not held.still_named():
            raise BrokerError(Code.STORE_LOCKED, note=_LOCK_REMOVED)
        return missing

    def _is_known(self, key: Key, generation: int) -> bool:
        """Tell whether the version in place is one of that generation that was opened or sealed here."""
        header = self._headers.get(key)
        if header is None or generation_of(header) != generation:
            return False
        found = read_file(self._fs, self._folders.by_kind[key.kind], key.name, HEADER)
        return found is not None and found[0][:HEADER] == header
