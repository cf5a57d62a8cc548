"""Tools as a model sees them: the catalog of one step (specification 002, sections 3 and 13), names
`{resource}__{export}` (section 5), and parameters: a JSON Schema of type object, compiled once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final, Literal, NamedTuple

from oauthbroker.plugins import NotPlainJson, json_schema_validator, plain_json
from oauthbroker.tools.types.results import VALUE

SEPARATOR: Final = "__"
SWARM_BUNDLE: Final = "swarmBundle"  # 004 12.4 names this resource with a capital letter: the one exemption
_MOST_SHOWN: Final = 200  # characters of a name that a model made up
_PART: Final = re.compile(r"[a-z0-9_-]{1,64}", re.ASCII)
_SWARM_EXPORTS: Final = frozenset({"openChangeset", "commitChangeset", "discardChangeset"})
_MOST_PROBLEMS: Final = 5
_HIDDEN: Final = "the value"
_TYPES: Final = "types are array, boolean, integer, null, number, object and string"
_REMEDY: Final = f"write type: object and correct the rest: {_TYPES}; no other documents, linear regexes"
ProblemsOf = Callable[[Mapping[str, Any]], list[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSource:
    """Where a tool comes from. `extension_name` and `server_name` are the members of `mcp`, for type `mcp` only."""

    type: Literal["config", "extension", "mcp"]
    name: str
    extension_name: str | None = None
    server_name: str | None = None

    def to_json(self) -> dict[str, Any]:
        members: dict[str, Any] = {"type": self.type, "name": self.name}
        if self.type != "mcp":
            return members
        return members | {"mcp": {"extensionName": self.extension_name} | _given(serverName=self.server_name)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCatalogItem:
    """A tool as the model sees it. `parameters` is a JSON Schema of type object."""

    name: str
    description: str | None = None
    parameters: Mapping[str, Any] | None = None
    source: ToolSource | None = None

    def to_json(self) -> dict[str, Any]:
        """Return `{name, description?, parameters?, source?}`."""
        source = self.source and self.source.to_json()
        return {"name": self.name} | _given(description=self.description, parameters=self.parameters, source=source)


def _given(**members: Any) -> dict[str, Any]:
    return {member: value for member, value in members.items() if value is not None}


class CatalogFrozen(RuntimeError):
    """The model was asked with this catalog already."""


class UnknownTool(LookupError):
    """The registry has no tool of this name."""


class Catalog:
    """Tools by name, in the order in which the model sees them. A step's middleware may change it until `freeze`."""

    def __init__(
        self, items: Iterable[ToolCatalogItem], *, registered: Callable[[str], ToolCatalogItem | None]
    ) -> None:
        self._items = {each.name: each for each in items}
        self._registered = registered
        self._is_frozen = False

    def __contains__(self, name: object) -> bool:
        return name in self._items

    def __iter__(self) -> Iterator[ToolCatalogItem]:
        return iter(tuple(self._items.values()))

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: ToolCatalogItem) -> None:
        """Show a tool, in place of the item of its name if there is one. Its source stays the registered one, and
        arguments are checked against the parameters that were registered. Raises UnknownTool for a tool that is not
        registered, and CatalogFrozen."""
        self._check_open()
        if (registered := self._registered(item.name)) is None:
            raise UnknownTool(f"no tool of the name {item.name!r} is registered: register it with api.tools first")
        self._items[item.name] = replace(item, source=registered.source)

    def remove(self, name: str) -> None:
        """Hide a tool. Idempotent. Raises CatalogFrozen."""
        self._check_open()
        self._items.pop(name, None)

    def freeze(self) -> None:
        """End all changes, because the model is asked with this catalog now."""
        self._is_frozen = True

    def _check_open(self) -> None:
        if self._is_frozen:
            raise CatalogFrozen("the model was asked with this catalog: change the next step's")


class ToolName(NamedTuple):
    resource: str
    export: str

    def __str__(self) -> str:
        return f"{self.resource}{SEPARATOR}{self.export}"


def parse_tool_name(name: str) -> ToolName | None:
    """Split a full name at its first `__`. None if it has none (002 section 5.3)."""
    resource, separator, export = name.partition(SEPARATOR)
    return ToolName(resource, export) if separator else None


def shown_name(name: str) -> str:
    """Return a name for a message: short, and without control characters."""
    text = "".join(char if char.isprintable() else "\ufffd" for char in name[:_MOST_SHOWN])
    return text if len(name) <= _MOST_SHOWN else f"{text}…"


def is_resource_name(name: str) -> bool:
    """Return whether a Tool resource may have this name: no `__` inside and no `_` at the end, so that a full name has
    one reading."""
    return name == SWARM_BUNDLE or (_is_part(name) and not name.endswith("_"))


def is_export_name(name: str) -> bool:
    """Return whether an export may have this name: no `__` inside and no `_` at the start."""
    return name in _SWARM_EXPORTS or (_is_part(name) and not name.startswith("_"))


def _is_part(name: str) -> bool:
    return _PART.fullmatch(name) is not None and SEPARATOR not in name


class SchemaRefused(ValueError):
    """Parameters cannot be used. `args` are why, the remedy, and the path of the part that is wrong."""


def plain_object(given: Any) -> dict[str, Any]:
    """Return a copy of arguments, or of a schema. Raises NotPlainJson, and the exceptions of a foreign mapping."""
    if not isinstance(given, Mapping):
        raise NotPlainJson("they are no object")
    copy: dict[str, Any] = plain_json(given if issubclass(type(given), dict) else dict(given), VALUE)
    return copy


def compiled(parameters: Mapping[str, Any] | None) -> ProblemsOf:
    """Return a function that lists the problems of arguments. Raises SchemaRefused for parameters that are no JSON
    Schema 2020-12 of type object, that need another document, or that have no engine, which is in the extra `tools`."""
    if parameters is None:
        return lambda _arguments: []
    what, hint, path = "no usable JSON Schema 2020-12 of type object", _REMEDY, list[str | int]()
    try:
        schema = plain_object(parameters)
        if schema.get("type") != "object":
            raise SchemaRefused(what, hint, path)
        validator = json_schema_validator(schema, ignore_unknown_formats=True, mask=_HIDDEN)
    except ImportError:
        what, hint = "parameters need the extra `tools`", 'run `pip install "oauthbroker[tools]"`'
    except ValueError as error:
        path = list(getattr(error, "instance_path", ()))
    else:
        return lambda arguments: (
            [] if validator.is_valid(arguments) else list(_rendered(validator.iter_errors(arguments)))
        )
    raise SchemaRefused(what, hint, path)


def _rendered(errors: Iterator[Any]) -> Iterator[str]:
    """Yield the first problems, each with its place in the arguments and without its value."""
    for error in islice(errors, _MOST_PROBLEMS):
        place = ".".join(map(str, error.instance_path))
        yield f"{place}: {error.message}" if place else error.message
