"""The records of a store in files as they lie there, for its migration."""

from __future__ import annotations

import stat
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from itertools import islice, takewhile
from pathlib import Path
from typing import Final

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.file.sorted_names import SortedNames
from oauthbroker.store.file.tags import TagFiles
from oauthbroker.store.format.entry_names import is_name
from oauthbroker.store.format.port import Key, Tag
from oauthbroker.store.format.seal import MAX_RECORD
from oauthbroker.store.keys.keyring_home import KEYRING, KEYRING_LIMIT
from oauthbroker.store.migration.raw import LAST, RawRecord
from oauthbroker.store.migration.tags_by_name import TagsByName
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
from oauthbroker.store.posix.folders import (
    CORRUPT,
    DATA,
    FIRST_KINDS,
    LOCKS,
    MARK,
    OPEN,
    TAGS,
    living_marks,
    missing_kinds,
)
from oauthbroker.store.posix.migration_marker import MOST_BYTES, MigrationMarker
from oauthbroker.store.posix.system_calls import Fs, at_border

_NO_KINDS: Final = {LOCKS, CORRUPT, TAGS, "audit"}


class RawFiles:
    """A `RawStore` below a folder. With `make`, the folder is created. Holds a lock on `data/` while it is open."""

    def __init__(self, root: Path, *, make: bool = False) -> None:
        self._fs, self.word = Fs(), str(root.absolute())
        self._names, self._tags = dict[str, SortedNames](), dict[str, TagsByName]()
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
        at_border(lambda: make_folders(self._fs, self._data, [LOCKS, CORRUPT, TAGS, *sorted(FIRST_KINDS)]))
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
        is_folder = stat.S_ISDIR(self._fs.stat(name, dir_fd=self._data).st_mode)
        return is_folder and any(map(is_name, self._listed(name)))

    def records(self, kind: str, after: str = "", *, upto: str = LAST, limit: int | None = None) -> list[RawRecord]:
        """Return records. A kind is listed anew when its first page is read."""
        if not after:
            self._names[kind] = at_border(lambda: SortedNames(self._fs, filter(is_name, self._listed(kind))))
            self._tags[kind] = at_border(lambda: TagsByName(self._tags_of(kind)))
        wanted, found = takewhile(lambda name: name <= upto, self._names[kind].after(after)), list[RawRecord]()
        while not found and (names := list(islice(wanted, limit))):  # a broker may have removed all of a page
            found = at_border(partial(self._read, kind, names))
        return found

    def _read(self, kind: str, names: Iterable[str]) -> list[RawRecord]:
        folder, found, tags = self._folder(kind), list[RawRecord](), self._tags[kind]
        if folder is None:
            return []
        with closing(self._fs, folder):
            for name in names:
                record = read_file(self._fs, folder, name, MAX_RECORD)
                if record is not None:  # a broker that works may have removed it
                    found.append(RawRecord(name, record[0], tags.of(name)))
        return found

    def missing(self, kinds: Collection[str]) -> list[str]:
        return at_border(lambda: missing_kinds(self._fs, self._data, kinds))

    def count(self, kind: str) -> int:
        return at_border(lambda: sum(1 for _ in filter(is_name, self._listed(kind))))

    def write(self, kind: str, records: Collection[RawRecord]) -> None:
        at_border(lambda: self._write(kind, records))

    def _write(self, kind: str, records: Collection[RawRecord]) -> None:
        """Write the tags, then the records, then one sync of their folder, as the store's own writes do."""
        make_folders(self._fs, self._data, [kind])
        there = self._tags.get(kind, TagsByName())
        with closing(self._fs, own_folder(self._fs, self._data, kind)) as folder:
            self._tag_files.add(
                (Key(kind, each.name), Tag(kind, *tag)) for each in records for tag in sorted(each.tags)
            )
            for each in records:
                with replacing(self._fs, folder, each.name) as fd:
                    write_file(self._fs, fd, each.record)
            self._fs.fsync(folder)
        for each in records:
            gone = there.of(each.name) - each.tags
            self._tag_files.remove(Key(kind, each.name), [Tag(kind, *tag) for tag in gone])

    def remove(self, kind: str, names: Iterable[str]) -> None:
        at_border(lambda: self._remove(kind, list(names)))

    def _remove(self, kind: str, names: list[str]) -> None:
        folder, there = self._folder(kind), self._tags.get(kind, TagsByName())
        if folder is None:
            return
        with closing(self._fs, folder):
            for name in names:
                with suppress(FileNotFoundError):
                    self._fs.unlink(name, dir_fd=folder)
            self._fs.fsync(folder)
        for name in names:
            self._tag_files.remove(Key(kind, name), [Tag(kind, *tag) for tag in there.of(name)])

    def loose_tags(self, kind: str) -> int:
        tagged = at_border(lambda: TagsByName(self._tags_of(kind))).names()  # first: a record is written after its tags
        names = at_border(lambda: SortedNames(self._fs, filter(is_name, self._listed(kind))))
        there, loose = iter(names), 0
        last = next(there, LAST)
        for name in tagged:  # both are in the order of names
            while last < name:
                last = next(there, LAST)
            loose += last != name
        return loose

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

    def _listed(self, *path: str) -> Iterator[str]:
        """Yield the names in a folder below `data/`; none if it is missing."""
        with ExitStack() as opened:
            folder = self._data
            try:
                for name in path:
                    folder = opened.enter_context(closing(self._fs, own_folder(self._fs, folder, name)))
                yield from self._fs.each_name(folder)
            except FileNotFoundError:
                return

    def _tags_of(self, kind: str) -> Iterator[tuple[str, str]]:
        """Yield the places of all tags of a kind, each after its label."""
        for path in self._listed(TAGS):
            of, _, label = path.partition(".")
            if of == kind:
                for shard in self._listed(TAGS, path):
                    yield from ((label, place) for place in self._listed(TAGS, path, shard))
