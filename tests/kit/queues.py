"""What the queues of a store hold, as tests look at it."""

from __future__ import annotations

from oauthbroker.events.queue_index import Index
from oauthbroker.events.queue_storage import QueueStorage
from oauthbroker.records.event_queue import Head, Item
from oauthbroker.repository.repository import Repository


async def index_of(repository: Repository, agent: str = "planner") -> Index:
    return await QueueStorage(repository).read(agent)


async def all_indexes(repository: Repository) -> list[Index]:
    return [index async for index in QueueStorage(repository).all()]


async def put_items(repository: Repository, agent: str, items: list[Item]) -> None:
    """Write a queue of these items, which have no bodies, into a store that has none."""
    index = Index(agent, Head(agent), ())
    for item in items:
        index.append(item)
    parts = repository.queue_parts
    for segment in index.segments.values():
        await parts.put(agent, segment.number, segment.to_plaintext(), expect=0)
    await parts.put(agent, 0, index.head.to_plaintext(), expect=0)
