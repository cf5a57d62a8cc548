"""Open and commit changesets. The runtime is the only writer of the bundle, and git's history its only log."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

from oauthbroker.tools.changesets import files
from oauthbroker.tools.changesets.files import AllowedFiles, Changes, Folder, Rejected
from oauthbroker.tools.changesets.git import Busy, Git, GitFailed
from oauthbroker.tools.changesets.revisions import Gives, Revision, Revisions, Worktree, Worktrees, files_at, keep
from oauthbroker.tools.isolation.containment import detect_containment
from oauthbroker.tools.types.failures import ToolCode, ToolFailure

MOST_OPEN: Final = 8  # changesets of one owner
MOST_TRIES: Final = 5  # of one commit, while others are committed
_REF: Final = "git:"
ChecksBundle = Callable[[Path], Sequence[str]]
FAILURES: Final = (GitFailed, Busy, OSError)


class ChangesetRefused(ToolFailure):
    """The changeset is not open, belongs to another owner, or is one too many."""

    def __init__(self, message: str) -> None:
        super().__init__(message, name="ChangesetRefused", code=ToolCode.CHANGESET)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """The answer to a commit. `base` and `new` are ids of revisions; `problems` are those of the bundle as a whole."""

    status: Literal["ok", "rejected", "failed"]
    base: str
    new: str = ""
    changes: Changes = field(default_factory=Changes)
    rejected: Sequence[Rejected] = ()
    problems: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        refs = {"baseRef": ref(self.base), "newRef": ref(self.new) if self.new else None}
        lists = {"rejected": [each._asdict() for each in self.rejected], "problems": list(self.problems)}
        given = {name: found for name, found in lists.items() if found}
        return {"status": self.status, **refs, "summary": self.changes.to_json(), **given}


@dataclass(frozen=True, slots=True)
class Changesets:
    """The changesets of one repository. Its methods block. `check` returns the problems of a bundle's folder."""

    revisions: Revisions
    worktrees: Worktrees
    check: ChecksBundle

    def open(self, owner: str, give: Gives = keep) -> Worktree:
        """Open a changeset, whose folder `give` hands to its owner. Raises ChangesetRefused, and one of FAILURES."""
        with self._git.locked():
            if len(mine := self._open(owner)) >= MOST_OPEN:
                ids = ", ".join(each.id for each in mine)
                raise ChangesetRefused(f"{MOST_OPEN} changesets are open: commit or discard one of them: {ids}")
            return self.worktrees.open(self.revisions.newest(), owner, give)

    def folders(self, owner: str) -> list[Path]:
        """Return the folders of the changesets that an owner has open."""
        with self._git.locked():
            return [each.folder for each in self._open(owner)]

    def discard(self, changeset: str, owner: str) -> None:
        """Close a changeset, and drop its changes. Raises as `commit`."""
        with self._git.locked():
            self.worktrees.close(self._found(changeset, owner))

    def commit(self, changeset: str, owner: str, allowed: AllowedFiles, message: str) -> Commit:
        """Make a revision of a changeset, and close it. A changeset that is rejected or has failed stays open, for
        another try. Raises ChangesetRefused and, before anything is done, one of FAILURES."""
        with self._git.locked():
            worktree = self._found(changeset, owner)
        reason = "other changesets were committed meanwhile, again and again: commit it again"
        try:
            for _ in range(MOST_TRIES):
                if (commit := self._tried(worktree, allowed, message)) is not None:
                    return commit
        except FAILURES as error:
            reason = str(error) if isinstance(error, GitFailed) else type(error).__name__
        return Commit(status="failed", base=worktree.base, problems=[reason])

    def ran(self, revision: str, agent: Sequence[str]) -> None:
        """Note in git that an agent has run with a revision."""
        with self._git.locked():
            self.revisions.note_ran(revision.removeprefix(_REF), agent)

    def last_ran(self, agent: Sequence[str] = ()) -> Revision | None:
        """Return the last revision with which an agent has run; without a name, any agent."""
        with self._git.locked():
            commit = self.revisions.last_ran(agent)
            return None if commit is None else self._revision(commit)

    def newest(self) -> Revision:
        """Return the newest revision. It becomes active at `step.config`, the safe point, and nowhere else."""
        with self._git.locked():
            return self._revision(self.revisions.newest())

    def recover(self) -> None:
        """Remove what a crash left. Call it before the first step, while no step of this runtime uses a revision."""
        with self._git.locked():
            self.revisions.drop_proposed()
            self.revisions.drop_folders()
            self.worktrees.remove_incomplete()

    @property
    def root(self) -> Path:
        """The folder of worktrees and revisions."""
        return self.worktrees.root.parent

    @property
    def _git(self) -> Git:
        return self.revisions.git

    def _open(self, owner: str) -> list[Worktree]:
        """Return the changesets that an owner has open. Under the lock: git writes its list in several steps."""
        return [each for each in self.worktrees.all() if each.owner == owner]

    def _found(self, changeset: str, owner: str) -> Worktree:
        by_id = {each.id: each for each in self._open(owner)}
        if (found := by_id.get(changeset)) is not None:
            return found
        text = "no changeset of this agent has this id: it was committed or discarded, or never opened"
        raise ChangesetRefused(f"{text}; open are {', '.join(by_id) or 'none'}")

    def _revision(self, commit: str) -> Revision:
        return Revision(ref(commit), self.revisions.folder(commit))

    def _tried(self, worktree: Worktree, allowed: AllowedFiles, message: str) -> Commit | None:
        """Propose a revision, check it, and accept it; None if the branch has moved meanwhile. The lock is free while
        it is checked: that runs its code, and every step of every agent asks for the newest revision."""
        from oauthbroker.tools.changesets.trial import left_out

        with self._git.locked():
            commit = self._proposed(worktree, allowed, message)
            if commit.status == "ok" and commit.new == self.revisions.newest():
                self.worktrees.close(worktree)
                return commit
            if commit.status != "ok":
                return commit
            tip = self.revisions.newest()
            before, folder = self.revisions.folder(tip), self.revisions.folder(commit.new)
        problems = [each.replace(f"{folder}/", "") for each in self.check(folder) or left_out(before, folder)]
        with self._git.locked():
            if problems:
                self.revisions.drop_proposed(worktree.id)
                return replace(commit, status="rejected", new="", problems=problems)
            if self.revisions.newest() != tip:
                return None
            self.revisions.accept(worktree.id, tip, commit.new)
            self.worktrees.close(worktree)
            return commit

    def _proposed(self, worktree: Worktree, allowed: AllowedFiles, message: str) -> Commit:
        """Return the commit that a changeset would become: without changes, the newest revision."""
        found = files.read_folder(worktree.folder)
        ours, base, tip = found.files, files_at(self._git, worktree.base), self.revisions.newest()
        newest = files_at(self._git, tip)
        made = files.changes(base, ours)
        validated = Commit(status="rejected", base=worktree.base, changes=made)
        pending = [path for path in made.paths if newest.get(path) != ours.get(path)]
        merged = {path for path in (*newest, *pending) if path in ours or path not in pending}
        moved = [*files.conflicts(made.paths, base, ours, newest), *files.ambiguous(merged)]
        if rejected := _rejected(found, made, allowed, moved):
            return replace(validated, rejected=rejected)
        new = tip
        if pending:
            new = self.revisions.propose(worktree.id, tip, {path: ours.get(path) for path in pending}, message)
        return replace(validated, status="ok", new=new)


