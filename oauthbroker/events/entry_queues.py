"""Move queues that a copy of a store in files has brought as entries of a shared store, with their order and state."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal

from oauthbroker.events.queue_storage import QueueStorage
from oauthbroker.records import AgentEvent
from oauthbroker.records.event_queue import Item
from oauthbroker.repository.repository import Repository
from oauthbroker.repository.versioned import readable

State = Literal["waiting", "dead", "done"]
Take = Callable[[str, State, Item, AgentEvent | None], Awaitable[None]]
"""Takes an agent's event with its place in the queue. One that is done has no address and no body."""


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
                await self._storage.look_at_all(index)
                for each in index.settled:
                    if each.done:
                        await take(agent, "done", Item(id=each.id, address="", lease=each.lease), None)
                for item in index.dead:
                    await self._give(agent, "dead", item, take)
                for item in index.waiting:
                    await self._give(agent, "waiting", item, take)
                needed = index.needed()
                for event_id in needed:
                    index.finish(event_id)
                for event_id in set(event_ids) - needed:  # a crash left it: its outbox still has it
                    await self._repository.events.drop(event_id)

    async def _give(self, agent: str, state: State, item: Item, take: Take) -> None:
        event = await readable(self._repository.events.get(item.id))
        if event is not None:
            await take(agent, state, item, event)
