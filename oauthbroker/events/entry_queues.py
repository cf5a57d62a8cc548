"""Move queues that a broker of the version before keeps as entries of a shared store, with their order and state."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from oauthbroker.events.queue_storage import QueueStorage
from oauthbroker.records import AgentEvent
from oauthbroker.records.event_queue import Item
from oauthbroker.repository.repository import Repository
from oauthbroker.repository.versioned import readable


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedEvent:
    """An event with its place in a queue. One that is done has no body."""

    agent: str
    event_id: str
    state: Literal["waiting", "dead", "done"]
    attempts: int = 0
    lease: str | None = None
    due: datetime | None = None
    event: AgentEvent | None = None


Take = Callable[[MovedEvent], Awaitable[None]]


class EntryQueues:
    """The queues among the entries of a store. Every method may raise `BrokerError` with a store code."""

    def __init__(self, repository: Repository) -> None:
        self._repository, self._storage = repository, QueueStorage(repository)

    async def move(self, take: Take) -> None:
        """Give every event to `take`, the done ones first, each agent's in their order, and remove them here. Repeat
        a move that was interrupted: `take` gets the rest, and perhaps some events again."""
        stored: dict[str, list[str]] = {}
        async for event in self._repository.events.all():
            stored.setdefault(event.target.agent_name, []).append(event.id)
        for agent, event_ids in stored.items():
            async with self._storage.changing(agent, has_events=True) as index:
                for each in index.settled:
                    if each.done:
                        await take(MovedEvent(agent=agent, event_id=each.id, state="done", lease=each.lease))
                for item in index.dead:
                    await self._give(agent, item, "dead", take)
                for item in index.waiting:
                    await self._give(agent, item, "waiting", take)
                needed = index.needed()
                for event_id in needed:
                    index.finish(event_id)
                for event_id in set(event_ids) - needed:  # a crash left it: its outbox still has it
                    await self._repository.events.drop(event_id)

    async def _give(self, agent: str, item: Item, state: Literal["waiting", "dead"], take: Take) -> None:
        event = await readable(self._repository.events.get(item.id))
        if event is not None:
            place = MovedEvent(agent=agent, event_id=item.id, state=state, attempts=item.attempts, event=event)
            await take(replace(place, lease=item.lease, due=item.due))
