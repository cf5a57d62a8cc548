"""Revisions of the bundle: how changed files become one, and the folders from which a step reads its configuration.
The open changesets are locked git worktrees, of which git's own list is the only record."""

from __future__ import annotations

import fcntl
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from oauthbroker.tools.changesets.files import File, shown, write_folder
from oauthbroker.tools.changesets.git import Git, GitFailed

_PROPOSED: Final = "refs/changesets/"
_RAN: Final = "refs/ran/"
_NO_PARTS: Final = frozenset({"", ".", "..", ".git"})
_MODES: Final = {"100644": False, "100755": True}
ID: Final = re.compile(r"cs-[a-z0-9_]{8}")  # of a changeset
Gives = Callable[[Path], object]  # hands a folder to the user of agents


@dataclass(frozen=True, slots=True)
class Revision:
    """A revision of the bundle. `folder` has its files, and is never changed."""

    ref: str
    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Revisions:
    """The revisions on one branch. Their folders are below `root`. `in_use` is an open file, whose lock all processes
    that use them share until they end. The caller holds the repository's lock."""

    git: Git
    root: Path
    branch: str
    in_use: int

    def newest(self) -> str:
        return self.git.line("rev-parse", "--verify", f"refs/heads/{self.branch}^{{commit}}")

    def propose(self, name: str, parent: str, files: Mapping[str, File | None], message: str) -> str:
        """Write a commit on `parent` and return its id. The branch stays. A file that is None is deleted."""
        ref = _PROPOSED + name
        parts = [f"commit {ref}\ncommitter oauthbroker <changesets@oauthbroker.invalid> now\n".encode()]
        parts += [_data(message.encode()), f"from {parent}\n".encode()]
        parts += [*(_written(path, file) for path, file in files.items()), b"done\n"]
        self.git("fast-import", "--quiet", "--done", "--force", "--date-format=now", stdin=b"".join(parts))
        return self.git.line("rev-parse", "--verify", ref)

    def accept(self, name: str, parent: str, commit: str) -> None:
        """Make a proposed commit the newest revision, if `parent` still is. Raises GitFailed if it is not."""
        ends = f"update refs/heads/{self.branch} {commit} {parent}\ndelete {_PROPOSED}{name}\n"
        self.git("update-ref", "--stdin", stdin=f"start\n{ends}prepare\ncommit\n".encode())

    def note_ran(self, commit: str, agent: Sequence[str]) -> None:
        """Point the refs of an agent, and of all agents, at a revision with which it has run."""
        refs = [f"update {_ran(each)} {commit}\n" for each in (agent, ())]
        self.git("update-ref", "--stdin", stdin="".join(refs).encode())

    def last_ran(self, agent: Sequence[str]) -> str | None:
        """Return the id of the last revision with which an agent has run; of an empty name, any agent."""
        return self.git.line("for-each-ref", "--format=%(objectname)", _ran(agent)) or None

    def drop_proposed(self, name: str = "") -> None:
        """Remove a proposed commit; without a name, all that were not accepted."""
        refs = self.git.line("for-each-ref", "--format=delete %(refname)", f"{_PROPOSED}{name}")
        self.git("update-ref", "--stdin", stdin=f"{refs}\n".encode() if refs else b"")

    def folder(self, commit: str) -> Path:
        """Return the folder of a revision, written whole or not at all."""
        place = self.root / commit
        if not place.is_dir():
            temporary = Path(tempfile.mkdtemp(prefix=".new-", dir=self.root))
            write_folder(temporary, files_at(self.git, commit))
            temporary.rename(place)
        return place

    def drop_folders(self) -> None:
        """Remove the folders of all revisions but the newest, unless another process may use one of them."""
        from filelock import lock_descriptor

        alone, newest = lock_descriptor(self.in_use, blocking=False), self.newest()
        fcntl.flock(self.in_use, fcntl.LOCK_SH)
        for folder in self.root.iterdir() if alone else ():
            if folder.name != newest:
                shutil.rmtree(folder, ignore_errors=True)


def _ran(agent: Sequence[str]) -> str:
    """Return the ref of an agent's last revision. Names are free texts, and a ref is not."""
    return f"{_RAN}{sha256(json.dumps(agent).encode()).hexdigest()}"


