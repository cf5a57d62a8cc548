"""The tool `swarmBundle`: `openChangeset` and `commitChangeset` (004 section 12.4), and our `discardChangeset`."""

from __future__ import annotations

from typing import Any, Final

from oauthbroker.tools.calling.context import ToolHandler
from oauthbroker.tools.calling.registry import Registry
from oauthbroker.tools.types.catalog import SWARM_BUNDLE, ToolCatalogItem, ToolName, ToolSource

CHANGESET_SECONDS: Final = 600.0  # of a call: a commit loads the whole bundle
_SOURCE: Final = ToolSource(type="config", name=SWARM_BUNDLE)


def _item(export: str, description: str, *required: str, **properties: Any) -> ToolCatalogItem:
    parameters = {"type": "object", "properties": properties, "additionalProperties": False}
    parameters |= {"required": [*required]} if required else {}
    name = str(ToolName(SWARM_BUNDLE, export))
    return ToolCatalogItem(name=name, description=description, parameters=parameters, source=_SOURCE)


_TEXT: Final = {"type": "string"}
_MESSAGE: Final = {"type": "string", "description": "What changes, for the history"}
_OPENS: Final = "Open a copy of the bundle. Edit the files in its `workdir`, then commit the changeset."
_COMMITS: Final = "Commit a changeset. The step under way keeps its files. Correct a rejected one and commit again."
_DISCARDS: Final = "Close a changeset without a commit. Its changes are lost."
OPEN: Final = _item("openChangeset", _OPENS)
COMMIT: Final = _item("commitChangeset", _COMMITS, "changesetId", changesetId=_TEXT, message=_MESSAGE)
DISCARD: Final = _item("discardChangeset", _DISCARDS, "changesetId", changesetId=_TEXT)


def register_exports(registry: Registry, opens: ToolHandler, commits: ToolHandler, discards: ToolHandler) -> None:
    """Register the exports. Raises RegistrationRefused if an extension has taken a name."""
    for item, handler in ((OPEN, opens), (COMMIT, commits), (DISCARD, discards)):
        registry.register(item, handler, owner="the runtime", seconds=CHANGESET_SECONDS)
