"""A conversation's events leave in the order in which they happened, with any jump of the clock and any change while
the relay reads."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from oauthbroker.core.lifecycle import Notifier
from oauthbroker.events.outbox_relay import Relay
from oauthbroker.events.queue import StoreQueues
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.settings import Limits
from oauthbroker.observability.metrics import Metrics
from oauthbroker.repository.event_order import place
from oauthbroker.repository.repository import KINDS, LEASES, Repository
from oauthbroker.store.format.port import Entry, Key, Lease
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import TestClock
from tests.kit.forms import examples
from tests.unit.records import kit

APPS, CONVERSATIONS = ("mail", "files", "notes"), ("one", "two")
MOST_ROUNDS, SUBJECT = 60, "slack:team:T111"
Step = Callable[[], Awaitable[None]]


class InterruptedStore(MemoryStore):
    """Calls `before_read` before each read that takes place without a lease: something may happen in between. A scan
    takes the names first, in any order."""

    def __init__(self, clock: TestClock, dice: random.Random) -> None:
        super().__init__(kinds=KINDS, lease_kinds=LEASES, clock=clock)
        self.before_read: Step | None = None
        self._dice = dice
        self._held = 0

    async def _interrupted(self) -> None:
        step, self.before_read = self.before_read, None
        if step is not None and not self._held:
            await step()
        self.before_read = step

    async def get(self, key: Key) -> Entry | None:
        await self._interrupted()
        return await super().get(key)

    async def scan(self, kind: str, **more: Any) -> AsyncIterator[Entry]:
        keys = [entry.key async for entry in super().scan(kind, **more)]
        self._dice.shuffle(keys)
        for key in keys:
            entry = await self.get(key)
            if entry is not None:
                yield entry

    @asynccontextmanager
    async def lease(self, key: Key, *, wait: float) -> AsyncIterator[Lease]:
        async with super().lease(key, wait=wait) as lease:
            self._held += 1
            try:
                yield lease
            finally:
                self._held -= 1


@dataclass
class Happening:
    """An event in a conversation about an app, or a step of the clock, or a round of another process's relay, or the
    loss of the last event's number, which comes between two rounds. `within`
    is the number of reads of a round since the one before; 0: right after it."""

    what: str
    within: int
    app: str = ""
    conversation: str = ""
    step: timedelta = timedelta(0)


happenings = st.lists(
    st.builds(
        Happening,
        st.sampled_from(["event", "event", "event", "step", "relay", "loss"]),
        st.sampled_from([0, 0, 0, 1, 2, 3, 4, 6]),
        st.sampled_from(APPS),
        st.sampled_from(CONVERSATIONS),
        st.sampled_from(
            [timedelta(days=-1), timedelta(hours=-1), timedelta(0), timedelta(seconds=1), timedelta(days=1)]
        ),
    ),
    max_size=20,
)


@dataclass
class World:
    """Four processes on one store, two of which relay, and the events of each conversation as they happened."""

    store: InterruptedStore
    clock: TestClock
    script: list[Happening]
    happened: dict[str, list[str]] = field(default_factory=lambda: {each: [] for each in CONVERSATIONS})
    reads: int = 0
    last: int = 0

    def __post_init__(self) -> None:
        self.repositories = [Repository(self.store) for _ in range(4)]
        self.queues = StoreQueues(repository=self.repositories[0], clock=self.clock, limits=Limits(), metrics=Metrics())
        self.relays = [
            Relay(repository=each, queues=self.queues, notifier=Notifier()) for each in self.repositories[:2]
        ]

    async def run(self) -> None:
        for _ in range(MOST_ROUNDS):
            while self.script and not self.script[0].within:
                await self.happen(self.script.pop(0))
            self.last, self.store.before_read = 0, self.before_read
            await self.relays[0].once()
            self.reads, self.store.before_read = 0, None
            if self.script:  # fewer reads than it waits for
                self.script[0].within = 0
            elif not await self.store.count("due"):
                return
        raise AssertionError("the relay does not come to an end")

    async def before_read(self) -> None:
        self.reads += 1
        while self.script and self.script[0].within <= self.reads - self.last:
            self.last = self.reads
            await self.happen(self.script.pop(0))

    async def happen(self, it: Happening) -> None:
        match it.what:
            case "event":
                await self.event(it.app, it.conversation)
            case "step":
                self.clock.set(self.clock.now() + it.step)
            case "relay":
                await self.relays[1].once()
            case "loss" if not self.reads:
                await self.lose_number()

    async def event(self, app: str, conversation: str) -> None:
        number = sum(len(each) for each in self.happened.values())
        event = kit.event(number, conversation, created_at=self.clock.now())
        repository = self.repositories[2 + number % 2]
        async with repository.pair(GrantKey(app, SUBJECT)):
            versioned = await repository.grant(GrantKey(app, SUBJECT))
            grant = versioned.record if versioned is not None else kit.grant(app=app, subject=SUBJECT, outbox=())
            grant = replace(grant, outbox=(*grant.outbox, event))
            await repository.save_grant(grant, expect=versioned.generation if versioned is not None else 0)
        self.happened[conversation].append(event.id)

    async def lose_number(self) -> None:
        entry = await self.store.get(place(self.store))
        if entry is not None:
            await self.store.delete(entry.key, expect=entry.generation)

    async def received(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {each: [] for each in CONVERSATIONS}
        while (delivery := await self.queues.lease("planner")) is not None:
            found[delivery.event.target.instance_key].append(delivery.id)
            assert await delivery.ack()
        return found


@settings(max_examples=examples(200), deadline=None)
@given(happenings, st.integers(0, 2**16))
def test_events_leave_in_the_order_in_which_they_happened_with_any_steps_in_between(
    script: list[Happening], seed: int
) -> None:
    async def play() -> None:
        clock = TestClock(kit.CREATED, seed=seed)
        world = World(InterruptedStore(clock, random.Random(seed)), clock, [replace(each) for each in script])
        await world.run()
        assert world.happened == await world.received()

    asyncio.run(play())


async def test_an_outbox_that_has_an_event_twice_is_settled() -> None:
    clock = TestClock(kit.CREATED)
    repository = Repository(MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=clock))
    queues = StoreQueues(repository=repository, clock=clock, limits=Limits(), metrics=Metrics())
    relay = Relay(repository=repository, queues=queues, notifier=Notifier())
    once = kit.event(1, "one")
    grant = kit.grant(outbox=(once, replace(once, order=2), kit.event(3, "one")))
    await repository.save_grant(grant, expect=0)
    assert 1 == await relay.once()
    assert (await repository.due(), 0) == ([], await relay.once())
