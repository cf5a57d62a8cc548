"""The queues: an event is kept until it is settled, in order within its conversation, and holds up no other one."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.events.port import BACKOFF_SECONDS, DeadEvent, EventLease, address_of
from oauthbroker.events.queue import StoreQueues
from oauthbroker.events.queue_index import MOST_BYTES
from oauthbroker.model.settings import Limits
from oauthbroker.model.turn import ResumeTarget
from oauthbroker.observability.metrics import Metric, Metrics
from oauthbroker.records.event_queue import REMEMBERED, SEGMENT_ITEMS, Head, Item, Segment, Settled, newest
from oauthbroker.repository.repository import KINDS, LEASES, Repository
from oauthbroker.store.format.port import Entry, Key, Lease
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import TestClock
from oauthbroker.testing.stores import open_file_store
from tests.faults.queue_crash_kit import small_segments
from tests.kit.forms import examples
from tests.kit.queues import put_items
from tests.unit.records import kit
from tests.unit.records.kit import event

LEASE_SECONDS = Limits().queue_lease_seconds
ATTEMPTS = Limits().queue_attempts


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
async def store(clock: TestClock) -> AsyncIterator[MemoryStore]:
    store = MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=clock)
    yield store
    await store.close()


@pytest.fixture
def queues(store: MemoryStore, clock: TestClock, metrics: Metrics) -> StoreQueues:
    return StoreQueues(repository=Repository(store), clock=clock, limits=Limits(), metrics=metrics)


async def drained(queues: StoreQueues, agent: str = "planner") -> list[str]:
    """Every event that can be had now, acknowledged, in the order in which they came."""
    found = []
    while (delivery := await queues.lease(agent)) is not None:
        found.append(delivery.id)
        assert await delivery.ack()
    return found


def ids(*numbers: int) -> list[str]:
    return [event(number).id for number in numbers]


async def leased(queues: StoreQueues, agent: str = "planner") -> EventLease:
    delivery = await queues.lease(agent)
    assert delivery is not None
    return delivery


async def test_an_event_comes_back_as_it_was_put(queues: StoreQueues) -> None:
    assert await queues.enqueue(event())
    delivery = await leased(queues)
    assert (event(), event().id, "auth.granted", 1) == (delivery.event, delivery.id, delivery.type, delivery.attempt)
    assert event().to_json() == delivery.to_json()


async def test_an_empty_queue_gives_nothing(queues: StoreQueues) -> None:
    assert await queues.lease("planner") is None
    await queues.enqueue(event(agent="writer"))
    assert await queues.lease("planner") is None


@pytest.mark.case("93")
@pytest.mark.parametrize("state", ["waiting", "leased", "backing off", "acknowledged", "dead"])
async def test_the_same_event_twice_is_one(queues: StoreQueues, clock: TestClock, state: str) -> None:
    await queues.enqueue(event())
    if state != "waiting":
        delivery = await leased(queues)
        if state == "backing off":
            await delivery.nack()
        if state == "acknowledged":
            await delivery.ack()
    if state == "dead":
        await exhaust(queues, clock, first=1)
    assert not await queues.enqueue(event())
    clock.advance(LEASE_SECONDS * 20)
    assert ([] if state in {"acknowledged", "dead"} else ids(0)) == await drained(queues)


async def exhaust(queues: StoreQueues, clock: TestClock, *, first: int = 0) -> None:
    """Lets every attempt from `first` on run out or be refused."""
    for _ in range(first, ATTEMPTS):
        clock.advance(LEASE_SECONDS * 20)
        await (await leased(queues)).nack()


async def test_an_acknowledged_event_leaves_nothing_behind(queues: StoreQueues, store: MemoryStore) -> None:
    await queues.enqueue(event())
    await (await leased(queues)).ack()
    assert 0 == await store.count("events")
    await queues.enqueue(event())  # a relay that repeats itself
    assert 0 == await store.count("events")


async def test_what_a_crash_left_of_an_acknowledged_event_is_removed_and_nothing_else(
    queues: StoreQueues, store: MemoryStore
) -> None:
    for number in range(3):
        await queues.enqueue(event(number))
    await Repository(store).events.keep(event(3))  # acknowledged, and then the machine stopped
    assert 1 == await queues.tidy()
    assert 3 == await store.count("events")
    assert ids(0, 1, 2) == await drained(queues)


async def test_events_of_one_conversation_come_in_order(queues: StoreQueues) -> None:
    for number in range(20):
        await queues.enqueue(event(number))
    assert ids(*range(20)) == await drained(queues)


@pytest.mark.case("94")
async def test_a_leased_event_holds_up_its_conversation_and_no_other(queues: StoreQueues) -> None:
    for number, instance in enumerate(("a", "a", "b", "c", "b")):
        await queues.enqueue(event(number, instance))
    first = await leased(queues)
    assert ids(0) == [first.id]
    assert ids(2, 3, 4) == await drained(queues)
    await first.ack()
    assert ids(1) == await drained(queues)


@pytest.mark.parametrize(
    ("swarm", "instance"), [("Swarm/other", "1700000000.000100"), ("Swarm/default", "1700000000.000200")]
)
async def test_another_swarm_or_instance_is_another_conversation(
    queues: StoreQueues, swarm: str, instance: str
) -> None:
    await queues.enqueue(event(0))
    target = ResumeTarget("planner", instance, swarm)
    await queues.enqueue(event(1, target=target))
    await leased(queues)
    assert ids(1) == await drained(queues)


@pytest.mark.case("93")
async def test_a_lease_that_ends_gives_the_same_event_again(queues: StoreQueues, clock: TestClock) -> None:
    await queues.enqueue(event())
    lost = await leased(queues)
    clock.advance(LEASE_SECONDS - 1)
    assert await queues.lease("planner") is None
    clock.advance(1)
    again = await leased(queues)
    assert (lost.id, 2) == (again.id, again.attempt)
    assert not await lost.ack()
    assert not await lost.nack()
    assert await again.ack()
    assert await again.ack()
    assert not await lost.ack()


async def test_a_late_ack_counts_while_no_other_consumer_has_the_event(queues: StoreQueues, clock: TestClock) -> None:
    await queues.enqueue(event())
    delivery = await leased(queues)
    clock.advance(LEASE_SECONDS * 2)
    assert await delivery.ack()
    assert [] == await drained(queues)


@pytest.mark.case("94")
async def test_a_refused_event_comes_again_later_and_later(queues: StoreQueues, clock: TestClock) -> None:
    await queues.enqueue(event())
    for pause in BACKOFF_SECONDS[: ATTEMPTS - 1]:
        assert await (await leased(queues)).nack()
        clock.advance(pause * 0.8 - 0.1)
        assert await queues.lease("planner") is None
        clock.advance(pause * 0.4 + 0.2)


@pytest.mark.case("94", "59")
@pytest.mark.parametrize("refused", [True, False])
async def test_an_event_that_was_not_free_before_the_clock_was_set_back_comes_at_once(
    queues: StoreQueues, clock: TestClock, refused: bool
) -> None:
    await queues.enqueue(event())
    delivery = await leased(queues)
    if refused:
        await delivery.nack()
    assert await queues.lease("planner") is None
    clock.set(clock.now() - timedelta(days=1))
    assert 2 == (await leased(queues)).attempt


@pytest.mark.case("94")
@pytest.mark.parametrize("how", ["refused", "forgotten"])
async def test_after_five_attempts_an_event_is_dead_and_the_next_one_comes(
    queues: StoreQueues, clock: TestClock, metrics: Metrics, how: str
) -> None:
    await queues.enqueue(event(0))
    await queues.enqueue(event(1))
    for attempt in range(1, ATTEMPTS + 1):
        delivery = await leased(queues)
        assert (event(0).id, attempt) == (delivery.id, delivery.attempt)
        if how == "refused":
            await delivery.nack()
        clock.advance(2000)
    assert ids(1) == await drained(queues)
    assert [event(0)] == [each.event for each in await queues.dead("planner")]
    assert 1 == metrics.value(Metric.EVENTS_DEAD)


@pytest.mark.case("94")
async def test_a_poisoned_event_never_blocks_another_conversation(queues: StoreQueues, clock: TestClock) -> None:
    await queues.enqueue(event(0, "poisoned"))
    for number in range(1, 11):
        await queues.enqueue(event(number, f"healthy {number}"))
        flowed = []
        while (delivery := await queues.lease("planner")) is not None:
            if delivery.id == event(0).id:
                await delivery.nack()
            else:
                await delivery.ack()
                flowed.append(delivery.id)
        assert ids(number) == flowed
        clock.advance(100)
    assert [event(0, "poisoned")] == [each.event for each in await queues.dead("planner")]


@pytest.mark.case("94", "65")
async def test_a_damaged_event_is_a_dead_letter_and_the_next_one_comes(
    queues: StoreQueues, store: MemoryStore, metrics: Metrics
) -> None:
    await queues.enqueue(event(0))
    await queues.enqueue(event(1))
    await store.put(store.key("events", event(0).id), b"not an event", expect=1)
    assert ids(1) == await drained(queues)
    assert [DeadEvent(id=event(0).id, address=event(0).target.address, attempts=0)] == await queues.dead("planner")
    assert 1 == metrics.value(Metric.EVENTS_DEAD)


async def test_many_damaged_events_become_dead_letters_a_few_under_each_lock_and_the_next_one_comes(
    queues: StoreQueues, store: MemoryStore, monkeypatch
) -> None:
    monkeypatch.setattr("oauthbroker.events.queue._DEAD_AT_ONCE", 4)
    locks, lease = list[str](), store.lease
    for number in range(10):
        await queues.enqueue(event(number, f"thread {number}"))
        await store.put(store.key("events", event(number).id), b"not an event", expect=1)
    await queues.enqueue(event(10, "thread 10"))

    def counted(key: Key, *, wait: float) -> Any:
        locks.append(key.kind)
        return lease(key, wait=wait)

    monkeypatch.setattr(store, "lease", counted)
    assert event(10).id == (await leased(queues)).id
    assert ["queue"] * 3 == locks
    assert ids(*range(9, -1, -1)) == [each.id for each in await queues.dead("planner")]


async def test_a_store_that_fails_for_a_moment_buries_nothing(
    queues: StoreQueues, store: MemoryStore, monkeypatch
) -> None:
    await queues.enqueue(event())
    get = store.get

    async def failing(key):
        if key.kind == "events":
            raise BrokerError(Code.STORE_UNAVAILABLE)
        return await get(key)

    with monkeypatch.context() as patch:
        patch.setattr(store, "get", failing)
        with pytest.raises(BrokerError):
            await queues.lease("planner")
    assert ids(0) == await drained(queues)


@asynccontextmanager
async def processes(folder: Path, count: int, clock: TestClock) -> AsyncIterator[list[StoreQueues]]:
    """StoreQueues that share nothing but the files: as far as locks and reads go, brokers of their own."""
    stores = [open_file_store(folder, clock=clock) for _ in range(count)]
    yield [
        StoreQueues(repository=Repository(store), clock=clock, limits=Limits(), metrics=Metrics()) for store in stores
    ]
    for store in stores:
        await store.close()


@pytest.mark.case("93")
async def test_two_brokers_never_hold_the_same_lease(tmp_path: Path, clock: TestClock) -> None:
    async with processes(tmp_path, 2, clock) as both:
        for number in range(12):
            await both[number % 2].enqueue(event(number, f"instance {number % 6}"))
        found: list[EventLease] = []

        async def take(queues: StoreQueues) -> None:
            while (delivery := await queues.lease("planner")) is not None:
                found.append(delivery)

        await asyncio.gather(*(take(queues) for queues in both for _ in range(4)))
        heads = sorted(delivery.id for delivery in found)
        assert sorted(ids(*range(6))) == heads  # one of each conversation, each once
        assert all(await asyncio.gather(*(delivery.ack() for delivery in found)))
        assert ids(*range(6, 12)) == await drained(both[1])
        assert [] == await drained(both[0])


async def test_events_that_many_put_at_once_are_all_there(tmp_path: Path, clock: TestClock) -> None:
    async with processes(tmp_path, 3, clock) as all_:
        new = await asyncio.gather(
            *(queues.enqueue(event(number)) for number in range(10) for queues in all_),
        )
        assert 10 == sum(new)
        assert sorted(ids(*range(10))) == sorted(await drained(all_[0]))


async def test_a_queue_without_a_consumer_fills_up_and_takes_more_once_it_has_one(
    queues: StoreQueues, store: MemoryStore, monkeypatch
) -> None:
    monkeypatch.setattr("oauthbroker.events.queue_index.MOST_BYTES", 1000)
    number = 0
    with pytest.raises(BrokerError) as full:
        for number in range(100):
            await queues.enqueue(event(number))
    assert Code.STORE_UNAVAILABLE is full.value.code
    assert "the queue of planner is full: start its consumer, and look at `oauthbroker queues list`" == full.value.note
    assert 0 < number == await store.count("events")
    assert await queues.enqueue(event(number, agent="writer"))  # another agent's queue is its own
    assert ids(*range(number)) == await drained(queues)
    assert await queues.enqueue(event(number + 1))


async def fill(queues: StoreQueues) -> int:
    """Queue events until one is refused; its number."""
    for number in range(100):
        try:
            await queues.enqueue(event(number))
        except BrokerError:
            return number
    raise AssertionError


async def test_sixteen_events_at_once_are_written_leased_and_acknowledged_by_two_writes_of_their_segment_each(
    queues: StoreQueues, store: MemoryStore, monkeypatch
) -> None:
    put, written = store.put, list[Key]()

    async def counted(key: Key, body: bytes, **given: Any) -> Entry:
        written.extend([key] if key.kind == "queues" else [])
        return await put(key, body, **given)

    monkeypatch.setattr(store, "put", counted)
    assert all(await asyncio.gather(*(queues.enqueue(event(number, f"instance {number}")) for number in range(16))))
    assert len(written) == 3, "the list of segments, and the segment: for the first event, and for the others"
    leases = await asyncio.gather(*(queues.lease("planner") for _ in range(16)))
    assert sorted(ids(*range(16))) == sorted(lease.event.id for lease in leases if lease)
    assert len(written) == 5
    assert all(await asyncio.gather(*(lease.ack() for lease in leases if lease)))
    assert len(written) == 7


async def test_an_event_that_was_refused_as_full_is_refused_again_without_a_lock_and_without_parsing(
    queues: StoreQueues, store: MemoryStore, clock: TestClock, metrics: Metrics, monkeypatch
) -> None:
    other, parsed, parse = (
        StoreQueues(repository=Repository(store), clock=clock, limits=Limits(), metrics=metrics),
        0,
        Segment.from_plaintext,
    )

    def counted(body: bytes) -> Segment:
        nonlocal parsed
        parsed += 1
        return parse(body)

    monkeypatch.setattr("oauthbroker.events.queue_index.MOST_BYTES", 1000)
    number = await fill(queues)
    monkeypatch.setattr(Segment, "from_plaintext", counted)
    async with store.lease(store.key("queue", "planner"), wait=0):
        for _ in range(3):
            with pytest.raises(BrokerError, match="full"):
                await queues.enqueue(event(number))
    assert 0 == parsed
    assert not await queues.enqueue(event(0)), "a queued event is still known"
    assert ids(*range(number)) == await drained(other)
    assert await queues.enqueue(event(number))
    assert ids(number) == await drained(other)


async def test_parts_that_have_come_in_the_place_of_full_ones_are_read_anew(
    queues: StoreQueues, store: MemoryStore, monkeypatch
) -> None:
    """They may have the generations of the old ones, such as after a restore."""
    monkeypatch.setattr("oauthbroker.events.queue_index.MOST_BYTES", 1000)
    number = await fill(queues)
    for full in [each async for each in store.scan("queues")]:
        await store.delete(full.key, expect=full.generation)
        head = full.key == Repository(store).queue_parts.key("planner")
        body = (Head("planner", (1,), 2) if head else Segment(agent="planner", number=1)).to_plaintext()
        empty = await store.put(full.key, body, expect=0)
        while empty.generation < full.generation:
            empty = await store.put(full.key, body, expect=empty.generation)
        assert full.generation == empty.generation
    assert await queues.enqueue(event(number))


@pytest.mark.case("66")
@pytest.mark.parametrize("part", [0, 1])
async def test_a_full_queue_with_a_damaged_part_is_rebuilt(
    tmp_path: Path, clock: TestClock, monkeypatch, part: int
) -> None:
    monkeypatch.setattr("oauthbroker.events.queue_index.MOST_BYTES", 1000)
    async with processes(tmp_path, 1, clock) as [queues]:
        number = await fill(queues)
        key = Repository(queues._repository._store).queue_parts.key("planner", part)
        (tmp_path / "store" / "data" / key.kind / key.name).write_bytes(b"damaged")
        with pytest.raises(BrokerError, match="full"):
            await queues.enqueue(event(number))
        assert sorted(ids(*range(number))) == sorted(await drained(queues))
        assert await queues.enqueue(event(number))


async def test_dead_letters_are_bounded_and_older_ones_leave_nothing(
    queues: StoreQueues, store: MemoryStore, clock: TestClock, monkeypatch
) -> None:
    monkeypatch.setattr("oauthbroker.events.queue_index.MOST_DEAD", 3)
    for number in range(5):
        await queues.enqueue(event(number))
        await exhaust(queues, clock)
    assert ids(4, 3, 2) == [each.id for each in await queues.dead("planner")]
    assert 3 == await store.count("events")
    assert 0 == await queues.tidy()


async def test_large_dead_letters_are_bounded_too_and_stop_no_other_conversation(
    store: MemoryStore, clock: TestClock, metrics: Metrics
) -> None:
    """An address may be almost 64 KB: a hundred of them do not fit into the queue's head."""
    queues = StoreQueues(repository=Repository(store), clock=clock, limits=Limits(queue_attempts=1), metrics=metrics)
    for number in range(100):
        large = event(number)
        target = dataclasses.replace(large.target, instance_key=f"{number:03}" + "k" * 60_000)
        await queues.enqueue(dataclasses.replace(large, target=target))
        assert await (await leased(queues)).nack()
    dead = await queues.dead("planner")
    assert 10 < len(dead) < 40
    assert event(99).id == dead[0].id
    assert len(dead) == await store.count("events")
    assert await queues.enqueue(event(100))
    assert event(100).id == (await leased(queues)).id


