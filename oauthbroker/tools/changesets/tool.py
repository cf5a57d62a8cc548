"""The tool `swarmBundle`: `openChangeset` and `commitChangeset` (004 section 12.4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from oauthbroker.tools.catalog import ToolCatalogItem, ToolSource
from oauthbroker.tools.changesets.allowed import AllowedFiles
from oauthbroker.tools.changesets.changesets import Changesets, ref
from oauthbroker.tools.context import Json, ToolContext
from oauthbroker.tools.names import SWARM_BUNDLE, ToolName
from oauthbroker.tools.registry import Registry

MOST_MESSAGE: Final = 500
CHANGESET_SECONDS: Final = 600.0  # of a call: a commit checks the whole bundle
_SOURCE: Final = ToolSource(type="config", name=SWARM_BUNDLE)

OPEN: Final = ToolCatalogItem(
    name=str(ToolName(SWARM_BUNDLE, "openChangeset")),
    description="Open a copy of the bundle. Edit the files in its `workdir`, then commit the changeset.",
    parameters={"type": "object", "properties": {}, "additionalProperties": False},
    source=_SOURCE,
)
COMMIT: Final = ToolCatalogItem(
    name=str(ToolName(SWARM_BUNDLE, "commitChangeset")),
    description="Commit a changeset. The step under way keeps its files. If it is rejected, mend it and commit again.",
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


@dataclass(frozen=True, slots=True)
class BundleEditor:
    """An agent instance as the owner of changesets. `name` is printable, because git keeps it in one line."""

    changesets: Changesets
    name: str
    allowed: AllowedFiles

    async def folders(self) -> list[Path]:
        """Return the folders of the changesets that it has open."""
        return await asyncio.to_thread(self.changesets.folders, self.name)

    async def open(self) -> Json:
        """Answer `{changesetId, baseRef, workdir, hint}`."""
        opened = await asyncio.to_thread(self.changesets.open, self.name)
        hint = {"bundleRootInWorkdir": ".", "allowedFiles": asdict(self.allowed)}
        return {"changesetId": opened.id, "baseRef": ref(opened.base), "workdir": str(opened.folder), "hint": hint}

    async def commit(self, given: Mapping[str, Json], tool_call_id: str) -> Json:
        """Answer `{status, baseRef, newRef, summary}`, with `rejected` files and `problems` where there are some."""
        subject = " ".join(str(given.get("message", "")).split())[:MOST_MESSAGE] or "Change the bundle"
        message = f"{subject}\n\nAgent: {self.name}\nTool-Call: {tool_call_id}\n"
        commit = await asyncio.to_thread(self.changesets.commit, given["changesetId"], self.name, self.allowed, message)
        return commit.to_json()


@dataclass(frozen=True, slots=True)
class SwarmBundleTool:
    """The handlers of `swarmBundle`, for a runtime in the broker's process. `allowed_of` returns the allow lists for
    the agent of a name."""

    changesets: Changesets
    allowed_of: Callable[[str], AllowedFiles]

    def register(self, registry: Registry) -> None:
        """Register both exports. They are in every catalog that is made from then on."""
        for item, handler in ((OPEN, self.open_changeset), (COMMIT, self.commit_changeset)):
            registry.register(item, handler, owner="the runtime", seconds=CHANGESET_SECONDS)

    def folders(self, ctx: ToolContext) -> Sequence[Path]:
        """Return the folders of the changesets that the agent of a call has open. Blocks."""
        return self.changesets.folders(self._editor(ctx).name)

    async def open_changeset(self, ctx: ToolContext, _given: Mapping[str, Json]) -> Json:
        return await self._editor(ctx).open()

    async def commit_changeset(self, ctx: ToolContext, given: Mapping[str, Json]) -> Json:
        return await self._editor(ctx).commit(given, ctx.tool_call_id)

    def _editor(self, ctx: ToolContext) -> BundleEditor:
        name = printable(f"{ctx.agent_name}/{ctx.instance_key}")
        return BundleEditor(self.changesets, name, self.allowed_of(ctx.agent_name))


def printable(name: str) -> str:
    """Return a name with its control characters escaped."""
    return name.encode("unicode_escape").decode("ascii")
