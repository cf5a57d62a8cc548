"""The registry: all tools that can be executed, with their handlers (specification 002, section 3)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Literal, Protocol

from oauthbroker.plugins import NotPlainJson, plain_json
from oauthbroker.tools.calling.call_life import MOST_SECONDS, SECONDS
from oauthbroker.tools.calling.context import Json, ToolContext, ToolHandler
from oauthbroker.tools.types import catalog
from oauthbroker.tools.types.catalog import Catalog, ProblemsOf, ToolCatalogItem, ToolSource
from oauthbroker.tools.types.results import MESSAGE, VALUE


class RegistrationRefused(ValueError):
    """A tool was not registered. The text says why."""


class IsolatedTool(Protocol):
    """A tool whose handlers run in another process."""

    async def call(self, export: str, context: ToolContext, args: dict[str, Json]) -> Json: ...


Handler = ToolHandler | IsolatedTool
_SOURCES: Final[Mapping[str, Literal["config", "extension"]]] = {"Tool": "config", "Extension": "extension"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredTool:
    """One export that can be called. `owner`: `Tool/name` or `Extension/name`; `seconds` is the time of a call."""

    item: ToolCatalogItem
    handler: Handler
    owner: str
    problems_of: ProblemsOf
    message_limit: int
    seconds: float

    @property
    def name(self) -> str:
        return self.item.name

    @property
    def export(self) -> str:
        return self.name.partition(catalog.SEPARATOR)[2]

    @property
    def is_dynamic(self) -> bool:
        """Tell whether an extension registered it, so that no Agent has to name it."""
        return not self.owner.startswith("Tool/")

    @property
    def asks_as(self) -> str:
        """Return the name under which the broker has its declared apps."""
        return self.owner if self.is_dynamic else f"{self.owner}:{self.export}"


class Registry:
    """The tools of one agent process, in the order in which they were registered."""

    def __init__(self) -> None:
        self._tools: dict[str, RegisteredTool] = {}

    def register(
        self, item: ToolCatalogItem, handler: Handler, *, owner: str, limit: int = MESSAGE, seconds: float = SECONDS
    ) -> RegisteredTool:
        """Add a tool. Raises RegistrationRefused for an item, a name, parameters, a time or a handler that cannot be
        used, and for a name that is in use."""
        item = _own(item, owner)
        problem = self._problem(item.name, handler, owner)
        try:
            problems_of = catalog.compiled(item.parameters)
        except catalog.SchemaRefused as refused:
            problem = problem or ": ".join(refused.args[:2])
        if not problem and not (isinstance(seconds, int | float) and 0 < seconds <= MOST_SECONDS):
            problem = f"the time of a call is more than 0 and at most {MOST_SECONDS:g} seconds"
        if problem:
            raise RegistrationRefused(f"{owner} cannot register {item.name!r}: {problem}")
        tool = RegisteredTool(
            item=replace(item, source=_source(item.source, owner)),
            handler=handler,
            owner=owner,
            problems_of=problems_of,
            message_limit=limit,
            seconds=seconds,
        )
        self._tools[item.name] = tool
        return tool

    def remove(self, name: str, *, owner: str) -> None:
        """Remove a tool of this owner: the catalogs of later steps do not have it. Idempotent."""
        if (there := self._tools.get(name)) is not None and there.owner == owner:
            del self._tools[name]

    def _problem(self, name: str, handler: Handler, owner: str) -> str:
        parsed = catalog.parse_tool_name(name) if issubclass(type(name), str) else None
        if parsed is None or not (catalog.is_resource_name(parsed.resource) and catalog.is_export_name(parsed.export)):
            return "a name is resource__export, of small letters, digits, hyphens and single underscores"
        if (there := self._tools.get(name)) is not None:
            return f"{there.owner} registered this name before"
        fits = callable(handler) or callable(getattr(handler, "call", None))
        return "" if fits and owner else "its handler is no function" if owner else "it has no owner"

    def find(self, name: str) -> RegisteredTool | None:
        """Return the tool of this name; None if there is none."""
        return self._tools.get(name)

    def __iter__(self) -> Iterator[RegisteredTool]:
        return iter(tuple(self._tools.values()))

    def catalog(self, tools: Collection[str]) -> Catalog:
        """Return the catalog of a step that begins now: of these Tool resources, and all tools of extensions."""
        owners = {f"Tool/{name}" for name in tools}
        items = [each.item for each in self if each.is_dynamic or each.owner in owners]
        shown = [replace(each, parameters=_copied(each.parameters)) for each in items]  # a step may change its own
        return Catalog(shown, registered=lambda name: None if (it := self.find(name)) is None else it.item)


def _copied(value: Json) -> Json:
    """Copy plain JSON, as the catalog of each step needs it, faster than `deepcopy`."""
    if isinstance(value, dict):
        return {name: _copied(each) for name, each in value.items()}
    return [_copied(each) for each in value] if isinstance(value, list) else value


def _own(item: ToolCatalogItem, owner: str) -> ToolCatalogItem:
    """Return a copy of an item, which later changes of its parameters do not reach. Raises RegistrationRefused."""
    is_item = isinstance(item, ToolCatalogItem) and isinstance(item.description, str | None)
    if not (is_item and isinstance(item.source, ToolSource | None)):
        problem = "its item is no ToolCatalogItem of a name, description?, parameters? and source?"
        raise RegistrationRefused(f"{owner} cannot register a tool: {problem}")
    try:
        description = plain_json(item.description, VALUE)
    except NotPlainJson as problem:
        raise RegistrationRefused(f"{owner} cannot register a tool: its description is refused: {problem}") from None
    with suppress(NotPlainJson):  # `compiled` refuses these parameters
        item = replace(item, parameters=None if item.parameters is None else catalog.plain_object(item.parameters))
    return replace(item, description=description)


def _source(given: ToolSource | None, owner: str) -> ToolSource | None:
    """Return where a tool comes from: its owner. An extension may say that an MCP server is behind its tool."""
    kind, _, name = owner.partition("/")
    if kind == "Extension" and given is not None and given.type == "mcp":
        return replace(given, name=name, extension_name=name)
    if kind in _SOURCES and name:
        return ToolSource(type=_SOURCES[kind], name=name)
    return given
