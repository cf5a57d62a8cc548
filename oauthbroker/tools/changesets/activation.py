"""Activate revisions of the bundle at the safe point `step.config` (004 section 12.4)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

from oauthbroker import Broker, BrokerError
from oauthbroker.plugins import PluginResources
from oauthbroker.tools.changesets.changesets import FAILURES, Changesets, check_apart
from oauthbroker.tools.changesets.files import AllowedFiles
from oauthbroker.tools.changesets.revisions import Revision
from oauthbroker.tools.types.audit_types import BundleActivated

OpensBroker = Callable[[Path], AbstractAsyncContextManager[Broker]]
Shows = Callable[[Path], object]  # lets the user of agents read a folder
_LOG: Final = logging.getLogger("oauthbroker.tools.changesets")
_REMEDY: Final = "The newest revision of the bundle is not used. Open a changeset, correct it and commit."


class Refusal(NamedTuple):
    """A revision that is not used, and why."""

    revision: str
    reason: str


class Activation:
    """Makes the newest revision the configuration of a broker, and goes back to one that has run if it does not start.
    The broker was opened with `active`; with `refused`, a newer one, it could not be. Raises ValueError if a secret
    place of the broker lies beside the changesets: a relative `store.root` would be in the folder of one revision."""

    def __init__(
        self, broker: Broker, changesets: Changesets, active: Revision, *, refused: Refusal | None = None
    ) -> None:
        check_apart(changesets.root, map(Path, broker.bundle.state_places))
        self._broker, self.changesets = broker, changesets
        self._active, self._before, self._refused = active, active, refused
        self._show: Shows = lambda _folder: None
        self._ran: dict[tuple[str, ...], str] = {}
        self._one_at_a_time = asyncio.Lock()

    @property
    def active(self) -> str:
        """Return the commit of the revision that the broker uses."""
        return self._active.ref

    @property
    def block(self) -> dict[str, str] | None:
        """Return the block that tells a model of the newest revision, as long as that is not used."""
        if self._refused is None:
            return None
        return {"type": "bundle.refused", **self._refused._asdict(), "active": self.active, "message": _REMEDY}

    def show_by(self, show: Shows) -> None:
        """Call `show` with the folder of each active revision, this one included: git's are for the runtime alone."""
        show(self._active.folder)
        self._show = show

    async def at_step_config(self) -> bool:
        """Return whether a newer revision has become active. Call it before a step reads its configuration. A revision
        that the broker refuses is logged once: the one before stays active, and the broker's health is red."""
        async with self._one_at_a_time:
            try:
                newest = await asyncio.to_thread(self.changesets.newest)
            except FAILURES as error:
                _LOG.warning("the newest revision of the bundle cannot be read: %s", type(error).__name__)
                return False
            if newest.ref == self.active or (self._refused and newest.ref == self._refused.revision):
                return False
            before = self._active
            try:
                await self._activate(newest)
            except BrokerError as error:
                self._refuse(Refusal(newest.ref, f"its configuration is refused: {error.code.value}"))
                return False
            self._before, self._refused = before, None
            return True

    async def reload(self) -> None:
        """Read the active revision again, with the values of today. Raises as `Broker.reload`."""
        async with self._one_at_a_time:
            await self._broker.reload(self._active.folder)

    async def has_run(self, agent: tuple[str, ...], revision: str) -> None:
        """Note that an agent has begun a step with a revision."""
        if self._ran.get(agent) == revision:
            return
        try:
            await asyncio.to_thread(self.changesets.ran, revision, agent)
        except FAILURES as error:
            _LOG.warning("git cannot note which revision has run: %s", type(error).__name__)
            return
        self._ran[agent] = revision

    async def go_back(self, agent: tuple[str, ...], revision: str, reason: str) -> bool:
        """Activate the revision with which an agent ran last. Return whether another one is active now."""
        async with self._one_at_a_time:
            if revision != self.active:
                return True  # for another agent, meanwhile
            try:
                last = await asyncio.to_thread(self.changesets.last_ran, agent) or self._before
                if last.ref == revision:
                    return False
                await self._activate(last)
            except (BrokerError, *FAILURES) as error:
                _LOG.error("the bundle cannot go back from revision %s: %s", revision, type(error).__name__)
                return False
            self._refuse(Refusal(revision, reason))
            self._before = last
            return True

    async def _activate(self, revision: Revision) -> None:
        await asyncio.to_thread(self._show, revision.folder)
        self._broker.audit(BundleActivated(revision=revision.ref))
        await self._broker.reload(revision.folder)
        self._active = revision

    def _refuse(self, refusal: Refusal) -> None:
        self._refused = refusal
        note_refused(refusal, self.active)


def note_refused(refusal: Refusal, active: str) -> None:
    _LOG.error("revision %s is refused: %s. Revision %s stays active.", *refusal, active)


@asynccontextmanager
async def opened_activation(changesets: Changesets, opens: OpensBroker) -> AsyncIterator[tuple[Broker, Activation]]:
    """Open a broker with the newest revision; if it is refused, with the last that has run. Raises BrokerError if there
    is none of these, and one of FAILURES."""
    revision, refused = changesets.newest(), None
    async with AsyncExitStack() as stack:
        try:
            broker = await stack.enter_async_context(opens(revision.folder))
        except BrokerError as error:
            last = changesets.last_ran()
            if last is None or last.ref == revision.ref:
                raise
            refused = Refusal(revision.ref, f"its configuration is refused: {error.code.value}")
            revision = last
            broker = await stack.enter_async_context(opens(last.folder))
            note_refused(refused, last.ref)
        yield broker, Activation(broker, changesets, revision, refused=refused)


def allowed_files(resources: PluginResources, swarm: str, agent: str) -> AllowedFiles:
    """Return the allow lists of a swarm and an agent. A resource without `changesets` allows no file."""
    found = [resources.of("Swarm").get(swarm), resources.of("Agent").get(agent)]
    lists = [[] if it is None or it.spec.changesets is None else it.spec.changesets.allow for it in found]
    return AllowedFiles(swarm=lists[0], agent=lists[1])
