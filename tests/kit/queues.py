"""What the queues of a store hold, as tests look at it."""

from __future__ import annotations

import asyncio

from oauthbroker.events.known_queue import KnownQueue
from oauthbroker.events.port import Depth, Queues
from oauthbroker.events.queue_index import Index
from oauthbroker.events.queue_storage import QueueStorage
from oauthbroker.records.event_queue import Item
from oauthbroker.repository.repository import Repository
from oauthbroker.store.format.port import Store

_QUEUED = """
select attempts, lease is not null from oauthbroker.queued where agent = %(agent)s and state = 'waiting' order by place
"""
_SPOIL = "update oauthbroker.queued set record = 'spoilt' where id = %(id)s"


async def index_of(repository: Repository, agent: str = "planner") -> Index:
    storage = QueueStorage(repository)
    return await storage.read(agent, storage.look_at_all)


async def queued(repository: Repository, agent: str = "planner") -> list[tuple[int, bool]]:
    """Return (attempts, leased) of each event that waits or is leased, the oldest first, in any store. A lease counts
    also after its time."""
    if repository.shared is None:
        return [(item.attempts, item.lease is not None) for item in (await index_of(repository, agent)).waiting]
    from oauthbroker.repository.queue_rows import QueueRows  # its driver is an extra

    rows = QueueRows(repository)
    found = await rows._store.connections.read(_QUEUED, {"agent": rows.agent(agent)})
    return [(attempts, leased) for attempts, leased in found]


async def until_queued(queues: Queues, count: int = 1) -> None:
    """Return when so many events wait or are leased. A relay of the background brings them."""
    async with asyncio.timeout(60):
        while Depth.of(await queues.depths()).waiting < count:
            await asyncio.sleep(0.01)


async def until_relayed(store: Store) -> None:
    """Return when the background has brought every event to its queue, and no record has anything left to send."""
    async with asyncio.timeout(60):
        while await store.count("due"):
            await asyncio.sleep(0.01)


async def lose_body(repository: Repository, event_id: str) -> None:
    """Damage an event so that its body cannot be read."""
    if repository.shared is None:
        await repository.events.drop(event_id)
        return
    from oauthbroker.repository.queue_rows import QueueRows

    rows = QueueRows(repository)
    await rows._store.connections.write(_SPOIL, {"id": rows.name(event_id)})


async def all_indexes(repository: Repository) -> list[Index]:
    return [index async for index in QueueStorage(repository).all()]


async def put_items(repository: Repository, agent: str, items: list[Item]) -> None:
    """Write a queue of these items, which have no bodies, into a store that has none."""
    index = Index(KnownQueue(agent))
    for item in items:
        index.append(item)
    parts = repository.queue_parts
    for segment in index.segments:
        await parts.put(agent, segment.number, segment.to_plaintext(), expect=0)
    await parts.put(agent, 0, index.head.to_plaintext(), expect=0)
