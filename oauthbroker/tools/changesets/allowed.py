"""Which files an agent may change: the lists of its Swarm and of its Agent, both.

A pattern is a line of a `.gitignore` file, with its meaning there: `prompts/*.md` is one level, `prompts/**` is all
below, `*.md` is in any folder, `!` takes back. Capital letters count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pathspec import GitIgnoreSpec

from oauthbroker.tools.changesets.files import Rejected, shown


@dataclass(frozen=True, slots=True)
class AllowedFiles:
    """The patterns of both resources. An empty list allows no file."""

    swarm: Sequence[str]
    agent: Sequence[str]

    def rejected(self, paths: Iterable[str]) -> list[Rejected]:
        """Return the paths that one of the lists does not allow, with the name of that list."""
        lists = [("Swarm", GitIgnoreSpec.from_lines(self.swarm)), ("Agent", GitIgnoreSpec.from_lines(self.agent))]
        return [
            Rejected(shown(path), f"not in the allow list of the {' and of the '.join(missing)}")
            for path in paths
            if (missing := [name for name, spec in lists if not spec.match_file(path)])
        ]
