"""What a process remembers of its queues: enough that it need not read again, and no more than is bounded."""

from __future__ import annotations

import tracemalloc
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from oauthbroker.events.known_queue import KnownQueue
from oauthbroker.events.port import address_of
from oauthbroker.events.queue import StoreQueues
from oauthbroker.model.settings import Limits
from oauthbroker.observability.metrics import Metrics
from oauthbroker.records.event_queue import (
    ITEM_WEIGHT,
    REMEMBERED,
    SEGMENT_ITEMS,
    Head,
    Item,
    Segment,
    Settled,
    segments_of,
)
from oauthbroker.repository.queue_parts import HEAD
from oauthbroker.repository.repository import KINDS, LEASES, Entry, Key, Repository
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import TestClock
from tests.faults.queue_crash_kit import small_segments
from tests.unit.records.kit import event


class CountingStore(MemoryStore):
    """Counts the parts of queues that are read and written. `before` is done before the one with that number."""

    def __init__(self, clock: TestClock) -> None:
        super().__init__(kinds=KINDS, lease_kinds=LEASES, clock=clock)
        self.reads, self.before = 0, dict[int, Callable[[], Awaitable[object]]]()
        self.writes, self.looks, self.locks = 0, 0, 0

    def unchanged(self, entry: Entry) -> bool:
        self.looks += entry.key.kind == "queues"
        return super().unchanged(entry)

    def lease(self, key: Key, *, wait: float) -> Any:
        self.locks += key.kind == "queue"
        return super().lease(key, wait=wait)

    async def get(self, key: Key) -> Entry | None:
        self.reads += key.kind == "queues"
        if key.kind == "queues" and self.reads in self.before:
            await self.before.pop(self.reads)()
        return await super().get(key)

    async def put(self, key: Key, body: bytes, **given: Any) -> Entry:
        self.writes += key.kind == "queues"
        return await super().put(key, body, **given)


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
def store(clock: TestClock) -> CountingStore:
    return CountingStore(clock)


@pytest.fixture
def queues(store: CountingStore, clock: TestClock) -> StoreQueues:
    return StoreQueues(repository=Repository(store), clock=clock, limits=Limits(), metrics=Metrics())


async def passed(queues: StoreQueues, number: int) -> None:
    """Let an event come and go."""
    assert await queues.enqueue(event(number))
    delivery = await queues.lease("planner")
    assert delivery is not None
    assert await delivery.ack()


async def test_a_process_reads_no_part_again_that_it_wrote_also_of_an_empty_queue(
    queues: StoreQueues, store: CountingStore
) -> None:
    await passed(queues, 0)
    store.reads = 0
    await passed(queues, 1)
    assert 0 == store.reads


async def test_a_lease_of_an_event_that_this_process_has_seen_looks_at_the_queue_once(
    queues: StoreQueues, store: CountingStore
) -> None:
    assert await queues.enqueue(event(0))
    store.looks, store.locks = 0, 0
    assert await queues.lease("planner") is not None
    assert (2, 1) == (store.looks, store.locks)  # at the head and the last segment, under the lock


async def test_an_event_that_another_process_has_taken_costs_one_lock_and_the_next_polls_none(
    queues: StoreQueues, store: CountingStore, clock: TestClock
) -> None:
    other = StoreQueues(repository=Repository(store), clock=clock, limits=Limits(), metrics=Metrics())
    assert await queues.enqueue(event(0))
    assert await other.lease("planner") is not None
    store.locks = 0
    for _ in range(3):
        assert await queues.lease("planner") is None
    assert 1 == store.locks


def known_queue(waiting: int, remembered: int) -> KnownQueue:
    """Return a queue as it is read from a store, with as many settlements in each part as may be in one, or none."""
    items = [Item(id=f"evt-{number:022}", address=f"swarm/planner/{number:020}") for number in range(waiting)]
    segments = segments_of("planner", items, 1) or [Segment(agent="planner", number=1)]
    settled = [
        Settled(id=f"evt-{number:022}", lease=f"{number:022}", done=True, order=10**15 + number)
        for number in range(remembered)
    ]
    head = Head("planner", tuple(each.number for each in segments), len(segments) + 1, settled=tuple(settled))
    known = KnownQueue("planner")
    known.put_head(Head.from_plaintext(head.to_plaintext()), Entry(Key("queues", "head"), 1, b""))
    for each in segments:
        read = Segment(agent="planner", number=each.number, items=each.items, settled=tuple(settled[:SEGMENT_ITEMS]))
        version = Entry(Key("queues", f"{each.number:043}"), 1, b"")
        known.put(Segment.from_plaintext(read.to_plaintext()), version)
    return known