@pytest.mark.case("93")
@pytest.mark.parametrize("how", ["ack", "nack"])
async def test_who_did_not_hear_the_answer_asks_again_and_gets_the_same(
    store: MemoryStore, clock: TestClock, metrics: Metrics, how: str
) -> None:
    one, other = (
        StoreQueues(repository=Repository(store), clock=clock, limits=Limits(), metrics=metrics) for _ in range(2)
    )
    await one.enqueue(event())
    delivery = await leased(one)
    said, else_said = (one.ack, one.nack) if how == "ack" else (one.nack, one.ack)
    again = other.ack if how == "ack" else other.nack
    assert await said("planner", delivery.id, delivery.lease)
    for _ in range(2):
        assert await again("planner", delivery.id, delivery.lease)
        assert not await else_said("planner", delivery.id, delivery.lease)
        assert not await again("planner", delivery.id, "another lease")
        assert not await again("planner", "another event", delivery.lease)
        clock.advance(LEASE_SECONDS)
    assert {delivery.lease} == await one.settled("planner", {delivery.lease, "another"})
    assert (ids(0) if how == "nack" else []) == await drained(one), "once was once"


async def test_a_settled_event_is_remembered_so_long_and_no_longer(queues: StoreQueues, store: MemoryStore) -> None:
    deliveries = []
    for number in range(REMEMBERED + 2 * SEGMENT_ITEMS):
        await queues.enqueue(event(number))
        deliveries.append(await leased(queues))
        assert await deliveries[-1].ack()
    assert not await deliveries[0].ack()
    assert [True] * REMEMBERED == [await delivery.ack() for delivery in deliveries[-REMEMBERED:]]
    assert not await queues.enqueue(event(number))
    assert 2 == await store.count("queues"), "the head and one segment"


