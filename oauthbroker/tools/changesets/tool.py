"""The tool `swarmBundle`: `openChangeset` and `commitChangeset` (004 section 12.4), and our `discardChangeset`."""

from __future__ import annotations

from typing import Final

from oauthbroker.tools.calling.context import ToolHandler
from oauthbroker.tools.calling.registry import Registry
from oauthbroker.tools.types.catalog import ToolCatalogItem, ToolSource
from oauthbroker.tools.types.names import SWARM_BUNDLE, ToolName

CHANGESET_SECONDS: Final = 600.0  # of a call: a commit loads the whole bundle
_SOURCE: Final = ToolSource(type="config", name=SWARM_BUNDLE)

OPEN: Final = ToolCatalogItem(
    name=str(ToolName(SWARM_BUNDLE, "openChangeset")),
    description="Open a copy of the bundle. Edit the files in its `workdir`, then commit the changeset.",
    parameters={"type": "object", "properties": {}, "additionalProperties": False},
    source=_SOURCE,
)
COMMIT: Final = ToolCatalogItem(
    name=str(ToolName(SWARM_BUNDLE, "commitChangeset")),
    description="Commit a changeset. The step under way keeps its files. Correct a rejected one and commit again.",
    parameters={
        "type": "object",
        "properties": {
            "changesetId": {"type": "string"},
            "message": {"type": "string", "description": "What changes, for the history"},
        },
        "required": ["changesetId"],
        "additionalProperties": False,
    },
    source=_SOURCE,
)
DISCARD: Final = ToolCatalogItem(
    name=str(ToolName(SWARM_BUNDLE, "discardChangeset")),
    description="Close a changeset without a commit. Its changes are lost.",
    parameters={
        "type": "object",
        "properties": {"changesetId": {"type": "string"}},
        "required": ["changesetId"],
        "additionalProperties": False,
    },
    source=_SOURCE,
)


def register_exports(registry: Registry, opens: ToolHandler, commits: ToolHandler, discards: ToolHandler) -> None:
    """Register the exports. Raises RegistrationRefused if an extension has taken a name."""
    for item, handler in ((OPEN, opens), (COMMIT, commits), (DISCARD, discards)):
        registry.register(item, handler, owner="the runtime", seconds=CHANGESET_SECONDS)