@pytest.mark.parametrize(("more", "segments"), [(0, 1), (1, 2)])
def test_a_segment_is_full_at_64_kib_to_the_byte(more: int, segments: int) -> None:
    def of_weight(weight: int) -> Item:
        return Item(id="evt", address="a" * (weight - ITEM_WEIGHT - 3))

    one, other = of_weight(32 * 1024), of_weight(32 * 1024 + more)
    assert segments == len(segments_of("planner", [one, other], 1))
    assert (segments == 1) is Segment(agent="planner", number=1, items=(one,)).has_space_for(other)


def test_a_segment_that_the_head_no_longer_lists_leaves_nothing_behind() -> None:
    known = known_queue(3 * SEGMENT_ITEMS, REMEMBERED)
    known.put_head(replace(known.head, segments=known.head.segments[-1:]), Entry(Key("queues", "head"), 2, b""))
    numbers = {*known.head.segments}
    assert (numbers, {HEAD, *numbers}, set()) == ({*known.segments}, {*known.versions}, known.unread)
    assert numbers == {
        number for places in (known.ids, known.addresses, known.leases) for at in places.values() for number in at
    }


@pytest.mark.parametrize("waiting", [0, 10 * SEGMENT_ITEMS])
@pytest.mark.parametrize("remembered", [0, 2 * REMEMBERED])
def test_a_queue_takes_at_most_three_times_its_weight_in_memory(waiting: int, remembered: int) -> None:
    known_queue(waiting, remembered)  # once before: it fills caches
    tracemalloc.start()
    try:
        known = known_queue(waiting, remembered)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 3 * known.weight


async def test_a_queue_that_changes_while_it_is_read_is_in_the_list_of_all(
    queues: StoreQueues, store: CountingStore, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_segments(monkeypatch, 1)
    for number in range(2):
        assert await queues.enqueue(event(number))
    reader = StoreQueues(repository=Repository(store), clock=clock, limits=Limits(), metrics=Metrics())
    assert [2] == [depth.waiting for depth in await reader.depths()]
    assert await queues.lease("planner") is not None  # which changes the first segment
    store.before[store.reads + 1] = partial(reader.enqueue, event(2))
    assert [(2, 1)] == [(depth.waiting, depth.leased) for depth in await reader.depths()]


async def test_segments_that_few_large_events_fill_are_not_joined_at_each_event(
    queues: StoreQueues, store: CountingStore
) -> None:
    for number in range(30):
        assert await queues.enqueue(event(number, f"{number:040000}"))
    store.writes = 0
    assert await queues.lease("planner") is not None
    assert 1 == store.writes


async def test_a_dead_letter_that_a_crash_left_waiting_as_well_is_dead_once_another_process_has_noticed(
    queues: StoreQueues, store: CountingStore, clock: TestClock
) -> None:
    repository = Repository(store)
    other = StoreQueues(repository=repository, clock=clock, limits=Limits(), metrics=Metrics())
    dying = Item(id=event(0).id, address=address_of(event(0)), attempts=Limits().queue_attempts)
    items = (dying, Item(id=event(1).id, address=dying.address))
    await repository.events.keep(event(1))
    for each in (Segment(agent="planner", number=1, items=items), Segment(agent="planner", number=2)):
        await repository.queue_parts.put("planner", each.number, each.to_plaintext(), expect=0)
    head = Head("planner", (1, 2), 3, dead=(dying,))
    await repository.queue_parts.put("planner", 0, head.to_plaintext(), expect=0)
    assert not await queues.is_dead("planner", dying.id)
    assert await other.lease("planner") is not None
    assert await queues.is_dead("planner", dying.id)