@pytest.mark.case("93")
async def test_the_last_settled_events_are_remembered_in_every_segment(queues: StoreQueues) -> None:
    """The first event of each segment is settled last, when the others of its segment are long forgotten."""
    segments, slow = 8, list[EventLease]()
    for number in range(segments * SEGMENT_ITEMS):
        await queues.enqueue(event(number, f"slow {number}" if number % SEGMENT_ITEMS == 0 else "quick"))
    while (delivery := await queues.lease("planner")) is not None:
        if delivery.event.target.instance_key == "quick":
            assert await delivery.ack()
        else:
            slow.append(delivery)
    assert segments == len(slow)
    for delivery in slow:
        assert await delivery.ack()
    for delivery in slow:
        assert await delivery.ack(), "its lease is remembered"
        assert not await queues.enqueue(delivery.event)


items = st.builds(
    Item,
    id=kit.texts,
    address=kit.texts,
    attempts=st.integers(0, 5),
    due=st.none() | kit.moments,
    lease=st.none() | kit.texts,
)
runs = st.lists(items, max_size=5).map(tuple)
settlements = st.lists(
    st.builds(Settled, id=kit.texts, lease=st.none() | kit.texts, done=st.booleans(), order=st.integers(0))
).map(tuple)
numbers = st.lists(st.integers(1), max_size=5).map(tuple)


