"""The tool `swarmBundle`: `openChangeset` and `commitChangeset` (004 section 12.4), and our `discardChangeset`."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from oauthbroker.tools.calling.context import Json, ToolContext, ToolHandler
from oauthbroker.tools.calling.registry import Registry
from oauthbroker.tools.changesets.allowed import AllowedFiles
from oauthbroker.tools.changesets.changesets import Changesets, ref
from oauthbroker.tools.changesets.worktrees import Gives, keep
from oauthbroker.tools.types.catalog import ToolCatalogItem, ToolSource
from oauthbroker.tools.types.names import SWARM_BUNDLE, ToolName

MOST_MESSAGE: Final = 500
CHANGESET_SECONDS: Final = 600.0  # of a call: a commit loads the whole bundle
MOST_LOGGED: Final = 5  # files and problems of one commit
_LOG: Final = logging.getLogger("oauthbroker.tools.changesets")
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


@dataclass(frozen=True, slots=True)
class BundleEditor:
    """An agent instance as the owner of changesets. `names` are its address, such as agent, swarm and instance key."""

    changesets: Changesets
    names: tuple[str, ...]
    allowed: AllowedFiles

    @property
    def owner(self) -> str:
        """Return the names as one text that no other names have."""
        return json.dumps(self.names)

    async def folders(self) -> list[Path]:
        """Return the folders of the changesets that it has open."""
        return await asyncio.to_thread(self.changesets.folders, self.owner)

    async def open(self, give: Gives = keep) -> Json:
        """Answer `{changesetId, baseRef, workdir, hint}`. `give` lets the agent write in the folder."""
        opened = await asyncio.to_thread(self.changesets.open, self.owner, give)
        hint = {"bundleRootInWorkdir": ".", "allowedFiles": asdict(self.allowed)}
        return {"changesetId": opened.id, "baseRef": ref(opened.base), "workdir": str(opened.folder), "hint": hint}

    async def commit(self, given: Mapping[str, Json], tool_call_id: str) -> Json:
        """Answer `{status, baseRef, newRef, summary}`, with `rejected` files and `problems` where there are some."""
        subject = printable(" ".join(str(given.get("message", "")).split())[:MOST_MESSAGE]) or "Change the bundle"
        message = f"{subject}\n\nAgent: {self.owner}\nTool-Call: {json.dumps(tool_call_id)}\n"
        commit = await asyncio.to_thread(
            self.changesets.commit, given["changesetId"], self.owner, self.allowed, message
        )
        if commit.status != "ok":
            facts = [*(each.file for each in commit.rejected), *commit.problems]
            _LOG.warning("a changeset of %s is %s: %s", self.names[0], commit.status, "; ".join(facts[:MOST_LOGGED]))
        return commit.to_json()

    async def discard(self, changeset: str) -> Json:
        """Answer `{status}`."""
        await asyncio.to_thread(self.changesets.discard, changeset, self.owner)
        return {"status": "discarded"}


@dataclass(frozen=True, slots=True)
class SwarmBundleTool:
    """The handlers of `swarmBundle`, for a runtime in the broker's process. `allowed_of` returns the allow lists for
    the agent of a name."""

    changesets: Changesets
    allowed_of: Callable[[str], AllowedFiles]

    def register(self, registry: Registry) -> None:
        """Register the exports. They are in every catalog that is made from then on."""
        register_exports(registry, self.open_changeset, self.commit_changeset, self.discard_changeset)

    def folders(self, ctx: ToolContext) -> Sequence[Path]:
        """Return the folders of the changesets that the agent of a call has open. Blocks."""
        return self.changesets.folders(self._editor(ctx).owner)

    async def open_changeset(self, ctx: ToolContext, _given: Mapping[str, Json]) -> Json:
        return await self._editor(ctx).open()

    async def commit_changeset(self, ctx: ToolContext, given: Mapping[str, Json]) -> Json:
        return await self._editor(ctx).commit(given, ctx.tool_call_id)

    async def discard_changeset(self, ctx: ToolContext, given: Mapping[str, Json]) -> Json:
        return await self._editor(ctx).discard(given["changesetId"])

    def _editor(self, ctx: ToolContext) -> BundleEditor:
        return BundleEditor(self.changesets, (ctx.agent_name, ctx.instance_key), self.allowed_of(ctx.agent_name))


def printable(text: str) -> str:
    """Return a text with its control characters and halves of characters escaped."""
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)
