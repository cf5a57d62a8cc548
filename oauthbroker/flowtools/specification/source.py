"""Find the files that a command is given, and read JSON or YAML into data that remembers the place of every value. The
published JSON Schema, and what of a document does not fit it."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from oauthbroker import BrokerError, Code, ConfigInvalidError
from oauthbroker.flowtools.specification.failures import json_fault
from oauthbroker.plugins import (
    ConfigProblem,
    SourcePlace,
    YamlDocument,
    harmless_text,
    json_schema_validator,
    read_json,
    read_yaml,
)

Keys = tuple[str | int, ...]
MOST_BYTES: Final = 1024 * 1024
MOST_VALUES: Final = 20_000
_ENDINGS: Final = (".json", ".yaml", ".yml")
Place = tuple[str, ...]
_SCHEMA_FILE: Final = "flow-tool.schema.json"
_MOST_DEFINITIONS: Final = 200
_MOST_REFERENCES: Final = 1000
_REFERENCES: Final = frozenset({"$ref", "$dynamicRef", "$recursiveRef", "$anchor", "$dynamicAnchor", "$id"})
_DATA: Final = frozenset({"$defs", "definitions", "enum", "const", "default", "examples"})
_INSIDE: Final = frozenset((
    "additionalProperties", "contains", "items", "prefixItems", "propertyNames", "unevaluatedItems",
    "unevaluatedProperties",
))  # fmt: skip


class FlowRefused(ValueError):
    """A document was refused as a whole. `problems` has everything that was found, in the order of the file."""

    def __init__(self, problems: Iterable[ConfigProblem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda each: (each.file, each.line, each.column)))
        super().__init__("\n".join(map(str, self.problems)))


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSource:
    """A document as written. `digest` is the SHA-256 of its bytes."""

    document: YamlDocument = field(repr=False)
    digest: str

    @property
    def data(self) -> Any:
        return self.document.data

    def problem(self, path: Keys, what: str, hint: str) -> ConfigProblem:
        """Return a problem at a path, or at the nearest value around it."""
        shown = "".join(f"[{each}]" if isinstance(each, int) else f".{each[:64]!s}" for each in path).lstrip(".")
        return ConfigProblem.at(self.document.value_at(path), harmless_text(shown), what, hint)


def refuse(problems: Iterable[ConfigProblem]) -> None:
    """Raise FlowRefused if there are problems."""
    if found := list(problems):
        raise FlowRefused(found)


def closest(name: str, known: Iterable[str]) -> str:
    """Return the known name that looks most like another one; empty if none does."""
    return "".join(difflib.get_close_matches(name, list(known), 1))


def nearest(name: str, known: Iterable[str]) -> str:
    """Return what to do about a name that is not known; empty if none that is known looks like it."""
    found = closest(name, known)
    return f"the nearest known name is {found}" if found else ""


def one_of(name: str, known: Iterable[str]) -> str:
    """Return what to do about a value that is not known: all that are, and the one that looks like it."""
    known = list(known)
    return "; ".join(filter(None, (nearest(name, known), f"use one of {', '.join(known)}")))


def refusal_at(file: str, what: str, hint: str) -> FlowRefused:
    return FlowRefused([ConfigProblem.at(SourcePlace(file, 1, 1), "", what, hint)])


def read_source(raw: bytes, file: str) -> FlowSource:
    """Read one document: YAML where the file's name ends in `.yaml` or `.yml`, else JSON. Raises FlowRefused."""
    try:
        documents = read_yaml(raw.decode(), file) if file.endswith((".yaml", ".yml")) else [read_json(raw, file)]
    except UnicodeDecodeError:
        raise refusal_at(file, "no UTF-8", "save it as UTF-8") from None
    except ConfigInvalidError as refused:
        raise FlowRefused(refused.problems) from None
    if not documents:
        raise refusal_at(file, "an empty file", "write one document")
    if len(documents) > 1:
        place = documents[1].value_at(())
        raise FlowRefused([ConfigProblem.at(place, "", "a second document", "write one document to a file")])
    if len(documents[0].values) > MOST_VALUES:
        raise refusal_at(file, f"more than {MOST_VALUES} values", "split it")
    source = FlowSource(document=documents[0], digest=hashlib.sha256(raw).hexdigest())
    if (fault := json_fault(source.data)) is not None:
        raise FlowRefused([source.problem(fault[0], f"a value that no flow takes ({fault[1]})", "write another one")])
    return source


def input_files(paths: list[Path]) -> list[Path]:
    """Return the files, and those in the folders. Raises BrokerError for a folder without any."""
    found = []
    for path in paths:
        inside = sorted(each for each in path.rglob("*") if each.suffix in _ENDINGS) if path.is_dir() else [path]
        if not inside:
            raise BrokerError(Code.REQUEST_INVALID, note=f"{path}: no .json, .yaml or .yml file")
        found += inside
    return found


def read_input(file: Path) -> bytes:
    """Return the bytes of a file, at most one too many. Raises BrokerError."""
    try:
        with file.open("rb") as source:
            return source.read(MOST_BYTES + 1)
    except IsADirectoryError:
        note = f"{file} is a folder; name one of its files"
    except FileNotFoundError:
        there = [each.name for each in file.parent.glob("*")]
        note = f"{file}: no such file; {nearest(file.name, there) or 'name a JSON or YAML file'}"
    except OSError as error:
        note = f"{file}: {error.strerror}"
    raise BrokerError(Code.REQUEST_INVALID, note=note)


