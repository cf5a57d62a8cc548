"""Read and write the files of a changeset's folder, which an agent can fill with anything. Reading follows no link,
opens no device and no pipe, and has limits. What a bundle cannot have is reported by path. Also the difference between
a revision and these files, and which of them an agent may change."""

from __future__ import annotations

import os
import re
import stat
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from oauthbroker.plugins import harmless_text
from oauthbroker.tools.types.results import truncated

MOST_FILES: Final = 5000
MOST_DEPTH: Final = 20
MOST_BYTES: Final = 1024 * 1024
MOST_TOTAL: Final = 64 * MOST_BYTES
MOST_NAMED: Final = 50
_SPECIAL: Final = re.compile(r'[\\:"*?<>|]')
_SHORT_NAME: Final = re.compile(r"~[0-9]")  # Windows' short form, GIT~1 for .git
_READ_BY_GIT: Final = frozenset({".git", ".gitattributes", ".gitmodules"})
_OPEN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class File(NamedTuple):
    """A file of a bundle. Beside its content, git keeps whether it can be executed."""

    content: bytes
    executable: bool = False


class Rejected(NamedTuple):
    """A file that cannot become part of the bundle, and why."""

    file: str
    reason: str


@dataclass(slots=True)
class Folder:
    """The regular files of a folder by path, and everything else that was found there."""

    files: dict[str, File] = field(default_factory=dict)
    rejected: list[Rejected] = field(default_factory=list)
    _total: int = 0

    def take(self, path: str, descriptor: int) -> None:
        status = os.fstat(descriptor)
        most = min(MOST_BYTES, MOST_TOTAL - self._total)
        if status.st_nlink > 1:
            self.refuse(path, "a hard link")
        elif status.st_size > most or len(content := _content(descriptor, most + 1)) > most:
            self.refuse(path, f"too large: a file has at most {MOST_BYTES} bytes, all together {MOST_TOTAL}")
        elif len(self.files) >= MOST_FILES:
            self.refuse(path, f"more than {MOST_FILES} files")
        else:
            self._total += len(content)
            self.files[path] = File(content, bool(status.st_mode & stat.S_IXUSR))

    def refuse(self, path: str, reason: str) -> None:
        """Report a path, within a bound."""
        if not self.full:
            self.rejected.append(Rejected(shown(path), reason))

    @property
    def full(self) -> bool:
        return len(self.rejected) >= MOST_NAMED


def read_folder(root: Path) -> Folder:
    """Read all below `root`. Raises OSError if `root` itself is no folder."""
    folder = Folder()
    _read(folder, os.open(root, _OPEN | os.O_DIRECTORY), "", 1)
    return folder


def write_folder(root: Path, files: Mapping[str, File]) -> None:
    """Write files below a folder that has none of them yet."""
    for path, file in files.items():
        place = root / path
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(place, flags, 0o700 if file.executable else 0o600), "wb") as target:  # noqa: PTH123
            target.write(file.content)


def unfit_name(path: str) -> str:
    """Return why git or a file system may take a path for something else; empty if they take it as it is."""
    for name in path.split("/"):
        folded = name.casefold()
        if not name.isprintable() or _SPECIAL.search(name):
            return 'a name with a control character, or one of \\ : " * ? < > |'
        if folded in _READ_BY_GIT or _SHORT_NAME.search(folded):
            return "a name that git reads, or may take for one that it reads"
        if len(name.encode("utf-8")) > 200 or name.endswith((".", " ")):
            return "a name that is too long, or ends with a dot or a space"
    return ""


def shown(path: str) -> str:
    """Return a path for an answer: as it is, but without control characters, and bounded."""
    return truncated(harmless_text(path), 300)


def _read(folder: Folder, descriptor: int, prefix: str, depth: int) -> None:
    try:
        for name in sorted(_names(descriptor, folder, prefix)):
            if folder.full:
                return
            _entry(folder, descriptor, name, prefix + name, depth)
    finally:
        os.close(descriptor)


