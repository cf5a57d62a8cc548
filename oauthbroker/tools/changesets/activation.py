"""Activate revisions of the bundle at the safe point `step.config` (004 section 12.4)."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final

from oauthbroker import Broker, BrokerError, RoomResources
from oauthbroker.tools.audit_types import BundleActivated
from oauthbroker.tools.changesets.allowed import AllowedFiles
from oauthbroker.tools.changesets.changesets import FAILURES, Changesets, check_apart
from oauthbroker.tools.changesets.revisions import Revision

_LOG: Final = logging.getLogger("oauthbroker.tools.changesets")


class Activation:
    """Makes the newest revision the configuration of a broker. `active` is the revision that it was opened with.

    Raises ValueError if the broker's store, or one of its keys, lies beside the changesets: a `store.root` that is
    relative to the bundle would be in the folder of one revision."""

    def __init__(self, broker: Broker, changesets: Changesets, active: Revision) -> None:
        check_apart(changesets.root, map(Path, broker.bundle.secret_places))
        self._broker, self.changesets = broker, changesets
        self._active = self._refused = active.ref
        self._one_at_a_time = asyncio.Lock()

    async def at_step_config(self) -> bool:
        """Return whether a newer revision has become active. Call it before a step reads its configuration. A revision
        that the broker refuses is logged once: the one before stays active, and the broker's health is red."""
        async with self._one_at_a_time:
            try:
                newest = await asyncio.to_thread(self.changesets.newest)
            except FAILURES as error:
                _LOG.warning("the newest revision of the bundle cannot be read: %s", type(error).__name__)
                return False
            if newest.ref in {self._active, self._refused}:
                return False
            try:
                self._broker.audit(BundleActivated(revision=newest.ref))
                await self._broker.reload(newest.folder)
            except BrokerError as error:
                self._refused = newest.ref
                _LOG.error("revision %s is refused: %s", newest.ref, error.code.value)
                return False
            self._active = newest.ref
            return True


def allowed_files(resources: RoomResources, swarm: str, agent: str) -> AllowedFiles:
    """Return the allow lists of a swarm and an agent. A resource without `changesets` allows no file."""
    found = [resources.of("Swarm").get(swarm), resources.of("Agent").get(agent)]
    lists = [[] if it is None or it.spec.changesets is None else it.spec.changesets.allow for it in found]
    return AllowedFiles(swarm=lists[0], agent=lists[1])
