"""The catalog: the tools that one step shows to the model (specification 002, sections 3 and 13)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal


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
