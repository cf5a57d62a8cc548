"""The difference between a revision and the files of a changeset, and which of them an agent may change."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from oauthbroker.tools.changesets.files import File, Rejected, shown

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
    """Return the difference of two sets of files."""
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
