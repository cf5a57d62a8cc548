"""A standby takes over between the queueing of an event and the settlement of its outbox, and lacks the queue's row."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import Notifier
from oauthbroker.events.outbox_relay import Relay
from oauthbroker.events.port import QueueFull, Queues
from oauthbroker.records import AgentEvent
from oauthbroker.repository.repository import KINDS, LEASES, Repository
from oauthbroker.store.format.port import Key, Lease
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import TestClock
from tests.unit.records import kit

EVENTS = tuple(kit.event(number, "one") for number in (1, 2))
AWAY = BrokerError(Code.STORE_UNAVAILABLE, note="away")


@dataclass
class LossyQueues:
    """Rows of events, which a takeover loses. `away` says how many changes are refused."""

    rows: list[str] = field(default_factory=list)
    changes: int = 0
    away: int = 0
    full: str = ""  # the agent whose queue is full
    before_third: Callable[[], None] = lambda: None  # that is, before the first event is queued again

    async def enqueue(self, event: AgentEvent) -> bool:
        if self.away:
            self.away -= 1
            raise AWAY
        if event.target.agent_name == self.full:
            raise QueueFull(self.full)
        self.changes += 1
        if self.changes == len(EVENTS) + 1:
            self.before_third()
        self.rows += [] if event.id in self.rows else [event.id]
        return True


class FallingStore(MemoryStore):
    """A standby takes over before the next `takeovers` leases of a pair, which the relay takes to settle a record."""

    def __init__(self, queues: LossyQueues) -> None:
        super().__init__(kinds=KINDS, lease_kinds=LEASES, clock=TestClock(kit.CREATED))
        self.queues, self.number, self.takeovers = queues, 0, 0
        self.away = 0  # how many looks at the history fail

    async def history(self) -> str:
        if self.away:
            self.away -= 1
            raise AWAY
        return str(self.number)

    def take_over(self) -> None:
        self.number += 1
        self.queues.rows.clear()

    @asynccontextmanager
    async def lease(self, key: Key, *, wait: float) -> AsyncIterator[Lease]:
        if self.takeovers and key.kind == "pair":
            self.takeovers -= 1
            self.take_over()
        async with super().lease(key, wait=wait) as lease:
            yield lease


@dataclass
class Place:
    queues: LossyQueues
    store: FallingStore
    relay: Relay

    async def outbox(self) -> tuple[str, ...]:
        versioned = await Repository(self.store).grant(kit.grant().key)
        assert versioned is not None
        return tuple(event.id for event in versioned.record.outbox)


@contextmanager
def after_settling(patch: pytest.MonkeyPatch, what: object, name: str, value: object) -> Iterator[None]:
    """Set a member as soon as a pass has settled its outboxes."""
    settle: Any = Relay._settle

    async def settled(*given: Any) -> int:
        found: int = await settle(*given)
        setattr(what, name, value)
        return found

    with patch.context() as patched:
        patched.setattr(Relay, "_settle", settled)
        yield


@pytest.fixture
async def place() -> Place:
    queues = LossyQueues()
    store = FallingStore(queues)
    repository = Repository(store)
    await repository.save_grant(kit.grant(outbox=EVENTS), expect=0)
    return Place(queues, store, Relay(repository=repository, queues=cast("Queues", queues), notifier=Notifier()))


async def test_events_whose_places_in_the_queue_are_lost_are_queued_again_in_their_order(place: Place) -> None:
    place.store.takeovers = 1
    await place.relay.once()
    assert () == await place.outbox()
    assert [event.id for event in EVENTS] == place.queues.rows


async def test_a_takeover_while_they_are_queued_again_loses_none(place: Place) -> None:
    place.store.takeovers = 1
    place.queues.before_third = place.store.take_over
    await place.relay.once()
    assert 3 * len(EVENTS) == place.queues.changes


@pytest.mark.parametrize("trouble", ["the look at the history fails", "the queue is away"])
async def test_a_later_pass_queues_them_again_when_the_database_was_away_meanwhile(
    place: Place, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.store.takeovers = 1
    one_away: Any = place.store if trouble.startswith("the look") else place.queues
    with after_settling(monkeypatch, one_away, "away", 1), pytest.raises(BrokerError):
        await place.relay.once()
    assert [] == place.queues.rows
    await place.relay.once()
    assert [event.id for event in EVENTS] == place.queues.rows


async def test_a_full_queue_delays_the_second_queueing_of_no_other_agents_events(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = kit.event(3, "two", agent="other")
    await Repository(place.store).save_grant(kit.grant(app="files", outbox=(other,)), expect=0)
    place.store.takeovers = 1
    with after_settling(monkeypatch, place.queues, "full", EVENTS[0].target.agent_name):
        for _ in range(2):
            with pytest.raises(QueueFull):
                await place.relay.once()
            assert [other.id] == place.queues.rows
    place.queues.full, changes = "", place.queues.changes
    await place.relay.once()
    assert [other.id, *(event.id for event in EVENTS)] == place.queues.rows
    assert changes + len(EVENTS) == place.queues.changes, "an event that is confirmed is not queued again"


@pytest.mark.parametrize("away", [0, 1])
async def test_a_lost_event_is_queued_again_before_a_later_one_of_its_conversation(
    away: int, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.store.takeovers = 1
    later = kit.event(3, "one")
    with after_settling(monkeypatch, place.store, "away", 1), pytest.raises(BrokerError):
        await place.relay.once()
    await Repository(place.store).save_grant(kit.grant(app="files", outbox=(later,)), expect=0)
    place.queues.away = away
    with pytest.raises(BrokerError) if away else nullcontext():
        await place.relay.once()
    assert (not away) is (later.id in place.queues.rows), "it waits for the ones before it"
    await place.relay.once()
    assert [*(event.id for event in EVENTS), later.id] == place.queues.rows


async def test_events_are_queued_once_while_the_history_is_one(place: Place) -> None:
    await place.relay.once()
    await place.relay.once()
    assert len(EVENTS) == place.queues.changes
