"""What an agent process asks of its orchestrator, also whether its configuration is still the newest."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from oauthbroker.capability import OAuthCapability, SyncOAuthCapability
from oauthbroker.client import OAuth, SyncOAuth
from oauthbroker.tools.calling.context import AgentRuntime, Json, ToolContext, ToolHandler, changeset_folders
from oauthbroker.tools.calling.registry import Registry
from oauthbroker.tools.changesets.tool import register_exports
from oauthbroker.tools.orchestration.ipc import IpcRefused, Peer
from oauthbroker.tools.turns.turn_loop import ConfigurationChanged
from oauthbroker.tools.types.failures import ToolFailure


class IpcJournal:
    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    async def begin(self, call_id: str) -> Mapping[str, Any] | None:
        before: dict[str, Any] | None = await self._peer.ask("journal.begin", {"call": call_id})
        return before

    async def end(self, call_id: str, result: Mapping[str, Any]) -> None:
        await self._peer.ask("journal.end", {"call": call_id, "result": dict(result)})

    async def submit(self, handle: str, call: Mapping[str, Any]) -> None:
        await self._peer.ask("journal.submit", {"handle": handle, "call": dict(call)})

    async def complete(self, handle: str, result: Mapping[str, Any]) -> None:
        await self._peer.ask("journal.complete", {"handle": handle, "result": dict(result)})


class IpcValues:
    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    async def get(self, key: str) -> Any:
        return await self._peer.ask("state.get", {"owner": key})

    async def put(self, key: str, value: Any) -> None:
        await self._peer.ask("state.set", {"owner": key, "value": value})


def register_swarm_bundle(registry: Registry, peer: Peer) -> None:
    """Register the tool `swarmBundle`. Raises RegistrationRefused if an extension has taken a name."""

    def asks(export: str) -> ToolHandler:
        async def handler(ctx: ToolContext, given: dict[str, Json]) -> Json:
            asked = {**given, "toolCallId": ctx.tool_call_id}
            return await _tool_asks(peer, f"swarmBundle.{export}", asked, "ChangesetRefused")

        return handler

    register_exports(registry, *map(asks, ("openChangeset", "commitChangeset", "discardChangeset")))


async def _tool_asks(peer: Peer, kind: str, asked: Mapping[str, Json], name: str) -> Json:
    """Ask for a tool. Raises ToolFailure with the code of a refusal."""
    try:
        return await peer.ask(kind, asked)
    except IpcRefused as refused:
        failed = ToolFailure(refused.message, name=name, code=refused.code, suggestion=refused.suggestion)
    raise failed


class WorkerHost:
    """The surroundings of a turn. `oauth` is the client of the turn; None where the broker serves no API."""

    def __init__(self, *, peer: Peer, oauth: OAuth | None, address: str, authorized: frozenset[str]) -> None:
        self._peer, self._oauth, self._address, self._authorized = peer, oauth, address, authorized
        self.logger = logging.getLogger("oauthbroker.tools.agent")
        self.journal = IpcJournal(peer)

    async def oauth_of(
        self, asks_as: str, call_id: str, *, blocking: bool
    ) -> OAuthCapability | SyncOAuthCapability | None:
        if self._oauth is None or asks_as.partition(":")[0] not in self._authorized:
            return None
        await _tool_asks(self._peer, "audit.call", {"tool": asks_as, "call": call_id}, "CallNotRecorded")
        narrowed = self._oauth.narrow(tool=asks_as)
        return SyncOAuth(self._address, narrowed.turn_token) if blocking else narrowed

    async def step_config(self) -> Sequence[Mapping[str, Any]]:
        """Let base tools use the open changesets. Return what the model is told. Raises ConfigurationChanged."""
        answer = await self._peer.ask("step.config", {})
        if not answer["current"]:
            raise ConfigurationChanged
        folders = [Path(each) for each in answer["changesets"]]
        changeset_folders.set(lambda _ctx: folders)
        blocks: Sequence[Mapping[str, Any]] = answer["blocks"]
        return blocks

    async def pending(self) -> Mapping[str, Any] | None:
        return None if self._oauth is None else await self._oauth.pending()

    def runtime_of(self, tool_call_id: str) -> AgentRuntime | None:
        return AgentRuntime(partial(_tool_asks, self._peer, name="AgentCallFailed"), tool_call_id)