def ref(commit: str) -> str:
    """Return how a revision is named in answers."""
    return f"{_REF}{commit}"


def open_changesets(
    repository: Path,
    root: Path,
    check: ChecksBundle | None = None,
    *,
    apart_from: Sequence[Path] = (),
    user: int | None = None,
    branch: str = "main",
) -> Changesets:
    """Return the changesets of a bare repository, with worktrees and revisions below `root`. Without a `check`, a
    bundle is checked by its resources and by loading its code in a sandbox, as the `user` of agents. Raises ValueError
    if a path of `apart_from` (`broker.bundle.state_places`) shares a parent folder with `root`, if a work tree of the
    repository has the branch checked out, and for a runtime that is root and names no `user`."""
    from pathspec import GitIgnoreSpec  # noqa: F401  (where the extra is missing, say so before the first changeset)

    from oauthbroker.tools.changesets.trial import bundle_problems  # an agent's process starts without it

    if check is None:
        check = partial(bundle_problems, containment=detect_containment(user=user, hidden=apart_from))
    root, git = root.resolve(), Git(repository.resolve())
    check_apart(root, apart_from)
    if f"branch refs/heads/{branch}" in git.lines("worktree", "list", "--porcelain", "-z"):
        raise ValueError("a work tree has this branch checked out: make a bare repository with `git clone --bare`")
    for name in ("worktrees", "revisions"):
        (root / name).mkdir(mode=0o700, parents=True, exist_ok=True)
    in_use = os.open(root / "revisions" / ".in-use", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    revisions = Revisions(git=git, root=root / "revisions", branch=branch, in_use=in_use)
    changesets = Changesets(revisions, Worktrees(git, root / "worktrees"), check)
    changesets.recover()
    return changesets


def check_apart(root: Path, state: Iterable[Path]) -> None:
    """Raise ValueError if a secret place of the broker shares a parent folder with the changesets."""
    for path in [each.resolve() for each in state]:
        if path.is_relative_to(root.parent) or root.is_relative_to(path.parent):
            raise ValueError(
                "store.root, a file of keys, the API's socket or a database of a plug-in shares a parent folder with"
                " changesets: write another absolute path"
            )


def _rejected(found: Folder, made: Changes, allowed: AllowedFiles, moved: list[Rejected]) -> list[Rejected]:
    """Return every file that cannot become part of the bundle, each once."""
    by_file: dict[str, Rejected] = {}
    unfit = [Rejected(files.shown(path), reason) for path in made.paths if (reason := files.unfit_name(path))]
    for each in (*found.rejected, *unfit, *allowed.rejected(made.paths), *moved):
        by_file.setdefault(each.file, each)
    return list(by_file.values())
