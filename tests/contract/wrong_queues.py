"""Queues that are wrong on purpose: the contract notices each of them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime
from typing import Any

from oauthbroker.core.errors import BrokerError
from oauthbroker.events.port import EventLease
from oauthbroker.events.queue import StoreQueues
from oauthbroker.model.settings import Limits
from oauthbroker.records import AgentEvent
from oauthbroker.records.event_queue import Item
from tests.contract.queue_contract import AGENT


class Wrong(StoreQueues):
    """Subclasses do one thing wrong."""


class LosesOrder(Wrong):
    async def _leased(self, index: Any) -> EventLease | None:
        def newest_free(now: datetime) -> tuple[Item | None, set[int]]:
            return next((item for item in [*index.waiting][::-1] if item.is_free(now)), None), set()

        index.next_free = newest_free
        return await super()._leased(index)


class DoublesALease(Wrong):
    last: EventLease | None = None

    async def lease(self, agent: str) -> EventLease | None:
        found = await super().lease(agent)
        self.last = found or self.last
        return self.last


class ForgetsEvents(Wrong):
    """Without idempotency: every event is new."""

    number = 0

    async def enqueue(self, event: AgentEvent, **how: Any) -> bool:
        self.number += 1
        return await super().enqueue(replace(event, id=f"{event.id}-{self.number}"), **how)


class ForgetsLeases(Wrong):
    """A lease can be settled once."""

    async def ack(self, agent: str, event_id: str, lease: str) -> bool:
        held = await self.unsettled(agent, [lease])
        return await super().ack(agent, event_id, lease) and bool(held)


class RetriesForEver(Wrong):
    async def nack(self, agent: str, event_id: str, lease: str) -> bool:
        return await self.give_back(agent, event_id, lease)


class KeepsWhatIsErased(Wrong):
    async def erase(self, agent: str, event_ids: Any) -> None:
        return


class CountsWhatIsGivenBack(Wrong):
    async def give_back(self, agent: str, event_id: str, lease: str) -> bool:
        done = await super().give_back(agent, event_id, lease)
        async with self._storage.changing(agent) as index:
            item = index.find(event_id)
            if item is not None and done:
                index.replace(replace(item, attempts=item.attempts + 1))
        return done


class NeverFull(Wrong):
    async def enqueue(self, event: AgentEvent, **how: Any) -> bool:
        try:
            return await super().enqueue(event, **how)
        except BrokerError:
            return True


class RevivesNothing(Wrong):
    async def revive(self, agent: str, event_id: str) -> bool:
        return await self.drop(agent, event_id)


class NeverLapses(Wrong):
    """A lease holds for ever."""

    def __init__(self, **parts: Any) -> None:
        super().__init__(**{**parts, "limits": Limits(queue_lease_seconds=1e8)})


class HasOneQueue(Wrong):
    """All agents take from one queue."""

    async def enqueue(self, event: AgentEvent) -> bool:
        return await super().enqueue(replace(event, target=replace(event.target, agent_name=AGENT)))


class FailsAWait(Wrong):
    """A wait that met no change fails."""

    async def wait(self, signal: asyncio.Event, seconds: float) -> None:
        async with asyncio.timeout(seconds):
            await signal.wait()


class ForgetsWhatIsDropped(Wrong):
    """A dropped event may come again."""

    async def drop(self, agent: str, event_id: str) -> bool:
        async with self._storage.changing(agent) as index:
            found = index.take_dead_letter(event_id)
            index.gone.add(event_id)
        return found is not None


class LosesATail(Wrong):
    """Each tenth event is acknowledged and not kept."""

    number = 0

    async def enqueue(self, event: AgentEvent) -> bool:
        self.number += 1
        return True if self.number % 10 == 0 else await super().enqueue(event)


class ExtendsNothing(Wrong):
    async def extend(self, agent: str, event_id: str, lease: str) -> bool:
        return bool(await self.unsettled(agent, [lease]))