@cache
def published_schema() -> Mapping[str, Any]:
    """Return the JSON Schema that editors and `load_tool` use."""
    loaded: Mapping[str, Any] = json.loads(files(__package__).joinpath(_SCHEMA_FILE).read_text("utf-8"))
    return loaded


@cache
def _judge(definition: str) -> Any:
    whole = dict(published_schema())
    if definition:
        whole = {"$schema": whole["$schema"], "$ref": f"#/$defs/{definition}", "$defs": whole["$defs"]}
    return json_schema_validator(whole)


def shape_problems(source: FlowSource, definition: str) -> Iterator[ConfigProblem]:
    """Yield the problems by the published schema, or by one of its definitions. No text of the values is shown."""
    for error in _judge(definition).iter_errors(source.data):
        keyword, facts, path = error.kind.name, error.kind.as_dict(), tuple(error.instance_path)
        if keyword == "required":
            yield source.problem((*path, facts["property"]), "missing", "write it")
        elif keyword == "additionalProperties":
            known = _known(list(error.schema_path)[:-1])
            for name in facts["unexpected"]:
                hint = nearest(name, known) or f"known here: {', '.join(sorted(known))}"
                yield source.problem((*path, name), "unknown field", hint)
        else:
            yield source.problem(path, *_words(keyword, facts, error.instance))


def _known(path: list[str | int]) -> list[str]:
    """Return the members that the published schema knows at a schema path, which steps through references."""
    whole: Any = published_schema()
    found = whole
    for step in path:
        found = found if step == "$ref" else found[step]
        while "$ref" in found:
            found = whole["$defs"][str(found["$ref"]).rpartition("/")[2]]
    return list(found["properties"])


def _words(keyword: str, facts: Mapping[str, Any], value: Any) -> tuple[str, str]:
    match keyword:
        case "type":
            return "of another type", f"write {' or '.join(map(str, facts['types']))}"
        case "enum":
            options = facts["options"]
            options = json.loads(options) if isinstance(options, str) else options
            # a node type has two spellings: the first one of each is shown
            shown = list({str(each).casefold(): str(each) for each in reversed(options)}.values())[::-1]
            return "unknown value", one_of(value if isinstance(value, str) else "", shown)
        case "pattern":
            return "not in the form that is asked for", f"it has to match {facts['pattern']}"
        case "minimum" | "exclusiveMinimum" | "minLength" | "minItems" | "minProperties":
            return "too small or too short", f"the bound is {keyword} {facts['limit']}"
        case "maximum" | "exclusiveMaximum" | "maxLength" | "maxItems" | "maxProperties":
            return "too large or too long", f"the bound is {keyword} {facts['limit']}"
        case "not":
            return "not allowed here", "write a path without . and .. as segments"
        case "propertyNames":
            return "a name of another form", "use letters, digits and _"
    return "not valid here", "correct it, or remove it"


def slow_references(schema: Mapping[str, Any]) -> str:
    """Return why the references of a schema could take time that multiplies; empty if not. Only `#` and `#/$defs/NAME`
    are known: without recursion they unfold to a bounded number, and a recursive one stands for itself at most once in
    each place of an input."""
    named = {f"#/$defs/{name}": part for name, part in schema.get("$defs", {}).items()}
    bodies = {"#": schema, **named}
    leads = {name: list(_references(part, ())) for name, part in bodies.items()}
    if len(bodies) > _MOST_DEFINITIONS or any(to not in bodies for refs in leads.values() for _, to in refs):
        return f"write at most {_MOST_DEFINITIONS} $defs, and $ref as # or #/$defs/NAME alone"
    reached = {name: _reached(name, leads) for name in leads}
    counts = dict[str, int]()

    def unfolded(name: str) -> int:
        if name not in counts:
            onward = [to for _, to in leads[name] if name not in reached[to]]
            counts[name] = min(1 + sum(map(unfolded, onward)), _MOST_REFERENCES + 1)
        return counts[name]

    for name, refs in leads.items():
        back = [place for place, to in refs if name in reached[to]]
        if () in back or any(_meet(one, other) for at, one in enumerate(back) for other in back[:at]):
            return "a definition that refers to itself twice in one place takes too long"
    return "" if unfolded("#") <= _MOST_REFERENCES else f"references unfold to more than {_MOST_REFERENCES}"


def _reached(name: str, leads: Mapping[str, list[tuple[Place, str]]]) -> set[str]:
    """Return the definitions to which one refers, directly or by others; itself only if it is recursive."""
    found, waiting = set[str](), [name]
    while waiting:
        new = {to for _, to in leads[waiting.pop()]} - found
        found |= new
        waiting += new
    return found


def _meet(one: Place, other: Place) -> bool:
    """Tell whether two places of an input can be one, or one inside the other; `*` is any member."""
    return all(here == there or "*" in {here, there} for here, there in zip(one, other, strict=False))


def _references(part: Any, place: Place) -> Iterator[tuple[Place, str]]:
    """Yield the references of a schema, each with the place in an input at which it applies."""
    for each in part if isinstance(part, list) else ():
        yield from _references(each, place)
    for key, each in part.items() if isinstance(part, dict) else ():
        if key in _REFERENCES:
            yield place, each if key == "$ref" else key
        elif key in {"properties", "patternProperties", "dependentSchemas"} and isinstance(each, dict):
            for name, inner in each.items():
                step = {"properties": (name,), "patternProperties": ("*",)}.get(key, ())
                yield from _references(inner, (*place, *step))
        elif key not in _DATA:
            yield from _references(each, (*place, "*") if key in _INSIDE else place)
