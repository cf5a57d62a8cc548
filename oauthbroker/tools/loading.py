"""Load the tools of a bundle into a registry. This runs their modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from oauthbroker.tools.call_life import MOST_SECONDS, SECONDS
from oauthbroker.tools.catalog import ToolCatalogItem, ToolSource
from oauthbroker.tools.entries import HANDLERS, entry_file, entry_object, loading
from oauthbroker.tools.registry import IsolatedTool, RegistrationRefused, Registry
from oauthbroker.tools.spec import ToolExportSpec, ToolResourceSpec

Isolate = Callable[[Path, ToolResourceSpec, float], IsolatedTool]
_OWN_SECONDS: Final = {"base:bash": 130.0, "base:agents": MOST_SECONDS}  # by entry: their handlers end a little earlier


def register_tools(
    registry: Registry, tools: Mapping[str, ToolResourceSpec], folder: Path, *, isolate: Isolate | None = None
) -> None:
    """Register all exports of Tool resources by name. `folder` is that of the bundle. `isolate` makes the handler of an
    export with `isolation: process` from its file, spec and time. Raises EntryRefused or RegistrationRefused for a tool
    whose module or handlers cannot be used."""
    for name, spec in tools.items():
        handlers = _handlers_of(name, spec, folder, isolate)
        for export in spec.exports or ():
            if (handler := handlers.get(export.name)) is None:
                raise RegistrationRefused(f"Tool/{name} cannot register {export.name}: its module has no such handler")
            registry.register(
                _item(name, export),
                handler,
                owner=f"Tool/{name}",
                limit=spec.error_message_limit,
                seconds=_seconds_of(spec, export),
            )


def _handlers_of(name: str, spec: ToolResourceSpec, folder: Path, isolate: Isolate | None) -> Mapping[Any, Any]:
    owner, entry = f"Tool/{name}", spec.entry or ""
    if spec.isolation is None:
        handlers: Mapping[Any, Any] = entry_object(owner, entry, folder, HANDLERS, lambda it: isinstance(it, Mapping))
        return handlers
    if isolate is None:
        raise RegistrationRefused(f"{owner} needs a process of its own, and this runtime starts none")
    with loading(owner, entry):
        file = entry_file(entry, folder)
        return {export.name: isolate(file, spec, _seconds_of(spec, export)) for export in spec.exports or ()}


def _seconds_of(spec: ToolResourceSpec, export: ToolExportSpec) -> float:
    return export.timeout_seconds or spec.timeout_seconds or _OWN_SECONDS.get(spec.entry or "", SECONDS)


def _item(name: str, export: ToolExportSpec) -> ToolCatalogItem:
    source = ToolSource(type="config", name=name)
    full = f"{name}__{export.name}"
    return ToolCatalogItem(name=full, description=export.description, parameters=export.parameters, source=source)