def files_at(git: Git, revision: str) -> dict[str, File]:
    """Return the files of a revision. Raises GitFailed for a revision with links or submodules."""
    found: dict[str, tuple[str, bool]] = {}
    for line in git.lines("ls-tree", "-r", "-z", "--full-tree", revision):
        about, _, path = line.partition("\t")
        mode, _, blob = about.split(" ")
        if mode not in _MODES:
            raise GitFailed(f"the bundle's repository has a symbolic link or a submodule: {shown(path)}")
        if not _NO_PARTS.isdisjoint(path.casefold().split("/")):
            raise GitFailed(f"the bundle's repository has a path that is none: {shown(path)}")
        found[path] = blob, _MODES[mode]
    wanted = "".join(f"{blob}\n" for blob, _ in found.values())
    output, at, files = git("cat-file", "--batch", stdin=wanted.encode()), 0, {}
    for path, (_, executable) in found.items():
        head, _, _ = output[at : at + 200].partition(b"\n")
        begin = at + len(head) + 1
        at = begin + int(head.rsplit(b" ", 1)[1]) + 1
        files[path] = File(output[begin : at - 1], executable)
    return files


def _written(path: str, file: File | None) -> bytes:
    quoted = path.encode()  # `unfit_name` lets neither quotes nor backslashes nor newlines through
    if file is None:
        return b'D "%s"\n' % quoted
    return b'M %s inline "%s"\n' % (b"100755" if file.executable else b"100644", quoted) + _data(file.content)


def _data(content: bytes) -> bytes:
    return b"data %d\n%s\n" % (len(content), content)


@dataclass(frozen=True, slots=True, kw_only=True)
class Worktree:
    """An open changeset. `base` is the revision that it began with, `owner` the agent instance that opened it."""

    id: str
    base: str
    owner: str
    folder: Path


@dataclass(frozen=True, slots=True)
class Worktrees:
    """Opens, lists and closes worktrees below `root`. The caller holds the repository's lock. A worktree has no `.git`
    file, so that an agent's git commands do not find the repository. It counts once it is locked: an unlocked one was
    left by a crash while it was opened."""

    git: Git
    root: Path

    def open(self, base: str, owner: str, give: Gives) -> Worktree:
        """Make a worktree of a revision. It counts after `give`, so that its owner can write each one that is open."""
        folder = Path(tempfile.mkdtemp(prefix="cs-", dir=self.root))
        self.git("worktree", "add", "--detach", "--no-checkout", str(folder), base)
        (folder / ".git").unlink()
        write_folder(folder, files_at(self.git, base))
        give(folder)
        self.git("worktree", "lock", "--reason", json.dumps(owner), str(folder))
        return Worktree(id=folder.name, base=base, owner=owner, folder=folder)

    def all(self) -> list[Worktree]:
        found, about = [], dict[str, str]()
        for line in [*self.git.lines("worktree", "list", "--porcelain", "-z"), "worktree"]:
            name, _, value = line.partition(" ")
            if name == "worktree":
                found += self._of(about)
                about = {}
            about[name] = value
        return found

    def close(self, worktree: Worktree) -> None:
        """Remove a worktree. Idempotent after a crash in between."""
        self.git("worktree", "unlock", str(worktree.folder))
        self.remove_incomplete()

    def remove_incomplete(self) -> None:
        """Remove worktrees that are not locked, and folders that are no worktree."""
        known = {each.folder for each in self.all()}
        for folder in self.root.iterdir():
            if folder not in known:
                shutil.rmtree(folder, ignore_errors=True)
        self.git("worktree", "prune", "--expire", "now")

    def _of(self, about: dict[str, str]) -> list[Worktree]:
        folder = Path(about.get("worktree", ""))
        if "locked" not in about or folder.parent != self.root or not ID.fullmatch(folder.name):
            return []
        owner = _owner(about["locked"])
        return [Worktree(id=folder.name, base=about["HEAD"], owner=owner, folder=folder)]


def keep(_folder: Path) -> None:
    """Keep a folder: the runtime and its agents have one user."""


def _owner(reason: str) -> str:
    """Return the owner of a worktree from the reason of its lock. Git trims reasons and ends them at a newline, so an
    owner is written as JSON. A reason that is none belongs to no owner of today."""
    try:
        return str(json.loads(reason))
    except ValueError:
        return ""
