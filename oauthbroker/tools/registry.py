"""The registry: all tools that can be executed, with their handlers (specification 002, section 3)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Protocol

from oauthbroker.tools.catalog import Catalog, ToolCatalogItem
from oauthbroker.tools.context import Json, ToolContext, ToolHandler
from oauthbroker.tools.names import SEPARATOR, is_export_name, is_resource_name, parse_tool_name
from oauthbroker.tools.output_limits import MESSAGE
from oauthbroker.tools.parameters import FlawsOf, SchemaRefused, compiled


class RegistrationRefused(ValueError):
    """A tool was not registered. The text says why."""


class IsolatedTool(Protocol):
    """A tool whose handlers run in another process."""

    async def call(self, export: str, context: ToolContext, args: dict[str, Json]) -> Json: ...


Handler = ToolHandler | IsolatedTool


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredTool:
    """One export that can be called. `owner` registered it: `Tool/name` or `Extension/name`. `flaws_of` lists why
    arguments do not fit."""

    item: ToolCatalogItem
    handler: Handler
    owner: str
    flaws_of: FlawsOf
    message_limit: int

    @property
    def name(self) -> str:
        return self.item.name

    @property
    def export(self) -> str:
        return self.name.partition(SEPARATOR)[2]

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

    def register(self, item: ToolCatalogItem, handler: Handler, *, owner: str, limit: int = MESSAGE) -> RegisteredTool:
        """Add a tool. Raises RegistrationRefused for a name that is in use or malformed, for parameters that are no
        JSON Schema of type object, and for a handler that cannot be called."""
        flaw = self._flaw(item.name, handler, owner)
        try:
            flaws_of = compiled(item.parameters)
        except SchemaRefused as refused:
            flaw = flaw or ": ".join(refused.args)
        if flaw:
            raise RegistrationRefused(f"{owner} cannot register {item.name!r}: {flaw}")
        tool = RegisteredTool(item=item, handler=handler, owner=owner, flaws_of=flaws_of, message_limit=limit)
        self._tools[item.name] = tool
        return tool

    def remove(self, name: str, *, owner: str) -> None:
        """Remove a tool of this owner: the catalogs of later steps do not have it. Idempotent."""
        if (there := self._tools.get(name)) is not None and there.owner == owner:
            del self._tools[name]

    def _flaw(self, name: str, handler: Handler, owner: str) -> str:
        if (there := self._tools.get(name)) is not None:
            return f"{there.owner} registered this name before"
        parsed = parse_tool_name(name)
        if parsed is None or not (is_resource_name(parsed.resource) and is_export_name(parsed.export)):
            return "a name is resource__export, of small letters, digits, hyphens and single underscores"
        fits = callable(handler) or callable(getattr(handler, "call", None))
        return "" if fits and owner else "its handler is no function" if owner else "it has no owner"

    def find(self, name: str) -> RegisteredTool | None:
        return self._tools.get(name)

    def __iter__(self) -> Iterator[RegisteredTool]:
        return iter(tuple(self._tools.values()))

    def catalog(self, tools: Collection[str]) -> Catalog:
        """Return the catalog of a step that begins now: the exports of these Tool resources (`Agent.spec.tools`), and
        all tools that extensions have registered so far."""
        owners = {f"Tool/{name}" for name in tools}
        shown = [each.item for each in self if each.is_dynamic or each.owner in owners]
        return Catalog(shown, known=self._tools.__contains__)
