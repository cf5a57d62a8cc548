"""Real repositories of bundles, and changesets on them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from oauthbroker.audit import AuditEntry
from oauthbroker.tools.changesets.changesets import Changesets, Commit, open_changesets
from oauthbroker.tools.changesets.files import AllowedFiles

OWNER = "planner/thread-1"
EVERYTHING = AllowedFiles(["**"], ["**"])
BUNDLE = {"agents/planner.yaml": "kind: Agent\n", "prompts/planner.md": "Plan.\n", "run.sh": "#!/bin/sh\n"}


def git(repository: Path, *arguments: str, stdin: str = "") -> str:
    """Run git as an operator does."""
    command = ["git", "-C", str(repository), "-c", "user.name=op", "-c", "user.email=op@example.com", *arguments]
    return subprocess.run(
        command, input=stdin, capture_output=True, text=True, errors="replace", check=True
    ).stdout.strip()


def bare_repository(root: Path, files: dict[str, str] = BUNDLE) -> Path:
    """Make a bundle's repository with one revision on `main`."""
    work, bare = root / "work", root / "bundle.git"
    work.mkdir(parents=True)
    git(work, "init", "-q", "-b", "main")
    for path, text in files.items():
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_text(text, "utf-8")
    if "run.sh" in files:
        (work / "run.sh").chmod(0o755)
    git(work, "add", "-A")
    git(work, "commit", "-q", "--allow-empty", "-m", "first")
    git(work, "clone", "-q", "--bare", ".", str(bare))
    return bare


def no_problem(_folder: Path) -> Sequence[str]:
    return []


@dataclass
class Desk:
    """A repository and its changesets, with short forms for what tests do."""

    repository: Path
    root: Path
    changesets: Changesets
    trail: list[AuditEntry] = field(default_factory=list)

    @classmethod
    def made(cls, root: Path, check: Callable[[Path], Sequence[str]] = no_problem, **files: str) -> Desk:
        return cls.of(bare_repository(root, {**BUNDLE, **files}), root / "system", check)

    @classmethod
    def of(cls, repository: Path, root: Path, check: Callable[[Path], Sequence[str]] = no_problem) -> Desk:
        return cls(repository, root, open_changesets(repository, root, check))

    def again(self) -> Changesets:
        """Open the changesets as another process does."""
        return open_changesets(self.repository, self.root, self.changesets.check)

    def commit(self, changeset: str, allowed: AllowedFiles = EVERYTHING) -> Commit:
        return self.changesets.commit(changeset, OWNER, allowed, "why")

    def tip(self) -> str:
        return git(self.repository, "rev-parse", "main")

    def text(self, path: str) -> str:
        return git(self.repository, "show", f"main:{path}")

    def files(self) -> list[str]:
        return git(self.repository, "ls-tree", "-rz", "--name-only", "main").strip("\0").split("\0")

    def worktrees(self) -> list[Path]:
        return list((self.root / "worktrees").iterdir())
