"""The upgrade step "queues": what an index in one piece said, its segments say."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from oauthbroker.core.clock import to_iso
from oauthbroker.events.queue import StoreQueues
from oauthbroker.model.settings import Limits
from oauthbroker.observability.metrics import Metrics
from oauthbroker.records import AgentEvent, codec
from oauthbroker.records.event_queue import REMEMBERED, SEGMENT_ITEMS
from oauthbroker.repository.queue_parts import QueueParts
from oauthbroker.repository.queue_upgrade import split_queues
from oauthbroker.repository.repository import KINDS, LEASES, Repository
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import TestClock
from tests.kit.queues import index_of
from tests.unit.records.kit import event

MANY = 3 * SEGMENT_ITEMS + 1


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    store = MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=TestClock())
    yield store
    await store.close()


def item(of: AgentEvent, **more: Any) -> dict[str, Any]:
    address = "\x1f".join(of.target.address)
    return {"id": of.id, "address": address, "attempts": 0, "due": None, "lease": None, **more}


async def old(store: MemoryStore, clock: TestClock, agent: str = "planner", **more: Any) -> None:
    """A queue as the first format has it: one event leased, the others waiting, one dead."""
    first, *others, last = [event(number, agent=agent) for number in range(MANY + 1)]
    for each in (first, *others, last):
        await Repository(store).events.keep(each)
    clock.advance(60)
    leased = item(first, attempts=2, lease="its lease", due=to_iso(clock.now()), since=to_iso(clock.now()))
    spec = {
        "waiting": [leased, *(item(each) for each in others)],
        "dead": [item(last, attempts=5)],
        "done": ["evt-done", "evt-acked"],
        "settled": [{"id": "evt-acked", "lease": "A", "done": True}, {"id": "evt-1", "lease": "B", "done": False}],
        **more,
    }
    await store.put(store.key("queues", agent), codec.encode("EventQueue", {"spec": spec}), expect=0)


def queues_on(store: MemoryStore, clock: TestClock) -> StoreQueues:
    return StoreQueues(repository=Repository(store), clock=clock, limits=Limits(), metrics=Metrics())


async def test_order_leases_dead_letters_and_settled_events_survive(store: MemoryStore) -> None:
    clock = TestClock()
    await old(store, clock)
    await old(store, clock, "writer")
    for _ in range(2):
        await split_queues(store)
    queues = queues_on(store, clock)
    assert 4 == len((await index_of(Repository(store))).segments)
    assert await queues.ack("planner", "evt-acked", "A")
    assert not await queues.ack("planner", "evt-acked", "B")
    assert await queues.nack("planner", "evt-1", "B")
    for known in ("evt-done", "evt-acked"):
        index = await index_of(Repository(store))
        assert index.knows(known)
    assert [(event(MANY).id, 5)] == [(each.id, each.attempts) for each in await queues.dead("planner")]
    assert await queues.nack("planner", event(0).id, "its lease"), "the lease goes on"
    clock.advance(3600)
    found = []
    while (delivery := await queues.lease("planner")) is not None:
        found.append((delivery.id, delivery.attempt))
        assert await delivery.ack()
    assert [(event(0).id, 3), *((event(number).id, 1) for number in range(1, MANY))] == found
    assert [("writer", MANY)] == [(each.agent, each.waiting) for each in await queues.depths() if each.waiting]


async def test_a_run_that_was_killed_is_repeated(store: MemoryStore) -> None:
    clock, parts = TestClock(), QueueParts(store, print)
    await old(store, clock)
    await parts.put("planner", 1, b"half of an earlier run", expect=0)
    await split_queues(store)
    assert [event(number).id for number in range(MANY)] == [
        each.id for each in (await index_of(Repository(store))).waiting
    ]


async def test_a_queue_without_events_keeps_its_settled_events(store: MemoryStore) -> None:
    done = [f"evt-{number}" for number in range(REMEMBERED)]
    clock = TestClock()
    await old(store, clock, waiting=[], dead=[], done=done, settled=[])
    await split_queues(store)
    assert all([(await index_of(Repository(store))).knows(event_id) for event_id in done])
    queues = queues_on(store, clock)
    assert await queues.enqueue(event(0))
    assert [("planner", 1)] == [(each.agent, each.waiting) for each in await queues.depths()]


async def test_a_queue_that_is_damaged_is_left_to_its_first_use(store: MemoryStore) -> None:
    await store.put(store.key("queues", "planner"), b"no index", expect=0)
    await split_queues(store)
    entry = await store.get(store.key("queues", "planner"))
    assert entry is not None
    assert b"no index" == entry.body
