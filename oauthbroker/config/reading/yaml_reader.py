"""Read YAML text into plain data that remembers the place of every value.

Strict on purpose, for our resources: no tags, anchors, aliases, merge keys or duplicate keys, a depth limit, and no
value that two versions of YAML read differently (`0123`, `yes`, `1:20`, `2026-01-01`) before it is quoted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

from oauthbroker.config.problems.problems import MAX_PROBLEMS, ConfigProblem, Keys, Problems, SourcePlace, dotted
from oauthbroker.config.reading.foreign_resources import is_foreign
from oauthbroker.config.reading.yaml_scalars import UNREADABLE, not_meant, scalar
from oauthbroker.config.written.kinds import OURS, Kinds
from oauthbroker.core.dataclasses import dataclass, field

MAX_DEPTH: Final = 32
MAX_PARSED_DEPTH: Final = 128  # of any program's resource: a parser's work grows with the square of the depth
_OPENING: Final = (yaml.MappingStartEvent, yaml.SequenceStartEvent)
_CLOSING: Final = (yaml.MappingEndEvent, yaml.SequenceEndEvent)
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SYNTAX_ADVICE = "check indentation, quotes and brackets around this place"


@dataclass(frozen=True, slots=True, kw_only=True)
class YamlDocument:
    """One YAML document. `values` and `keys` map a path to its (line, column), counted from 1. `foreign`: another
    program reads it, with all of YAML. `respelt`: the path of a field that was meant, and its written word.
    `variables`: the place of each value that is not from the file."""

    file: str
    folder: Path
    data: Any = field(repr=False)
    values: dict[Keys, tuple[int, int]] = field(repr=False)
    keys: dict[Keys, tuple[int, int]] = field(repr=False)
    foreign: bool = False
    respelt: dict[Keys, str] = field(default_factory=dict, repr=False)
    variables: dict[Keys, str] = field(default_factory=dict, repr=False)

    @property
    def kind(self) -> Any:
        """Return the kind as it is written; None in a resource of another program, and where no mapping is written."""
        return None if self.foreign or not isinstance(self.data, dict) else self.data.get("kind")

    def value_at(self, path: Keys) -> SourcePlace:
        """Return the place of a value; for a missing one, of the nearest key around it."""
        if beyond := self._variable(path):
            return beyond
        path = self._as_written(path)
        if path in self.values:
            return SourcePlace(self.file, *self.values[path])
        while path and path not in self.values:
            path = path[:-1]
        return self.key_at(path)

    def key_at(self, path: Keys) -> SourcePlace:
        """Return the place of a key; of its value or of the document's begin where it has none."""
        if beyond := self._variable(path):
            return beyond
        path = self._as_written(path)
        return SourcePlace(self.file, *(self.keys.get(path) or self.values.get(path) or (1, 1)))

    def _variable(self, path: Keys) -> SourcePlace | None:
        """Return the place of the variable that a value came from."""
        found = (self.variables[path[:at]] for at in range(len(path), -1, -1) if path[:at] in self.variables)
        return next((SourcePlace(each) for each in found), None) if self.variables else None

    def _as_written(self, path: Keys) -> Keys:
        """Return the path with the words that are written."""
        return tuple(self.respelt.get(path[: at + 1], step) for at, step in enumerate(path)) if self.respelt else path


@dataclass(slots=True, kw_only=True)
class _OpenNode:
    """A mapping or list whose end has not come yet. `key` is the pending key of a mapping."""

    path: Keys
    data: Any
    key: str | None = None
    waits_for_value: bool = False


