"""The orchestrator's side of `swarmBundle__*`: agent processes ask, and only this process writes the repository of the
bundle (specification 004, section 12.4)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from oauthbroker import Broker, BrokerError
from oauthbroker.tools.changesets.activation import Activation, allowed_files
from oauthbroker.tools.changesets.changesets import FAILURES, ChangesetRefused
from oauthbroker.tools.changesets.editor import BundleEditor
from oauthbroker.tools.orchestration.agent_user import AgentUser
from oauthbroker.tools.orchestration.instances import Instance
from oauthbroker.tools.orchestration.ipc import IpcRefused
from oauthbroker.tools.orchestration.processes import StartFailed
from oauthbroker.tools.types.failures import ToolCode


class BundleChanges:
    """The changesets of all agents of an orchestrator. Without an activation agents have none."""

    def __init__(self, broker: Broker, activation: Activation | None, user: AgentUser) -> None:
        self._broker, self._activation, self._user = broker, activation, user
        if activation is not None:
            activation.show_by(partial(user.show, entered=activation.changesets.worktrees.root))

    async def have_been_activated(self) -> bool:
        return self._activation is not None and await self._activation.at_step_config()

    @property
    def active(self) -> str:
        """Return the active revision; empty for a bundle in no repository."""
        return "" if self._activation is None else self._activation.active

    async def has_run(self, instance: Instance) -> None:
        """Note that an instance begins a step with the active revision."""
        if self._activation is not None:
            await self._activation.has_run((instance.swarm, instance.agent), self.active)

    async def can_start_again(self, instance: Instance, revision: str, failed: StartFailed) -> bool:
        """Return whether a process that did not start may be tried again: with another revision, which is active now,
        or with the same one after the first crash, because anything may have killed it."""
        if self._activation is None:
            return False
        names = instance.swarm, instance.agent
        reason = self._broker.scrub(failed.message)
        return failed.crashes == 1 or await self._activation.go_back(names, revision, reason)

    def blocks_of(self, instance: Instance) -> list[dict[str, str]]:
        """Return what an instance that may change the bundle is told of its newest revision."""
        block = self._activation and self._activation.block
        return [block] if block and self.editor_of(instance) else []

    def editor_of(self, instance: Instance) -> BundleEditor | None:
        """Return an instance as the owner of changesets. None if a list, its own or its swarm's, has no pattern: then
        it may change no file. Agents of two swarms may have the same name, so the owner names both."""
        resources, swarm = self._broker.bundle.plugins["tools"], instance.swarm.removeprefix("Swarm/")
        allowed = allowed_files(resources, swarm, instance.agent)
        if self._activation is None or not (allowed.swarm and allowed.agent):
            return None
        names = instance.agent, instance.swarm, instance.key
        return BundleEditor(self._activation.changesets, names, allowed, audit=self._broker.audit)

    async def folders_of(self, instance: Instance) -> list[str]:
        editor = self.editor_of(instance)
        try:
            return [] if editor is None else [str(each) for each in await editor.folders()]
        except FAILURES:
            return []

    async def answer(self, instance: Instance, kind: str, asked: Mapping[str, Any]) -> Any:
        """Open, commit or discard a changeset of an instance. Raises IpcRefused."""
        editor, fault = self.editor_of(instance), "this runtime has no changesets, or this agent may change no file"
        try:
            match editor, kind, asked:
                case BundleEditor(), "swarmBundle.openChangeset", _:
                    return await editor.open(self._user.give)
                case BundleEditor(), "swarmBundle.commitChangeset", {"changesetId": str(), "toolCallId": str(call)}:
                    return await editor.commit(asked, call)
                case BundleEditor(), "swarmBundle.discardChangeset", {"changesetId": str(changeset)}:
                    return await editor.discard(changeset)
        except (ChangesetRefused, BrokerError, *FAILURES) as error:
            fault = type(error).__name__ if isinstance(error, OSError) else str(error)
        raise IpcRefused(ToolCode.CHANGESET, fault)
