"""The records of a store in files as they lie there, for its migration."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.file.tags import TagFiles
from oauthbroker.store.format.entry_names import is_name
from oauthbroker.store.format.port import Key, Tag
from oauthbroker.store.format.seal import MAX_RECORD
from oauthbroker.store.keys.keyring_file import KEYRING, KEYRING_LIMIT
from oauthbroker.store.migration.raw import LAST, RawRecord
from oauthbroker.store.posix.atomic_files import create_whole, drop_temp, new_temp, replacing, write_file
from oauthbroker.store.posix.checked_files import (
    check_root,
    close,
    closing,
    content_of,
    make_folders,
    own_folder,
    read_file,
)
from oauthbroker.store.posix.folders import CORRUPT, DATA, LOCKS, MARK, OPEN, TAGS, living_marks
from oauthbroker.store.posix.migration_marker import MOST_BYTES, MigrationMarker
from oauthbroker.store.posix.system_calls import Fs, at_border

_NO_KINDS: Final = {LOCKS, CORRUPT, TAGS, "audit"}
_Tags = dict[str, set[tuple[str, str]]]


class RawFiles:
    """A `RawStore` below a folder. With `make`, the folder is created. Holds a lock on `data/` while it is open."""

    def __init__(self, root: Path, *, make: bool = False) -> None:
        self._fs, self.word = Fs(), str(root.absolute())
        self._names, self._tags = dict[str, list[str]](), dict[str, _Tags]()
        self._data, self._own = at_border(lambda: self._opened(root, make=make)), ("", -1)
        if make:  # the start that follows a death then removes temporary files
            self._own = at_border(lambda: new_temp(self._fs, self._data, OPEN, end=""))
        self._tag_files = TagFiles(self._fs, at_border(lambda: self._folder(TAGS)))

    def _opened(self, root: Path, *, make: bool) -> int:
        fs = self._fs
        if make:
            fs.make_root(root)
        try:
            parent = fs.open_root(root)
        except FileNotFoundError:
            raise BrokerError(Code.STORE_UNAVAILABLE, note=f"there is no folder {root}") from None
        with closing(fs, parent):
            check_root(fs.fstat(parent))
            if make:
                make_folders(fs, parent, [DATA])
            data = own_folder(fs, parent, DATA)
        if not fs.try_lock(data):
            close(fs, data)
            raise BrokerError(Code.STORE_LOCKED, note="another command moves or makes this store")
        return data

    def keyring(self) -> bytes | None:
        return at_border(lambda: content_of(self._fs, self._data, KEYRING, KEYRING_LIMIT))

    def put_keyring(self, document: bytes) -> None:
        at_border(lambda: make_folders(self._fs, self._data, [LOCKS, CORRUPT, TAGS]))
        at_border(lambda: create_whole(self._fs, self._data, KEYRING, document))
        self._tag_files = TagFiles(self._fs, at_border(lambda: self._folder(TAGS)))

    def mark(self) -> MigrationMarker | None:
        found = at_border(lambda: read_file(self._fs, self._data, MARK, MOST_BYTES))
        return MigrationMarker.decoded(found[0]) if found else None

    def set_mark(self, mark: MigrationMarker | None, *, expect: MigrationMarker | None) -> None:
        if self.mark() != expect:
            raise BrokerError(Code.STORE_LOCKED, note="another command has changed the mark of the move")
        if mark is not None:
            at_border(lambda: create_whole(self._fs, self._data, MARK, mark.encoded()))
        elif expect is not None:
            at_border(self._unmark)

    def _unmark(self) -> None:
        self._fs.unlink(MARK, dir_fd=self._data)
        self._fs.fsync(self._data)

    def users(self) -> int:
        """Count the open marks of other living processes."""
        return at_border(lambda: len(living_marks(self._fs, self._data))) - bool(self._own[0])

    def kinds(self) -> set[str]:
        return at_border(lambda: {name for name in self._fs.listdir(self._data) if self._is_kind(name)})

    def _is_kind(self, name: str) -> bool:
        if name.startswith(".") or name in _NO_KINDS:
            return False
        try:
            return any(map(is_name, self._listed(name)))
        except NotADirectoryError:
            return False

    def records(self, kind: str, after: str = "", *, upto: str = LAST, limit: int | None = None) -> list[RawRecord]:
        """Return records. A kind is listed anew when its first page is read."""
        if not after:
            self._names[kind] = sorted(filter(is_name, at_border(lambda: self._listed(kind))))
            self._tags[kind] = at_border(lambda: self._tags_of(kind))
        names = self._names.get(kind, [])
        first, last = bisect_right(names, after), bisect_right(names, upto)
        wanted = names[first : last if limit is None else min(last, first + limit)]
        return at_border(lambda: self._read(kind, wanted))

    def _read(self, kind: str, names: Iterable[str]) -> list[RawRecord]:
        folder, found, tags = self._folder(kind), list[RawRecord](), self._tags[kind]
        if folder is None:
            return []
        with closing(self._fs, folder):
            for name in names:
                record = read_file(self._fs, folder, name, MAX_RECORD)
                if record is not None:  # a broker that works may have removed it
                    found.append(RawRecord(name, record[0], frozenset(tags.get(name, ()))))
        return found

    def count(self, kind: str) -> int:
        return len([*filter(is_name, at_border(lambda: self._listed(kind)))])

    def write(self, kind: str, records: Collection[RawRecord]) -> None:
        at_border(lambda: self._write(kind, records))

    def _write(self, kind: str, records: Collection[RawRecord]) -> None:
        """Write the tags, then the records, then one sync of their folder, as the store's own writes do."""
        make_folders(self._fs, self._data, [kind])
        there = self._tags.setdefault(kind, {})
        with closing(self._fs, own_folder(self._fs, self._data, kind)) as folder:
            self._tag_files.add(
                (Key(kind, each.name), Tag(kind, *tag)) for each in records for tag in sorted(each.tags)
            )
            for each in records:
                with replacing(self._fs, folder, each.name) as fd:
                    write_file(self._fs, fd, each.record)
            self._fs.fsync(folder)
        for each in records:
            gone = there.get(each.name, set()) - each.tags
            self._tag_files.remove(Key(kind, each.name), [Tag(kind, *tag) for tag in gone])

    def remove(self, kind: str, names: Iterable[str]) -> None:
        at_border(lambda: self._remove(kind, list(names)))

    def _remove(self, kind: str, names: list[str]) -> None:
        folder, there = self._folder(kind), self._tags.get(kind, {})
        if folder is None:
            return
        with closing(self._fs, folder):
            for name in names:
                with suppress(FileNotFoundError):
                    self._fs.unlink(name, dir_fd=folder)
            self._fs.fsync(folder)
        for name in names:
            self._tag_files.remove(Key(kind, name), [Tag(kind, *tag) for tag in there.get(name, ())])

    def loose_tags(self, kind: str) -> int:
        names = set(at_border(lambda: self._listed(kind)))
        return sum(len(tags) for name, tags in at_border(lambda: self._tags_of(kind)).items() if name not in names)

    def close(self) -> None:
        if self._own[0] and not self._fs.leftovers:
            drop_temp(self._fs, self._data, *self._own)
        elif self._own[0]:  # the next start removes the leftovers
            close(self._fs, self._own[1])
        close(self._fs, self._data)

    def _folder(self, name: str) -> int | None:
        try:
            return own_folder(self._fs, self._data, name)
        except FileNotFoundError:
            return None

    def _listed(self, *path: str) -> list[str]:
        """Return the names in a folder below `data/`; none if it is missing."""
        opened = list[int]()
        try:
            for name in path:
                opened.append(own_folder(self._fs, opened[-1] if opened else self._data, name))
            return self._fs.listdir(opened[-1])
        except FileNotFoundError:
            return []
        finally:
            for fd in opened:
                close(self._fs, fd)

    def _tags_of(self, kind: str) -> _Tags:
        """Return the tags of all entries of a kind by their names."""
        found: _Tags = defaultdict(set)
        for path in self._listed(TAGS):
            of, _, label = path.partition(".")
            if of != kind:
                continue
            for shard in self._listed(TAGS, path):
                for each in self._listed(TAGS, path, shard):
                    value, _, name = each.partition(".")
                    found[name].add((label, value))
        return dict(found)
