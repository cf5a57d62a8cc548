"""What every backend of queues promises. A backend is supported when all parts are green for it.

A part takes a `Setting`. `queues` and `other` are two brokers' views of one store; where a backend has one process
only, the same view. `power_loss` gives the queues of each disk that a loss of power may leave.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.events.port import BACKOFF_SECONDS, Depth, EventLease, Queues
from oauthbroker.model.settings import Limits
from oauthbroker.testing import TestClock
from tests.unit.records.kit import event

LIMITS = Limits()
AGENT = "planner"
LONG = LIMITS.queue_lease_seconds * 20


@dataclass
class Setting:
    queues: Queues
    other: Queues
    clock: TestClock
    power_loss: Callable[[], Awaitable[list[Queues]]]


async def leased(queues: Queues, agent: str = AGENT) -> EventLease:
    delivery = await queues.lease(agent)
    assert delivery is not None
    return delivery


async def drained(queues: Queues) -> list[str]:
    """Every event that can be had now, acknowledged, in the order in which they came; many are too many."""
    found = list[str]()
    while len(found) < 500 and (delivery := await queues.lease(AGENT)) is not None:
        found.append(delivery.id)
        assert await delivery.ack()
    return found


async def put(queues: Queues, *instances: str) -> list[str]:
    for number, instance in enumerate(instances):
        assert await queues.enqueue(event(number, instance))
    return [event(number).id for number in range(len(instances))]


async def killed(here: Setting) -> str:
    """An event whose attempts are used up."""
    (event_id,) = await put(here.queues, "a")
    for _ in range(LIMITS.queue_attempts):
        assert await (await leased(here.queues)).nack()
        here.clock.advance(LONG)
    assert await here.queues.lease(AGENT) is None
    return event_id


class QueueContract:
    """A backend gives the fixture `here`."""

    async def test_an_event_comes_back_as_it_was_put(self, here: Setting) -> None:
        assert await here.queues.lease(AGENT) is None
        await here.queues.enqueue(event())
        delivery = await leased(here.other)
        assert (event(), 1) == (delivery.event, delivery.attempt)

    async def test_agents_have_queues_of_their_own(self, here: Setting) -> None:
        await here.queues.enqueue(event(agent="writer"))
        assert await here.queues.lease(AGENT) is None
        assert [("writer", 1)] == [(each.agent, each.waiting) for each in await here.other.depths()]

    async def test_a_conversation_is_in_order(self, here: Setting) -> None:
        assert await put(here.queues, *["a"] * 150) == await drained(here.other)

    async def test_only_the_head_of_a_conversation_is_leased(self, here: Setting) -> None:
        a, b, *rest = await put(here.queues, "a", "a", "b", "b")
        assert [a, rest[0]] == [(await leased(here.queues)).id, (await leased(here.other)).id]
        assert await here.queues.lease(AGENT) is None
        assert b != rest[1]

    async def test_an_event_is_known_while_it_waits_and_after_it_is_done(self, here: Setting) -> None:
        await here.queues.enqueue(event())
        assert not await here.other.enqueue(event())
        delivery = await leased(here.queues)
        assert not await here.other.enqueue(event())
        assert await delivery.ack()
        assert not await here.other.enqueue(event())
        assert await here.queues.lease(AGENT) is None

    async def test_a_dead_event_is_known(self, here: Setting) -> None:
        await killed(here)
        assert not await here.queues.enqueue(event(0, "a"))

    async def test_settling_is_idempotent_by_lease(self, here: Setting) -> None:
        await put(here.queues, "a", "b")
        first, second = await leased(here.queues), await leased(here.queues)
        for queues in (here.queues, here.other, here.queues):
            assert await queues.ack(AGENT, first.id, first.lease)
            assert not await queues.nack(AGENT, first.id, first.lease)
            assert await queues.nack(AGENT, second.id, second.lease)
            assert not await queues.ack(AGENT, second.id, second.lease)
            assert not await queues.ack(AGENT, first.id, second.lease)
        assert {first.lease, second.lease} == await here.other.settled(AGENT, [first.lease, second.lease, "x"])

    async def test_a_lapsed_lease_belongs_to_the_next_consumer(self, here: Setting) -> None:
        await put(here.queues, "a")
        late = await leased(here.queues)
        assert {late.lease} == await here.other.unsettled(AGENT, [late.lease, "x"])
        here.clock.advance(LIMITS.queue_lease_seconds)
        assert set() == await here.other.unsettled(AGENT, [late.lease])
        again = await leased(here.other)
        assert (late.id, 2) == (again.id, again.attempt)
        assert not await late.ack()
        assert not await late.give_back()
        assert await again.ack()

    async def test_a_refused_event_comes_later_and_later_and_then_is_dead(self, here: Setting) -> None:
        (event_id,) = await put(here.queues, "a")
        for pause in BACKOFF_SECONDS[: LIMITS.queue_attempts - 1]:
            assert await (await leased(here.queues)).nack()
            here.clock.advance(pause * 0.79)
            assert await here.other.lease(AGENT) is None
            here.clock.advance(pause * 0.5)
        assert await (await leased(here.queues)).nack()
        here.clock.advance(LONG)
        assert await here.queues.lease(AGENT) is None
        assert [(event_id, LIMITS.queue_attempts)] == [(each.id, each.attempts) for each in await here.other.dead()]

    async def test_a_lease_that_lapses_counts_as_an_attempt(self, here: Setting) -> None:
        await put(here.queues, "a")
        for attempt in range(1, LIMITS.queue_attempts + 1):
            assert attempt == (await leased(here.queues)).attempt
            here.clock.advance(LIMITS.queue_lease_seconds)
        assert await here.queues.lease(AGENT) is None
        assert 1 == Depth.of(await here.other.depths()).dead

    async def test_an_event_that_is_given_back_is_free_and_uncounted(self, here: Setting) -> None:
        await put(here.queues, "a")
        assert await (await leased(here.queues)).give_back()
        assert 1 == (await leased(here.other)).attempt

    async def test_an_extended_lease_lasts_its_whole_time_again(self, here: Setting) -> None:
        await put(here.queues, "a")
        delivery = await leased(here.queues)
        for _ in range(3):
            here.clock.advance(LIMITS.queue_lease_seconds * 0.9)
            assert await delivery.extend()
            assert await here.other.lease(AGENT) is None
        here.clock.advance(LIMITS.queue_lease_seconds)
        again = await leased(here.other)
        assert (delivery.id, 2) == (again.id, again.attempt)
        assert not await delivery.extend()
        assert await again.ack()
        assert not await again.extend()

    async def test_a_dead_letter_is_revived_at_the_end_with_all_attempts(self, here: Setting) -> None:
        event_id = await killed(here)
        await here.queues.enqueue(event(1, "a"))
        assert await here.other.is_dead(AGENT, event_id)
        assert await here.other.revive(AGENT, event_id)
        assert not await here.queues.revive(AGENT, event_id)
        assert [event(1).id, event_id] == await drained(here.queues)

    async def test_a_dead_letter_is_dropped_for_good(self, here: Setting) -> None:
        event_id = await killed(here)
        assert await here.queues.drop(AGENT, event_id)
        assert not await here.other.drop(AGENT, event_id)
        assert not await here.other.is_dead(AGENT, event_id)
        assert not await here.other.enqueue(event(0, "a"))

    async def test_erasing_removes_events_in_any_state(self, here: Setting) -> None:
        dead = await killed(here)
        for number in range(1, 100):
            await here.queues.enqueue(event(number, f"instance {number}"))
        held = await leased(here.queues)
        gone = {dead, held.id, event(2).id, event(99).id}
        await here.other.erase(AGENT, gone)
        assert not await held.ack()
        assert not await here.queues.enqueue(event(2, "instance 2"))
        assert [] == await here.queues.dead(AGENT)
        assert gone.isdisjoint(await drained(here.queues))
        assert 0 == Depth.of(await here.queues.depths()).waiting

    async def test_what_many_tasks_put_and_take_is_there_once_and_in_order(self, here: Setting) -> None:
        found = list[str]()

        async def take(queues: Queues) -> None:
            while len(found) < 200 and (delivery := await queues.lease(AGENT)) is not None:
                found.append(delivery.id)
                await asyncio.sleep(0)
                assert await delivery.ack()

        for number in range(60):
            new = await asyncio.gather(
                *(each.enqueue(event(number, f"{number % 4}")) for each in (here.queues, here.other))
            )
            assert 1 == sum(new)
        await asyncio.gather(*(take(each) for each in (here.queues, here.other) * 3))
        found += await drained(here.queues)
        assert sorted(event(number).id for number in range(60)) == sorted(found)
        for part in range(4):
            ids = [event(number).id for number in range(part, 60, 4)]
            assert ids == [each for each in found if each in ids]

    async def test_a_cancelled_lease_leases_nothing(self, here: Setting) -> None:
        await put(here.queues, "a")
        for steps in range(30):
            leasing = asyncio.ensure_future(here.queues.lease(AGENT))
            for _ in range(steps):
                await asyncio.sleep(0)
            leasing.cancel()
            await asyncio.wait([leasing])
            if not leasing.cancelled():
                delivery = leasing.result()
                assert delivery is not None
            else:
                delivery = await leased(here.queues)
            assert 1 == delivery.attempt
            assert await delivery.give_back()

    async def test_a_full_queue_refuses_and_takes_more_when_it_is_consumed(
        self, here: Setting, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("oauthbroker.events.queue_index.MOST_BYTES", 20_000)
        taken = 0
        for taken in range(1000):
            try:
                await here.queues.enqueue(event(taken))
            except BrokerError as error:
                assert Code.STORE_UNAVAILABLE is error.code  # noqa: PT017
                break
        assert 0 < taken < 999
        assert taken == len(await drained(here.other))
        assert await here.queues.enqueue(event(taken))

    async def test_a_change_ends_a_wait_at_the_latest_after_its_time(self, here: Setting) -> None:
        signal = here.queues.listen()
        async with asyncio.timeout(30):
            await here.queues.wait(signal, 0.05)

    async def test_an_acknowledged_change_survives_a_loss_of_power(self, here: Setting) -> None:
        """Each answer is a promise: queued, settled, dropped."""
        a, b, c = await put(here.queues, "a", "b", "c")
        first, second = await leased(here.queues), await leased(here.queues)
        assert await first.ack()
        assert await second.nack()
        third = await leased(here.queues)
        for queues in await here.power_loss():
            assert not await queues.enqueue(event(0, "a"))
            assert await queues.ack(AGENT, a, first.lease)
            assert await queues.nack(AGENT, b, second.lease)
            assert {third.lease} == await queues.unsettled(AGENT, [third.lease])
            assert await queues.ack(AGENT, c, third.lease)

    async def test_many_answers_survive_a_loss_of_power(self, here: Setting) -> None:
        ids = await put(here.queues, *["a"] * 130)
        for event_id in ids[:100]:
            delivery = await leased(here.queues)
            assert event_id == delivery.id
            assert await delivery.ack()
        for queues in await here.power_loss():
            assert ids[100:] == await drained(queues)


PARTS = [name for name in vars(QueueContract) if name.startswith("test_")]
