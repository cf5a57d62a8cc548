"""Agents as owners of changesets. The audit log has each change before it is made."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass
from pathlib import Path
from typing import Final

from oauthbroker.plugins import PluginAudit, harmless_text
from oauthbroker.tools.calling.context import Json, ToolContext
from oauthbroker.tools.calling.registry import Registry
from oauthbroker.tools.changesets.changesets import Changesets, ref
from oauthbroker.tools.changesets.files import AllowedFiles
from oauthbroker.tools.changesets.revisions import ID, Gives, keep
from oauthbroker.tools.changesets.tool import register_exports
from oauthbroker.tools.types.audit_types import ChangesetChanged

MOST_MESSAGE: Final = 500
MOST_LOGGED: Final = 5  # files and problems of one commit
_LOG: Final = logging.getLogger("oauthbroker.tools.changesets")


@dataclass(frozen=True, slots=True)
class BundleEditor:
    """An agent instance as the owner of changesets. `names` are its address: agent, perhaps swarm, and instance key.
    `audit` is `Broker.audit`, which keeps each change before it is made, or raises BrokerError."""

    changesets: Changesets
    names: tuple[str, ...]
    allowed: AllowedFiles
    _: KW_ONLY
    audit: PluginAudit

    @property
    def owner(self) -> str:
        """Return the names as one text that no other names have."""
        return json.dumps(self.names)

    async def folders(self) -> list[Path]:
        """Return the folders of the changesets that it has open."""
        return await asyncio.to_thread(self.changesets.folders, self.owner)

    async def open(self, give: Gives = keep) -> Json:
        """Answer `{changesetId, baseRef, workdir, hint}`. `give` lets the agent write in the folder."""
        self._note("open")
        opened = await asyncio.to_thread(self.changesets.open, self.owner, give)
        hint = {"bundleRootInWorkdir": ".", "allowedFiles": asdict(self.allowed)}
        return {"changesetId": opened.id, "baseRef": ref(opened.base), "workdir": str(opened.folder), "hint": hint}

    async def commit(self, given: Mapping[str, Json], tool_call_id: str) -> Json:
        """Answer `{status, baseRef, newRef, summary}`, with `rejected` files and `problems` where there are some."""
        subject = harmless_text(" ".join(str(given.get("message", "")).split())[:MOST_MESSAGE]) or "Change the bundle"
        message = f"{subject}\n\nAgent: {self.owner}\nTool-Call: {json.dumps(tool_call_id)}\n"
        changeset = given["changesetId"]
        self._note("commit", changeset)
        commit = await asyncio.to_thread(self.changesets.commit, changeset, self.owner, self.allowed, message)
        if commit.status != "ok":
            facts = [*(each.file for each in commit.rejected), *commit.problems]
            _LOG.warning("a changeset of %s is %s: %s", self.names[0], commit.status, "; ".join(facts[:MOST_LOGGED]))
        return commit.to_json()

    async def discard(self, changeset: str) -> Json:
        """Answer `{status}`."""
        self._note("discard", changeset)
        await asyncio.to_thread(self.changesets.discard, changeset, self.owner)
        return {"status": "discarded"}

    def _note(self, action: str, changeset: str = "") -> None:
        """Write a change to the audit log, with its changeset unless the model has given a text that is no id."""
        named = changeset if ID.fullmatch(changeset) else None
        agent, instance = self.names[0], self.names[-1]
        self.audit(ChangesetChanged(action=action, agent=agent, instance=instance, changeset=named))


@dataclass(frozen=True, slots=True)
class SwarmBundleTool:
    """The handlers of `swarmBundle` in the broker's process. `allowed_of`: the allow lists of an agent by its name."""

    changesets: Changesets
    allowed_of: Callable[[str], AllowedFiles]
    audit: PluginAudit

    def register(self, registry: Registry) -> None:
        """Register the exports. They are in every catalog that is made from then on."""
        register_exports(registry, self.open_changeset, self.commit_changeset, self.discard_changeset)

    def folders(self, ctx: ToolContext) -> Sequence[Path]:
        """Return the folders of the changesets that the agent of a call has open. Blocks."""
        return self.changesets.folders(self._editor(ctx).owner)

    async def open_changeset(self, ctx: ToolContext, _given: Mapping[str, Json]) -> Json:
        """Answer the call `openChangeset` of a model."""
        return await self._editor(ctx).open()

    async def commit_changeset(self, ctx: ToolContext, given: Mapping[str, Json]) -> Json:
        """Answer the call `commitChangeset` of a model. Raises ChangesetRefused."""
        return await self._editor(ctx).commit(given, ctx.tool_call_id)

    async def discard_changeset(self, ctx: ToolContext, given: Mapping[str, Json]) -> Json:
        """Answer the call `discardChangeset` of a model. Raises ChangesetRefused."""
        return await self._editor(ctx).discard(given["changesetId"])

    def _editor(self, ctx: ToolContext) -> BundleEditor:
        names = ctx.agent_name, ctx.instance_key
        return BundleEditor(self.changesets, names, self.allowed_of(ctx.agent_name), audit=self.audit)
