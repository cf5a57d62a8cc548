"""Read a JSON or YAML text into plain data that remembers the line and column of every value."""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from oauthbroker import BrokerError, Code
from oauthbroker.flowtools.specification.json_faults import json_fault
from oauthbroker.plugins import decode_json, two_sentences

Keys = tuple[str | int, ...]
MOST_BYTES: Final = 1024 * 1024
MOST_DEPTH: Final = 32
MOST_VALUES: Final = 20_000
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TOKEN = re.compile(r'[ \t\r\n]*("(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\],:"]+)')
_PLACE = re.compile(r"line (\d+), column (\d+)")
_INT, _FLOAT = (
    re.compile(r"-?(0|[1-9][0-9]{0,17})"),
    re.compile(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?([eE][-+]?[0-9]{1,2})?"),
)
_WORDS: Final = {"": None, "~": None, "null": None, "true": True, "false": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowProblem:
    """One thing to fix in a document. Line and column count from 1."""

    file: str
    line: int
    column: int
    path: str
    what: str
    hint: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}:{self.column}"
        return f"{where}{' ' if self.path else ''}{self.path}: {two_sentences(self.what, self.hint)}"


class FlowRefused(ValueError):
    """A document was refused as a whole. `problems` has everything that was found, in the order of the file."""

    def __init__(self, problems: Iterable[FlowProblem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda each: (each.file, each.line, each.column)))
        super().__init__("\n".join(map(str, self.problems)))


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSource:
    """A document as written. `places` maps a path to its (line, column), `digest` is the SHA-256 of its bytes."""

    file: str
    data: Any
    places: dict[Keys, tuple[int, int]] = field(repr=False)
    digest: str

    def problem(self, path: Keys, what: str, hint: str) -> FlowProblem:
        """Return a problem at a path, or at the nearest value around it."""
        at = path
        while at and at not in self.places:
            at = at[:-1]
        line, column = self.places.get(at, (1, 1))
        shown = "".join(f"[{each}]" if isinstance(each, int) else f".{each[:64]!s}" for each in path).lstrip(".")
        return FlowProblem(file=self.file, line=line, column=column, path=printable(shown), what=what, hint=hint)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return what to do about a name that is not known; empty if none that is known looks like it."""
    close = difflib.get_close_matches(name, list(known), 1)
    return f"the nearest known name is {close[0]}" if close else ""


def printable(text: str) -> str:
    """Return a text without control characters, for messages."""
    return "".join(each if each.isprintable() else "?" for each in text)


def read_source(raw: bytes, file: str) -> FlowSource:
    """Read one document: YAML where the file's name ends in `.yaml` or `.yml`, else JSON. Raises FlowRefused."""

    def refuse(what: str, hint: str, line: int = 1, column: int = 1) -> FlowRefused:
        return FlowRefused([FlowProblem(file=file, line=line, column=column, path="", what=what, hint=hint)])

    if len(raw) > MOST_BYTES:
        raise refuse(f"more than {MOST_BYTES} bytes", "split it")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise refuse("no UTF-8", "save it as UTF-8") from None
    if file.endswith((".yaml", ".yml")):
        data, places = _Yaml(refuse).read(text)
    else:
        _limit(text, refuse)
        try:
            data = decode_json(raw, Code.REQUEST_INVALID, most_values=MOST_BYTES)
        except BrokerError as error:
            note = error.note or "not strict JSON"
            if note.endswith("a name twice"):
                raise refuse("the same key is written twice in one object", "keep one", *_twice(text)) from None
            found = _PLACE.search(note)
            at = (int(found[1]), int(found[2])) if found else (1, 1)
            raise refuse(note, "correct the JSON", *at) from None
        places = {path: where for path, _, where in _json_places(text)}
    if len(places) > MOST_VALUES:
        raise refuse(f"more than {MOST_VALUES} values", "split it")
    source = FlowSource(file=file, data=data, places=places, digest=hashlib.sha256(raw).hexdigest())
    if (fault := json_fault(data)) is not None:
        raise FlowRefused([source.problem(fault[0], f"a value that no flow takes ({fault[1]})", "write another one")])
    return source


def _limit(text: str, refuse: Any) -> None:
    """Refuse what nests too deep, before a parser recurses into it."""
    depth = 0
    for token, where in _tokens(text):
        depth += (token in "{[") - (token in "}]")
        if depth > MOST_DEPTH:
            raise refuse(f"nested deeper than {MOST_DEPTH} levels", "flatten it", *where)


def _tokens(text: str) -> Iterator[tuple[str, tuple[int, int]]]:
    line, begin, at = 1, 0, 0
    while found := _TOKEN.match(text, at):
        start = found.start(1)
        newlines = text.count("\n", at, start)
        if newlines:
            line, begin = line + newlines, text.rindex("\n", at, start) + 1
        yield found[1], (line, start - begin + 1)
        at = found.end()


def _json_places(text: str) -> Iterator[tuple[Keys, bool, tuple[int, int]]]:
    """Yield (path, whether it is a key, place) of all values of a JSON text, and of all keys."""
    stack: list[tuple[Keys, bool]] = []  # (path of the container, whether it is an object)
    path: Keys = ()
    is_key = False
    for token, where in _tokens(text):
        if token in "}]":
            path, _ = stack.pop()
        elif token == ":":
            is_key = False
        elif token == ",":
            above, is_object = stack[-1]
            last = path[-1]
            path, is_key = (above, True) if is_object else ((*above, int(last) + 1), False)
        elif is_key:
            path = (*path, json.loads(token))
            yield path, True, where
        else:
            yield path, False, where
            if token in "{[":
                stack.append((path, token == "{"))
                path, is_key = (path, True) if token == "{" else ((*path, 0), False)


def _twice(text: str) -> tuple[int, int]:
    seen = set[Keys]()
    for path, is_key, where in _json_places(text):
        if is_key and path in seen:
            return where
        if is_key:
            seen.add(path)
    return 1, 1


class _Yaml:
    """Builds the data of one YAML document: no anchors, aliases, tags or merge keys. Bare words are those of JSON."""

    def __init__(self, refuse: Any) -> None:
        self.refuse = refuse
        self.places: dict[Keys, tuple[int, int]] = {}

    def read(self, text: str) -> tuple[Any, dict[Keys, tuple[int, int]]]:
        roots: list[Any] = []
        try:
            events = iter(yaml.parse(text, Loader=_LOADER))
            for event in events:
                if isinstance(event, yaml.DocumentStartEvent):
                    if roots:
                        raise self.refuse("a second document", "write one document to a file", *_where(event))
                    roots.append(self.value(next(events), events, ()))
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            at = (mark.line + 1, mark.column + 1) if mark else (1, 1)
            raise self.refuse("this is not well-formed YAML", "correct it", *at) from None
        if not roots:
            raise self.refuse("an empty file", "write one document")
        return roots[0], self.places

    def value(self, event: Any, events: Iterator[Any], path: Keys) -> Any:
        where = _where(event)
        if isinstance(event, yaml.AliasEvent):
            raise self.refuse("YAML aliases are not read", "write the value out here", *where)
        if event.anchor is not None or event.tag is not None:
            raise self.refuse("YAML anchors and tags are not read", "remove it", *where)
        if len(path) > MOST_DEPTH:
            raise self.refuse(f"nested deeper than {MOST_DEPTH} levels", "flatten it", *where)
        if len(self.places) > MOST_VALUES:
            raise self.refuse(f"more than {MOST_VALUES} values", "split it", *where)
        self.places[path] = where
        if isinstance(event, yaml.ScalarEvent):
            return _scalar(event)
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[Any] = []
            while not isinstance(event := next(events), yaml.SequenceEndEvent):
                items.append(self.value(event, events, (*path, len(items))))
            return items
        members: dict[str, Any] = {}
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            key = _scalar(event) if isinstance(event, yaml.ScalarEvent) and event.anchor is None else None
            if not isinstance(key, str) or key == "<<":
                raise self.refuse("a key is not text", "put the key into quotes", *_where(event))
            if key in members:
                raise self.refuse("the same key is written twice in one mapping", "keep one", *_where(event))
            members[key] = self.value(next(events), events, (*path, key))
        return members


def _where(event: Any) -> tuple[int, int]:
    return event.start_mark.line + 1, event.start_mark.column + 1


def _scalar(event: Any) -> Any:
    text: str = event.value
    if not event.implicit[0]:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text