@dataclass(slots=True, kw_only=True)
class _Builder:
    """Builds the documents of one file from parse events; no recursion, so depth is ours to limit.

    A document's problems are kept until its end, when it is known whether it is ours. `below` counts the
    levels that are open beyond the limit, `texts` are the anchored scalars, by which a foreign resource may be named.
    """

    file: str
    folder: Path
    problems: Problems
    kinds: Kinds
    documents: list[YamlDocument] = field(default_factory=list)
    stack: list[_OpenNode] = field(default_factory=list)
    values: dict[Keys, tuple[int, int]] = field(default_factory=dict)
    keys: dict[Keys, tuple[int, int]] = field(default_factory=dict)
    root: Any = None
    wrong: dict[ConfigProblem, None] = field(default_factory=dict)
    texts: dict[str, Any] = field(default_factory=dict)
    below: int = 0

    @property
    def too_deep(self) -> bool:
        """Return whether to stop parsing the file."""
        return len(self.stack) + self.below > MAX_PARSED_DEPTH

    def refuse(self, event: Any, what: str, hint: str, *, root: bool = False) -> None:
        if len(self.wrong) <= MAX_PROBLEMS:
            place, path = SourcePlace(self.file, *_start(event)), dotted(self.kinds.masked(self.path()))
            self.wrong.setdefault(ConfigProblem.at(place, path, what, hint, root=root))

    def validate(self) -> bool:
        """Return whether the document is foreign, and may use all of YAML. Problems of ours are reported."""
        foreign = bool(self.kinds.readers) and is_foreign(self.root, self.kinds)  # a plug-in's own file has no kinds
        for problem in () if foreign else self.wrong:
            self.problems.take(problem)
        self.wrong = {}
        return foreign

    def path(self) -> Keys:
        """Return the path of the value that comes next."""
        if not self.stack:
            return ()
        top = self.stack[-1]
        if isinstance(top.data, list):
            return (*top.path, len(top.data))
        return (*top.path, top.key) if top.key is not None else top.path

    def event(self, event: Any) -> None:
        if self.below:
            self.below += isinstance(event, _OPENING) - isinstance(event, _CLOSING)
            return
        match event:
            case yaml.DocumentStartEvent():
                self.values, self.keys, self.root, self.texts = {}, {}, None, {}
            case yaml.DocumentEndEvent():
                foreign = self.validate()
                if self.root is not None:
                    self.documents.append(
                        YamlDocument(
                            file=self.file,
                            folder=self.folder,
                            data=self.root,
                            values=self.values,
                            keys=self.keys,
                            foreign=foreign,
                        )
                    )
            case yaml.AliasEvent():
                self.refuse(event, "YAML aliases are not read", "write the value out here")
                self.place(event, self.texts.get(str(event.anchor), UNREADABLE))
            case yaml.ScalarEvent():
                value = UNREADABLE if self.decorated(event) else scalar(event)
                if found := not_meant(event):
                    self.refuse(event, *found)
                self.texts[str(event.anchor)] = value
                self.place(event, value)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self.open(event)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self.stack.pop()

    def decorated(self, event: Any) -> bool:
        """Refuse anchors and tags; true if the value cannot be used because of them."""
        if event.anchor is not None:
            self.refuse(event, "YAML anchors are not read", "remove the & name")
        if event.tag is not None:
            self.refuse(event, "YAML tags are not read", "remove the ! tag")
        return event.tag is not None

    def open(self, event: Any) -> None:
        if len(self.stack) >= MAX_DEPTH:
            self.refuse(event, f"nested deeper than {MAX_DEPTH} levels", "flatten it")
            self.place(event, UNREADABLE)
            self.below = 1
            return
        unusable = self.decorated(event)
        container: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
        top = self.stack[-1] if self.stack else None
        if top is not None and isinstance(top.data, dict) and not top.waits_for_value:
            self.refuse(event, "a key is not text", "write a plain word before the colon")
            top.waits_for_value, top.key = True, None
            self.stack.append(_OpenNode(path=top.path, data=container))
            return
        path = self.path()
        self.place(event, UNREADABLE if unusable and self.stack else container)
        self.stack.append(_OpenNode(path=path, data=container))

    def place(self, event: Any, value: Any) -> None:
        """Put a value, or a key, where it belongs."""
        mark = _start(event)
        if not self.stack:
            self.root, self.values[()] = value, mark
            return
        top = self.stack[-1]
        if isinstance(top.data, list):
            self.values[*top.path, len(top.data)] = mark
            top.data.append(value)
        elif not top.waits_for_value:
            self.take_key(event, value, mark)
        else:
            if top.key is not None:
                self.values[*top.path, top.key] = mark
                top.data[top.key] = value
            top.key, top.waits_for_value = None, False

    def take_key(self, event: Any, value: Any, mark: tuple[int, int]) -> None:
        """Take the next key. One that cannot be used leaves `key` at None: its value is then read and dropped."""
        top = self.stack[-1]
        top.waits_for_value, top.key = True, None
        if not isinstance(value, str):
            if value is not UNREADABLE:
                self.refuse(event, "a key is not text", "put the key into quotes")
        elif value in top.data:
            self.refuse(event, "the same key is written twice in one mapping", "keep one of them", root=True)
        else:
            top.key = value
            self.keys[*top.path, value] = mark


def read(text: str, file: str, folder: Path, problems: Problems, kinds: Kinds = OURS) -> list[YamlDocument]:
    """Return the documents of one file. Problems are reported; complete documents before them are kept."""
    builder = _Builder(file=file, folder=folder, problems=problems, kinds=kinds)
    place: SourcePlace | None = None
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.event(event)
            if builder.too_deep:
                _refuse_deep(builder, event)
                break
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = SourcePlace(file, mark.line + 1, mark.column + 1) if mark else SourcePlace(file, 1, 1)
    except (yaml.YAMLError, ValueError):
        place = SourcePlace(file, 1, 1)
    if place is not None:
        problems.unread = True
        if builder.validate() or not builder.below:  # a value that is too deep was refused already
            problems.take(_syntax_problem(text, place))
    return builder.documents


def _refuse_deep(builder: _Builder, event: Any) -> None:
    """Refuse the rest of a file, also where the document is another program's. In ours, the level beyond `MAX_DEPTH`
    was refused already."""
    builder.problems.unread = True
    if builder.validate():
        place, what = SourcePlace(builder.file, *_start(event)), f"nested deeper than {MAX_PARSED_DEPTH} levels"
        builder.problems.take(ConfigProblem.at(place, "", what, "flatten it", root=True))


def _start(event: Any) -> tuple[int, int]:
    """Return the line and the column of an event, counted from 1."""
    return event.start_mark.line + 1, event.start_mark.column + 1


def _syntax_problem(text: str, place: SourcePlace) -> ConfigProblem:
    """Return the problem behind a parser's error. A tab in the indentation is named."""
    lines = text.splitlines()
    for at in (place.line, place.line - 1):
        found = lines[at - 1] if 1 <= at <= len(lines) else ""
        margin = found[: len(found) - len(found.lstrip(" \t"))]
        if "\t" in margin:
            tab = SourcePlace(place.file, at, margin.index("\t") + 1)
            return ConfigProblem.at(tab, "", "a tab in the indentation", "indent with spaces", root=True)
    return ConfigProblem.at(place, "", "this is not well-formed YAML", _SYNTAX_ADVICE, root=True)
