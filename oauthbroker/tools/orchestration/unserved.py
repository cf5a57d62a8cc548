"""The queues that no agent of the bundle reads. An event for an agent that its swarm does not have would wait there for
ever."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final

from oauthbroker import Broker, BrokerError
from oauthbroker.plugins import EventLease
from oauthbroker.tools.types.agent_event import CHAT, MESSAGE, REQUEST

_MESSAGES: Final = {CHAT, MESSAGE, REQUEST}
LOG: Final = logging.getLogger("oauthbroker.tools.orchestrator")


class UnservedQueues:
    """Takes the messages for agents of our swarms from these queues. Another program may read them, too: its events are
    given back, and looked at once for each change of a queue."""

    def __init__(self, broker: Broker, *, is_ours: Callable[[str], bool], take: Callable[[EventLease], None]) -> None:
        self._broker, self._is_ours, self._take = broker, is_ours, take
        self._seen: dict[str, object] = {}  # by agent, the depth that was looked at

    async def look(self, served: Collection[str]) -> None:
        for depth in await self._broker.dead_letters.states():
            agent = depth.agent
            if agent in served or not depth.waiting or self._seen.get(agent) == (seen := (depth.waiting, depth.oldest)):
                continue
            self._seen[agent] = seen
            with suppress(BrokerError):  # its events are forwarded
                await self._look_at(agent)

    async def _look_at(self, agent: str) -> None:
        foreign: list[EventLease] = []
        try:
            while (delivery := await self._broker.events.lease(agent)) is not None:
                if delivery.type in _MESSAGES and self._is_ours(delivery.event.turn.swarm_ref):
                    self._take(delivery)
                else:
                    foreign.append(delivery)
        finally:
            for each in foreign:
                await each.give_back()
        if foreign:
            LOG.warning("%d events wait for %r, which is no agent of this bundle", len(foreign), agent)
