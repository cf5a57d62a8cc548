"""Queues that crash in the middle of an operation, and the model that says what may be there afterwards.

An event that the interrupted operation concerns is in the state before or after it. All others are where they were:
delivered once, in the order of their conversation, known by their ids, and settled events stay settled.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

import pytest

from oauthbroker.events.port import EventLease, Queues
from oauthbroker.events.queue import StoreQueues
from oauthbroker.model.settings import Limits
from oauthbroker.observability.metrics import Metrics
from oauthbroker.records import AgentEvent
from oauthbroker.records.event_queue import Head
from oauthbroker.repository.queue_parts import HEAD
from oauthbroker.repository.repository import Repository
from oauthbroker.store.format.port import Store
from oauthbroker.testing import TestClock
from tests.unit.records import kit

AGENT = "planner"
INSTANCES = 3
ATTEMPTS = 2
LIMITS = Limits(queue_attempts=ATTEMPTS)
LONG = 3600.0  # longer than each lease and each back-off
MOST = 500  # far more than a queue of these tests holds
Name = Literal["enqueue", "lease", "ack", "nack", "give back", "revive", "drop", "erase", "tidy", "wait"]
Place = Literal["waiting", "dying", "dead", "gone"]


def event(number: int) -> AgentEvent:
    return kit.event(number, f"instance {number % INSTANCES}", order=number + 1)


def small_segments(patch: pytest.MonkeyPatch, items: int = 3) -> None:
    """Let segments be full after a few events, so that a few events fill, empty and join some."""
    for module in ("records.event_queue", "events.queue_index"):
        patch.setattr(f"oauthbroker.{module}.SEGMENT_ITEMS", items)
    patch.setattr("oauthbroker.events.queue_index.SPARSE", 1)


def queues_on(store: Store, clock: TestClock) -> StoreQueues:
    return StoreQueues(repository=Repository(store), clock=clock, limits=LIMITS, metrics=Metrics())


@dataclass(frozen=True)
class Step:
    """One operation, the numbers of its events, and the lease that it settles."""

    name: Name
    numbers: tuple[int, ...] = ()
    lease: str = ""

    async def run(self, queues: Queues, clock: TestClock) -> Any:
        ids = [event(number).id for number in self.numbers]
        match self.name:
            case "enqueue":
                return await queues.enqueue(event(self.numbers[0]))
            case "lease":
                return await queues.lease(AGENT)
            case "ack":
                assert await queues.ack(AGENT, ids[0], self.lease)
            case "nack":
                assert await queues.nack(AGENT, ids[0], self.lease)
            case "give back":
                await queues.give_back(AGENT, ids[0], self.lease)
            case "revive":
                await queues.revive(AGENT, ids[0])
            case "drop":
                await queues.drop(AGENT, ids[0])
            case "erase":
                await queues.erase(AGENT, ids)
            case "tidy":
                await queues.tidy()
            case "wait":
                clock.advance(LONG)
        return None


@dataclass
class Waiting:
    number: int
    attempts: int = 0
    lease: str = ""
    resting: bool = False  # leased or backing off


@dataclass
class Model:
    """The state of a queue as its callers know it."""

    waiting: list[Waiting] = field(default_factory=list)
    dead: list[int] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)  # acknowledged, dropped or erased
    settled: list[tuple[str, int, bool]] = field(default_factory=list)
    queued: int = 0

    def after(self, step: Step, delivery: EventLease | None = None) -> Model:
        """Return the state after a step; `delivery` is what a lease returned, if it returned."""
        new = copy.deepcopy(self)
        match step.name:
            case "enqueue":
                new.waiting.append(Waiting(step.numbers[0]))
                new.queued = max(new.queued, step.numbers[0] + 1)
            case "lease":
                new._lease("" if delivery is None else delivery.lease)
            case "ack":
                new._take(step.numbers[0])
                new.gone.append(step.numbers[0])
                new.settled.append((step.lease, step.numbers[0], True))
            case "nack":
                new._refuse(step)
            case "give back":
                item = new.item(step.numbers[0])
                item.attempts, item.lease, item.resting = item.attempts - 1, "", False
            case "revive":
                new.dead.remove(step.numbers[0])
                new.waiting.append(Waiting(step.numbers[0]))
            case "drop":
                new.dead.remove(step.numbers[0])
                new.gone.append(step.numbers[0])
            case "erase":
                new.waiting = [each for each in new.waiting if each.number not in step.numbers]
                new.dead = [each for each in new.dead if each not in step.numbers]
                new.gone += [each for each in step.numbers if each not in new.gone]
            case "wait":
                for each in new.waiting:
                    each.resting = False
        return new

    def item(self, number: int) -> Waiting:
        return next(each for each in self.waiting if each.number == number)

    def next_free(self) -> Waiting | None:
        blocked = set[int]()
        for each in self.waiting:
            if each.number % INSTANCES not in blocked and not each.resting:
                return each
            blocked.add(each.number % INSTANCES)
        return None

    def place(self, number: int) -> Place:
        if number in self.dead:
            return "dead"
        found = [each for each in self.waiting if each.number == number]
        if not found:
            return "gone"
        return "waiting" if found[0].attempts < ATTEMPTS else "dying"

    def order(self, instance: int) -> list[int]:
        return [each.number for each in self.waiting if each.number % INSTANCES == instance]

    @property
    def leases(self) -> set[str]:
        """The leases that have not ended."""
        return {each.lease for each in self.waiting if each.lease and each.resting}

    def _take(self, number: int) -> None:
        self.waiting = [each for each in self.waiting if each.number != number]

    def _lease(self, lease: str) -> None:
        while (found := self.next_free()) is not None:
            if found.attempts < ATTEMPTS:
                found.attempts, found.lease, found.resting = found.attempts + 1, lease, True
                return
            self._take(found.number)
            self.dead.append(found.number)

    def _refuse(self, step: Step) -> None:
        item = self.item(step.numbers[0])
        self.settled.append((step.lease, item.number, False))
        item.lease, item.resting = "", True
        if item.attempts >= ATTEMPTS:
            self._take(item.number)
            self.dead.append(item.number)


def next_step(model: Model, dice: Random) -> Step:
    """Choose an operation that the state allows."""
    held = [each for each in model.waiting if each.lease]
    choices = [Step("enqueue", (model.queued,))] * 4 + [Step("wait"), Step("tidy")]
    choices += [Step("lease")] * 4 if model.next_free() is not None else []
    if held:
        item = dice.choice(held)
        settling: tuple[Name, ...] = ("ack", "ack", "ack", "nack", "nack", "give back")
        choices += [Step(name, (item.number,), item.lease) for name in settling]
    if model.dead:
        number = dice.choice(model.dead)
        choices += [Step("revive", (number,)), Step("drop", (number,))]
    there = [*(each.number for each in model.waiting), *model.dead]
    if len(there) > 3 and dice.random() < 0.2:
        choices.append(Step("erase", tuple(sorted(dice.sample(there, 2)))))
    return dice.choice(choices)


@dataclass(frozen=True)
class Interrupted:
    """The step that was interrupted, and the states before and after it. Both are one if it was answered."""

    step: Step
    before: Model
    after: Model

    @property
    def numbers(self) -> range:
        return range(max(self.before.queued, self.after.queued))

    def retried(self) -> Interrupted:
        return Interrupted(self.step, self.after, self.after)


async def check(store: Store, clock: TestClock, known: Interrupted) -> None:
    """Check what a new process finds. Raises AssertionError."""
    reported = list[str]()
    queues = StoreQueues(
        repository=Repository(store, lambda place, _: reported.append(place)),
        clock=clock,
        limits=LIMITS,
        metrics=Metrics(),
    )
    certain = known.before.leases & known.after.leases
    assert certain == await queues.unsettled(AGENT, certain), "a lease holds until it ends"
    for lease, number, done in known.before.settled:
        settle = queues.ack if done else queues.nack
        assert await settle(AGENT, event(number).id, lease), "a settled event stays settled"
    clock.advance(LONG)
    await queues.tidy()  # as at the start of each process
    delivered = await drained(queues)
    dead = {each.id: each for each in await queues.dead(AGENT)}
    assert all(each.event is not None for each in dead.values())
    for number in known.numbers:
        _check_place(known, number, delivered, event(number).id in dead)
    for instance in range(INSTANCES):
        _check_order(known, [number for number in delivered if number % INSTANCES == instance], instance)
    await _check_left(store, queues, len(dead))
    assert [] == reported, "a crash is no damage"
    for number in known.numbers:
        if all("gone" != model.place(number) or number in model.gone for model in (known.before, known.after)):
            assert not await queues.enqueue(event(number)), f"{number} was known"


async def drained(queues: Queues) -> list[int]:
    """Every event in the order in which it comes, acknowledged."""
    found, numbers = list[int](), {event(number).id: number for number in range(MOST)}
    while len(found) < MOST and (delivery := await queues.lease(AGENT)) is not None:
        found.append(numbers[delivery.id])
        assert event(found[-1]) == delivery.event
        assert await delivery.ack()
    assert len(found) < MOST
    return found


def _check_place(known: Interrupted, number: int, delivered: list[int], is_dead: bool) -> None:
    times = Counter(delivered)[number]
    found = {(1, False): "waiting", (0, True): "dead", (0, False): "gone"}.get((times, is_dead), "doubled")
    may = {model.place(number) for model in (known.before, known.after)}
    assert found in {"dead" if place == "dying" else place for place in may}, f"{number} is {found}, not {may}"


def _check_order(known: Interrupted, delivered: list[int], instance: int) -> None:
    orders = [model.order(instance) for model in (known.before, known.after)]
    assert any(_is_within(delivered, order) for order in orders), f"{delivered} is not in the order of {orders}"


def _is_within(few: Iterable[int], many: Iterable[int]) -> bool:
    rest = iter(many)
    return all(each in rest for each in few)


async def _check_left(store: Store, queues: Queues, dead: int) -> None:
    """Nothing is left that no queue needs: no body, and no part."""
    await queues.tidy()
    assert dead == await store.count("events"), "bodies that no queue needs"
    parts = Repository(store).queue_parts
    entry = await parts.get(AGENT, HEAD)
    head = Head.from_plaintext(entry.body) if entry is not None else Head()
    stored = {each.key async for each in parts.scan()} - {parts.key(AGENT)}
    assert stored <= {parts.key(AGENT, number) for number in (*head.segments, *head.retired)}, "parts in no list"


def script_of_a_join() -> list[Step]:
    """Fill three segments of eight, of which one conversation has an event in each, and settle the others. The last
    step but one leaves one event in each segment, so that they are joined."""
    others = iter(number for number in range(100) if number % INSTANCES)
    queued = [[INSTANCES * number, *(next(others) for _ in range(7))] for number in range(3)]
    steps = [Step("enqueue", (number,)) for segment in queued for number in segment]
    return [*steps, Step("lease"), *[Step("lease"), Step("ack")] * (3 * 7), Step("enqueue", (100,))]


def with_its_lease(step: Step, model: Model) -> Step:
    """Return a step of a script that settles the newest lease, if it settles one."""
    if step.name != "ack" or step.numbers:
        return step
    newest = [each for each in model.waiting if each.lease][-1]
    return Step("ack", (newest.number,), newest.lease)
