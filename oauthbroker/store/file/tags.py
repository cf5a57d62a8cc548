"""Tags as files: an empty one for each tag of an entry, in a folder for each kind and label: docs/store-format.md.

A tag is durable before the record that has it, and is removed after. So a tag without a record is harmless, and no
record lacks one. Tags are hard links of one empty file where the file system has links, so they take no inodes. Plain
blocking functions; `file_store` chooses the thread and holds the lock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from heapq import nsmallest
from typing import Final

from oauthbroker.store.file.cache_stamp import FolderSyncs
from oauthbroker.store.file.sorted_names import SortedNames
from oauthbroker.store.format.entry_names import is_name, is_place
from oauthbroker.store.format.port import Key, Tag
from oauthbroker.store.posix.atomic_files import create_whole
from oauthbroker.store.posix.checked_files import close, closing, own_folder
from oauthbroker.store.posix.system_calls import Fs

EMPTY: Final = "empty"  # the file in `tags/` that new tags are links of
MOST_LINKS: Final = 1000  # of one file: a backup may be restored to a file system that allows few


class TagFiles:
    """The tags of one store. `folder` is None in a store that has none and is only read. Methods raise OSError."""

    __slots__ = ("_folder", "_fs", "_syncs")

    def __init__(self, fs: Fs, folder: int | None) -> None:
        self._fs, self._folder, self._syncs = fs, folder, FolderSyncs(fs)

    def names(self, tag: Tag) -> SortedNames:
        """Return the names of the entries with this tag."""
        start = f"{tag.value}."
        try:
            with self._shard(_path(tag)) as shard:
                places = (name for name in self._fs.each_name(shard) if name.startswith(start))
                return SortedNames(self._fs, filter(is_name, (place.removeprefix(start) for place in places)))
        except FileNotFoundError:
            return SortedNames(self._fs, ())

    def places(self, kind: str, label: str, after: str, most: int) -> list[str]:
        """Return the first places `<value>.<name>` of a label after `after`, in order: at most `most`. Reads one or a
        few shards, however many tags there are."""
        found = list[str]()
        if self._folder is None:
            return found
        with (
            suppress(FileNotFoundError),
            closing(self._fs, own_folder(self._fs, self._folder, f"{kind}.{label}")) as above,
        ):
            for name in sorted(self._fs.listdir(above)):
                if name >= after[:2] and len(found) < most:
                    with closing(self._fs, own_folder(self._fs, above, name)) as shard:
                        places = (it for it in self._fs.each_name(shard) if it > after and is_place(it))
                        found += nsmallest(most - len(found), places)
        return found

    def add(self, wanted: Iterable[tuple[Key, Tag]]) -> set[Key]:
        """Give entries these tags, durably, and return the keys that lacked one. A tag that is there is synced too: its
        writer's sync may have failed."""
        lacked, shards = set[Key](), defaultdict[str, list[tuple[Key, Tag]]](list)
        for key, tag in wanted:
            shards[_path(tag)].append((key, tag))
        for path, pairs in shards.items():
            with self._shard(path, make=True) as shard:
                lacked.update(key for key, tag in pairs if self._create(shard, _file(tag, key)))
                self._syncs.sync(path, shard)
        return lacked

    def remove(self, key: Key, tags: Iterable[Tag]) -> None:
        """Take these tags from an entry. Not synced: one that comes back is harmless."""
        for tag in tags:
            with suppress(FileNotFoundError), self._shard(_path(tag)) as shard:
                self._fs.unlink(_file(tag, key), dir_fd=shard)

    def _create(self, shard: int, name: str) -> bool:
        """Create a tag; False if it is there. It is a file of its own where no link can be made."""
        try:
            try:
                self._link(shard, name)
            except FileExistsError:
                raise
            except OSError:
                close(self._fs, self._fs.create_file(name, dir_fd=shard))
        except FileExistsError:
            return False
        return True

    def _link(self, shard: int, name: str) -> None:
        """Link the empty file, made anew when it has many links. That two processes may do so at once is harmless."""
        fs, above = self._fs, self._above()
        try:
            is_full = fs.stat(EMPTY, dir_fd=above).st_nlink >= MOST_LINKS
        except FileNotFoundError:
            is_full = True
        if is_full:
            create_whole(fs, above, EMPTY, b"")
        fs.link(EMPTY, name, dst_dir_fd=shard, src_dir_fd=above)

    @contextmanager
    def _shard(self, path: str, *, make: bool = False) -> Iterator[int]:
        """Open one of the folders that share the tags of a kind and label; with `make`, create it durably."""
        above, _, name = path.partition("/")
        with closing(self._fs, self._below("", self._above(), above, make=make)) as label:
            shard = self._below(above, label, name, make=make)
        with closing(self._fs, shard):
            yield shard

    def _above(self) -> int:
        if self._folder is None:
            raise FileNotFoundError
        return self._folder

    def _below(self, path: str, parent: int, name: str, *, make: bool) -> int:
        if make:
            with suppress(FileExistsError):
                self._fs.make_folder(name, dir_fd=parent)
            self._syncs.sync(path, parent)
        return own_folder(self._fs, parent, name)


def _path(tag: Tag) -> str:
    """Return the folder of a tag: that of its kind and label, and a shard in it."""
    return f"{tag.kind}.{tag.label}/{tag.value[:2]}"


def _file(tag: Tag, key: Key) -> str:
    return f"{tag.value}.{key.name}"