def _entry(folder: Folder, above: int, name: str, path: str, depth: int) -> None:
    mode = os.stat(name, dir_fd=above, follow_symlinks=False).st_mode
    if stat.S_ISDIR(mode):
        if depth >= MOST_DEPTH:
            folder.refuse(path, f"folders deeper than {MOST_DEPTH}")
        else:
            _read(folder, os.open(name, _OPEN | os.O_DIRECTORY, dir_fd=above), f"{path}/", depth + 1)
    elif stat.S_ISREG(mode):
        descriptor = os.open(name, _OPEN | os.O_NONBLOCK, dir_fd=above)
        try:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):  # else it was replaced since
                folder.take(path, descriptor)
        finally:
            os.close(descriptor)
    else:
        folder.refuse(path, "a symbolic link" if stat.S_ISLNK(mode) else "not a regular file")


def _names(descriptor: int, folder: Folder, prefix: str) -> Iterator[str]:
    """Yield the names of an open folder, within a bound."""
    with os.scandir(descriptor) as entries:
        for count, entry in enumerate(entries):
            if count >= MOST_FILES:
                folder.refuse(prefix or ".", f"more than {MOST_FILES} entries in a folder")
                return
            yield entry.name


def _content(descriptor: int, most: int) -> bytes:
    """Read up to `most` bytes: the file may grow meanwhile."""
    with open(descriptor, "rb", closefd=False) as source:
        return source.read(most)


Files = Mapping[str, File]


@dataclass(frozen=True, slots=True)
class Changes:
    """The files that differ from a revision. A deleted file has no content."""

    changed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        return (*self.changed, *self.added, *self.deleted)

    def to_json(self) -> dict[str, list[str]]:
        lists = {"filesChanged": self.changed, "filesAdded": self.added, "filesDeleted": self.deleted}
        return {name: [shown(path) for path in paths] for name, paths in lists.items()}


def changes(before: Files, after: Files) -> Changes:
    return Changes(
        changed=tuple(sorted(path for path in after if path in before and after[path] != before[path])),
        added=tuple(sorted(after.keys() - before.keys())),
        deleted=tuple(sorted(before.keys() - after.keys())),
    )


def conflicts(paths: Iterable[str], base: Files, ours: Files, tip: Files) -> list[Rejected]:
    """Return the files that the newest revision has changed too, in another way."""
    reason = "changed by another changeset meanwhile: discard this one, and make the change in a new one"
    return [Rejected(shown(it), reason) for it in paths if tip.get(it) not in (base.get(it), ours.get(it))]


def ambiguous(paths: Iterable[str]) -> list[Rejected]:
    """Return the paths that are another one in another letter case or Unicode form, or below a file."""
    files = set(paths)
    names: dict[str, str] = {}
    found = []
    for path in sorted(files):
        parts = path.split("/")
        above = ["/".join(parts[:length]) for length in range(1, len(parts))]
        spelled = [names.setdefault(_folded(name), name) == name for name in (*above, path)]
        if not all(spelled) or not files.isdisjoint(above):
            found.append(Rejected(shown(path), "another file of the bundle has this name, but for letter case"))
    return found


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()


@dataclass(frozen=True, slots=True)
class AllowedFiles:
    """The files that an agent may change: those in the lists of its Swarm and of its Agent, both. An empty list allows
    no file. A pattern is a line of a `.gitignore` file: `prompts/*.md` is one level, `prompts/**` is all below, `*.md`
    is in any folder, `!` takes back. Capital letters count."""

    swarm: Sequence[str]
    agent: Sequence[str]

    def rejected(self, paths: Iterable[str]) -> list[Rejected]:
        """Return the paths that one of the lists does not allow, with the name of that list."""
        from pathspec import GitIgnoreSpec  # an extra, which `--help` does not need

        lists = [("Swarm", GitIgnoreSpec.from_lines(self.swarm)), ("Agent", GitIgnoreSpec.from_lines(self.agent))]
        return [
            Rejected(shown(path), f"not in the allow list of the {' and of the '.join(missing)}")
            for path in paths
            if (missing := [name for name, spec in lists if not spec.match_file(path)])
        ]