@given(
    st.builds(Segment, agent=kit.texts, number=st.integers(1), items=runs, settled=settlements),
    st.builds(Head, kit.texts, numbers, st.integers(1), retired=numbers, dead=runs, settled=settlements),
)
def test_the_parts_of_a_queue_survive_the_store(segment: Segment, head: Head) -> None:
    assert segment == Segment.from_plaintext(segment.to_plaintext())
    assert head == Head.from_plaintext(head.to_plaintext())


def test_remembered_settlements_are_bounded() -> None:
    all_ = [Settled(id=str(number), lease="lease", done=bool(number % 2), order=number) for number in range(1000)]
    kept = newest(all_[::-1])
    assert {each.order for each in all_[-2 * REMEMBERED :]} == {each.order for each in kept}


class FixedPauses(TestClock):
    """Without jitter, so that the model knows when a back-off ends."""

    def jitter(self, low: float, high: float) -> float:
        return (low + high) / 2


class QueueMachine(RuleBasedStateMachine):
    """Any order of operations, against a model that says what a queue is: per conversation, a list of
    (event, attempts, not before, lease); the oldest head that is free comes next."""

    @initialize(segment=st.sampled_from([1, 2, 3, SEGMENT_ITEMS]))
    def begin(self, segment: int) -> None:
        self.patch = pytest.MonkeyPatch()
        small_segments(self.patch, segment)
        self.runner = asyncio.Runner()
        self.clock = FixedPauses(kit.CREATED)
        self.store = MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=self.clock)
        self.queues = StoreQueues(
            repository=Repository(self.store), clock=self.clock, limits=Limits(), metrics=Metrics()
        )
        self.waiting: list[int] = []
        self.attempts: dict[int, int] = {}
        self.free_at: dict[int, datetime] = {}
        self.lease_of: dict[int, str] = {}
        self.deliveries: list[tuple[int, EventLease]] = []
        self.seen: set[int] = set()
        self.dead: list[int] = []
        self.settled: set[tuple[str, bool]] = set()

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            self.runner.close()
            self.patch.undo()

    @rule(number=st.integers(0, 16))
    def enqueue(self, number: int) -> None:
        new = self.runner.run(self.queues.enqueue(event(number, f"instance {number % 3}")))
        assert new is (number not in self.seen)
        if new:
            self.seen.add(number)
            self.waiting.append(number)
            self.attempts[number] = 0

    @rule()
    def lease(self) -> None:
        expected = self._next()
        while expected is not None and self.attempts[expected] >= ATTEMPTS:
            self._bury(expected)
            expected = self._next()
        delivery = self.runner.run(self.queues.lease("planner"))
        assert (None if expected is None else event(expected).id) == (None if delivery is None else delivery.id)
        if expected is not None and delivery is not None:
            self.attempts[expected] += 1
            assert self.attempts[expected] == delivery.attempt
            self.free_at[expected] = self.clock.now() + timedelta(seconds=LEASE_SECONDS)
            self.lease_of[expected] = delivery.lease
            self.deliveries.append((expected, delivery))

    @rule(data=st.data(), acknowledged=st.booleans())
    def settle(self, data: st.DataObject, *, acknowledged: bool) -> None:
        if not self.deliveries:
            return
        number, delivery = data.draw(st.sampled_from(self.deliveries))
        mine = self.lease_of.get(number) == delivery.lease
        said_before = (delivery.lease, acknowledged) in self.settled
        settle = self.queues.ack if acknowledged else self.queues.nack
        assert (mine or said_before) is self.runner.run(settle("planner", delivery.id, delivery.lease))
        if not mine:
            return
        self.settled.add((delivery.lease, acknowledged))
        del self.lease_of[number]
        if acknowledged:
            self.waiting.remove(number)
        elif self.attempts[number] >= ATTEMPTS:
            self._bury(number)
        else:
            self.free_at[number] = self.clock.now() + timedelta(seconds=BACKOFF_SECONDS[self.attempts[number] - 1])

    @rule(data=st.data(), revived=st.booleans())
    def look_after_a_dead_letter(self, data: st.DataObject, *, revived: bool) -> None:
        if not self.dead:
            return
        number = data.draw(st.sampled_from(self.dead))
        assert self.runner.run((self.queues.revive if revived else self.queues.drop)("planner", event(number).id))
        self.dead.remove(number)
        if revived:
            self.waiting.append(number)
            self.attempts[number] = 0
            self.free_at.pop(number)

    @rule(number=st.integers(0, 16))
    def erase(self, number: int) -> None:
        self.runner.run(self.queues.erase("planner", [event(number).id]))
        self.seen.add(number)  # it is remembered
        self.lease_of.pop(number, None)
        for there in (self.waiting, self.dead):
            if number in there:
                there.remove(number)

    @invariant()
    def held_and_settled_leases_are_those_of_the_model(self) -> None:
        if hasattr(self, "queues"):
            leases = [delivery.lease for _, delivery in self.deliveries]
            held = {lease for number, lease in self.lease_of.items() if self.free_at[number] > self.clock.now()}
            assert held == self.runner.run(self.queues.unsettled("planner", leases))
            settled = {lease for lease, _ in self.settled}
            assert settled == self.runner.run(self.queues.settled("planner", leases))

    @rule(seconds=st.sampled_from([0.5, 1, 5, 59, 60, 125]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @invariant()
    def dead_letters_are_those_of_the_model(self) -> None:
        if hasattr(self, "queues"):
            shown = {each.id for each in self.runner.run(self.queues.dead("planner"))}
            assert {event(number).id for number in self.dead} == shown

    @invariant()
    def a_body_is_kept_exactly_while_it_is_needed(self) -> None:
        if hasattr(self, "store"):
            assert len(self.waiting) + len(self.dead) == self.runner.run(self.store.count("events"))

    def _next(self) -> int | None:
        heads: dict[int, int] = {}
        for number in self.waiting:
            heads.setdefault(number % 3, number)
        free = [n for n in self.waiting if n in heads.values() and self.free_at.get(n, kit.CREATED) <= self.clock.now()]
        return free[0] if free else None

    def _bury(self, number: int) -> None:
        self.waiting.remove(number)
        self.dead.append(number)
        self.lease_of.pop(number, None)


TestAnyOrderOfOperations = pytest.mark.case("93")(QueueMachine.TestCase)
TestAnyOrderOfOperations.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)


class CancelsItsCaller(MemoryStore):
    """A store whose `caller` is cancelled at the `left`-th step from now: before or after a read, a write or a lock."""

    left = 0
    caller: asyncio.Task[Any]

    async def _step(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.caller.cancel()
        await asyncio.sleep(0)

    async def get(self, key: Key) -> Entry | None:
        await self._step()
        entry = await super().get(key)
        await self._step()
        return entry

    async def put(self, key: Key, body: bytes, **more: Any) -> Entry:
        await self._step()
        entry = await super().put(key, body, **more)
        await self._step()
        return entry

    async def delete(self, key: Key, *, expect: int) -> None:
        await self._step()
        await super().delete(key, expect=expect)
        await self._step()

    @asynccontextmanager
    async def lease(self, key: Key, *, wait: float) -> AsyncIterator[Lease]:
        await self._step()
        async with super().lease(key, wait=wait) as held:
            await self._step()
            yield held
            await self._step()


async def test_a_lease_that_is_cancelled_anywhere_leases_nothing(clock: TestClock) -> None:
    """However often: none of them counts as an attempt, so none makes a dead letter."""
    store = CancelsItsCaller(kinds=KINDS, lease_kinds=LEASES, clock=clock)
    queues = StoreQueues(repository=Repository(store), clock=clock, limits=Limits(), metrics=Metrics())
    await queues.enqueue(event())
    cancelled = 0
    while True:
        store.left = cancelled + 1
        store.caller = leasing = asyncio.create_task(queues.lease("planner"))
        await asyncio.wait([leasing])
        if not leasing.cancelled():
            break
        cancelled += 1
        store.left = 0
        delivery = await leased(queues)
        assert 1 == delivery.attempt, f"cancelled at step {cancelled}"
        assert await delivery.give_back()
    assert cancelled > ATTEMPTS


async def test_giving_a_cancelled_lease_back_survives_the_next_cancellation(clock: TestClock) -> None:
    store = CancelsItsCaller(kinds=KINDS, lease_kinds=LEASES, clock=clock)
    queues = StoreQueues(repository=Repository(store), clock=clock, limits=Limits(), metrics=Metrics())
    await queues.enqueue(event())
    for steps in range(40):
        leasing = asyncio.create_task(queues.lease("planner"))
        for _ in range(steps):
            await asyncio.sleep(0)
        while not leasing.done():
            leasing.cancel()
            await asyncio.sleep(0)
        if not leasing.cancelled():
            break
        delivery = await leased(queues)
        assert 1 == delivery.attempt
        assert await delivery.give_back()
    assert not leasing.cancelled()


async def in_its_last_attempt(queues: StoreQueues, clock: TestClock) -> EventLease:
    """The event in its last attempt."""
    for _ in range(ATTEMPTS - 1):
        await (await leased(queues)).nack()
        clock.advance(max(BACKOFF_SECONDS) * 2)
    return await leased(queues)


async def acked(queues: StoreQueues, clock: TestClock) -> Callable[[], Coroutine[Any, Any, bool]]:
    return (await leased(queues)).ack


async def dropped(queues: StoreQueues, clock: TestClock) -> Callable[[], Coroutine[Any, Any, bool]]:
    await (await in_its_last_attempt(queues, clock)).nack()
    return lambda: queues.drop("planner", event().id)


async def pushed_out(queues: StoreQueues, clock: TestClock) -> Callable[[], Coroutine[Any, Any, bool]]:
    """Dead letters have space for none."""
    return (await in_its_last_attempt(queues, clock)).nack


@pytest.mark.case("93")
@pytest.mark.parametrize("settled", [acked, dropped, pushed_out], ids=lambda each: each.__name__)
async def test_settling_that_is_cancelled_anywhere_leaves_no_event_that_no_queue_names(
    clock: TestClock, settled: Any, monkeypatch
) -> None:
    """Until the next start nothing would remove it, and a person's account lies in it."""
    if settled is pushed_out:
        monkeypatch.setattr("oauthbroker.events.queue_index.MOST_DEAD", 1)
    for steps in itertools.count(1):
        store = CancelsItsCaller(kinds=KINDS, lease_kinds=LEASES, clock=clock)
        queues = StoreQueues(repository=Repository(store), clock=clock, limits=Limits(), metrics=Metrics())
        if settled is pushed_out:
            await queues.enqueue(event(1))
            await (await in_its_last_attempt(queues, clock)).nack()
        await queues.enqueue(event())
        settle = await settled(queues, clock)
        store.caller = settling = asyncio.create_task(settle())
        store.left = steps
        await asyncio.wait([settling])
        store.left = 0
        assert 0 == await queues.tidy(), f"cancelled at step {steps}"
        if not settling.cancelled():
            break
        clock.advance(max(BACKOFF_SECONDS) * 2)
    assert steps > 6


async def calls_of_an_event(others: int, clock: TestClock) -> int:
    """Return how many functions run while an event is queued, leased and acknowledged."""
    store = MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=clock)
    repository = Repository(store)
    waiting = [event(number, f"instance {number}") for number in range(others)]
    await put_items(repository, "planner", [Item(id=each.id, address=address_of(each)) for each in waiting])
    for each in waiting[:4]:
        await repository.events.keep(each)
    queues = StoreQueues(repository=repository, clock=clock, limits=Limits(), metrics=Metrics())
    assert await queues.enqueue(event(others))
    await (await leased(queues)).ack()
    calls = 0

    def count(_frame: FrameType, kind: str, _: object) -> None:
        nonlocal calls
        calls += kind in {"call", "c_call"}

    sys.setprofile(count)
    try:
        assert await queues.enqueue(event(others + 1))
        assert await (await leased(queues)).ack()
    finally:
        sys.setprofile(None)
    return calls


async def test_an_event_costs_as_much_in_a_queue_of_thousands_as_in_one_of_a_hundred(clock: TestClock) -> None:
    few, many = [await calls_of_an_event(others, clock) for others in (130, 12_802)]  # in segments filled alike
    assert few * 0.97 < many < few * 1.03


def test_a_hundred_thousand_ordinary_events_fit_into_a_queue() -> None:
    ordinary = event(99_999, "1700000000.000100")
    assert 100_000 * Item(id=ordinary.id, address=address_of(ordinary)).weight < MOST_BYTES
