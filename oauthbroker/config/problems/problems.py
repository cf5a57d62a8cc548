"""Collect the problems of a configuration, each with its place and its remedy, never the value."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.sentences import two_sentences

Keys = tuple[str | int, ...]
MAX_PROBLEMS: Final = 500
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """Where something is written. Line and column count from 1; 0 means the file as a whole."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigProblem:
    """One thing to fix. `what` and `hint` are our own words and words of our own tables. `root`: other problems may
    only follow from this one, so it comes first."""

    file: str
    line: int
    column: int
    path: str
    what: str
    hint: str
    code: Code = Code.CONFIG_INVALID
    root: bool = False

    @classmethod
    def at(
        cls,
        place: SourcePlace,
        path: str,
        what: str,
        hint: str,
        code: Code = Code.CONFIG_INVALID,
        *,
        root: bool = False,
    ) -> ConfigProblem:
        """Return a problem at a place; `path` is that of the field in the YAML."""
        line, column = place.line, place.column
        return cls(file=place.file, line=line, column=column, path=path, what=what, hint=hint, code=code, root=root)

    @property
    def place(self) -> SourcePlace:
        """Return file, line and column, each counted from 1."""
        return SourcePlace(self.file, self.line, self.column)

    def __str__(self) -> str:
        """`file:line:column path: What is wrong. What to do.`"""
        where = f"{self.place} {self.path}".strip()
        return f"{where}: {two_sentences(self.what, self.hint)}"

    def to_json(self) -> dict[str, str | int]:
        """Return the JSON of `oauthbroker check --json`."""
        return {
            "file": self.file,
            "line": self.line,
            "column": self.column,
            "path": self.path,
            "what": self.what,
            "hint": self.hint,
            "code": self.code.value,
        }


class ConfigInvalidError(BrokerError):
    """The configuration was refused as a whole. `problems` lists all of them: root causes, then the order of files."""

    def __init__(self, problems: Iterable[ConfigProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__(Code.CONFIG_INVALID, note=f"problems: {len(self.problems)}")

    def __str__(self) -> str:
        first, *others = self.problems
        count = f" (problems: {len(self.problems)})" if others else ""
        return "\n".join([f"{self.code.value}: {first}{count}", *map(str, others)])


@dataclass(slots=True)
class Problems:
    """Collects. `unread` says that a part of the bundle could not be read, so that absence proves nothing."""

    found: dict[ConfigProblem, None] = field(default_factory=dict)
    unread: bool = False

    def add(self, place: SourcePlace, path: str, what: str, hint: str, code: Code = Code.CONFIG_INVALID) -> None:
        self.take(ConfigProblem.at(place, path, what, hint, code))

    def take(self, problem: ConfigProblem) -> None:
        """Add a problem that was found before. Raises ConfigInvalidError when there are too many."""
        self.found.setdefault(problem)
        if len(self.found) >= MAX_PROBLEMS:
            place, what = SourcePlace(problem.file), f"more than {MAX_PROBLEMS} problems"
            self.found.setdefault(ConfigProblem.at(place, "", what, "fix these first", root=True))
            self.raise_if_any()

    def raise_if_any(self) -> None:
        """Raises ConfigInvalidError."""
        if self.found:
            raise ConfigInvalidError(sorted(self.found, key=lambda it: (not it.root, it.file, it.line, it.column)))


def dotted(keys: Keys) -> str:
    """`("spec", "scopes", 1)` as `spec.scopes[1]`; a key that does not look like a name is a question mark."""
    text = ""
    for key in keys:
        word = str(key) if _NAME.fullmatch(str(key)) else "?"
        text += f"[{key}]" if isinstance(key, int) else f".{word}" if text else word
    return text
