"""The open changesets of a repository: its locked git worktrees. Git's own list is the only record of them.

A worktree has no `.git` file, so that an agent's git commands do not find the repository. It counts once it is locked:
an unlocked one was left by a crash while it was opened.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from oauthbroker.tools.changesets.files import write_folder
from oauthbroker.tools.changesets.git import Git
from oauthbroker.tools.changesets.revisions import files_at

Gives = Callable[[Path], object]  # hands a folder to the user of agents
ID: Final = re.compile(r"cs-[a-z0-9_]{8}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Worktree:
    """An open changeset. `base` is the revision that it began with, `owner` the agent instance that opened it."""

    id: str
    base: str
    owner: str
    folder: Path


@dataclass(frozen=True, slots=True)
class Worktrees:
    """Opens, lists and closes worktrees below `root`. The caller holds the repository's lock."""

    git: Git
    root: Path

    def open(self, base: str, owner: str, give: Gives) -> Worktree:
        """Make a worktree with the files of the revision `base`. It counts after `give`, so that its owner can write
        each one that is open."""
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
