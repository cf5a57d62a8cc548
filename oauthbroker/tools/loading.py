"""Load the tools of a bundle into a registry. This runs their modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from oauthbroker.tools.catalog import ToolCatalogItem, ToolSource
from oauthbroker.tools.entries import HANDLERS, entry_file, entry_object, loading
from oauthbroker.tools.registry import IsolatedTool, RegistrationRefused, Registry
from oauthbroker.tools.spec import ToolExportSpec, ToolResourceSpec

Isolate = Callable[[Path, ToolResourceSpec], IsolatedTool]


def register_tools(
    registry: Registry, tools: Mapping[str, ToolResourceSpec], folder: Path, *, isolate: Isolate | None = None
) -> None:
    """Register all exports of Tool resources by name. `folder` is that of the bundle. `isolate` makes the handler of a
    tool with `isolation: process` from its file and its spec. Raises EntryRefused or RegistrationRefused for a tool
    whose module or handlers cannot be used."""
    for name, spec in tools.items():
        handlers = _handlers_of(name, spec, folder, isolate)
        for export in spec.exports or ():
            if (handler := handlers.get(export.name)) is None:
                raise RegistrationRefused(f"Tool/{name} cannot register {export.name}: its module has no such handler")
            registry.register(_item(name, export), handler, owner=f"Tool/{name}", limit=spec.error_message_limit)


def _handlers_of(name: str, spec: ToolResourceSpec, folder: Path, isolate: Isolate | None) -> Mapping[Any, Any]:
    owner, entry = f"Tool/{name}", spec.entry or ""
    if spec.isolation is None:
        handlers: Mapping[Any, Any] = entry_object(owner, entry, folder, HANDLERS, lambda it: isinstance(it, Mapping))
        return handlers
    if isolate is None:
        raise RegistrationRefused(f"{owner} needs a process of its own, and this runtime starts none")
    with loading(owner, entry):
        return dict.fromkeys([export.name for export in spec.exports or ()], isolate(entry_file(entry, folder), spec))


def _item(name: str, export: ToolExportSpec) -> ToolCatalogItem:
    source = ToolSource(type="config", name=name)
    full = f"{name}__{export.name}"
    return ToolCatalogItem(name=full, description=export.description, parameters=export.parameters, source=source)
