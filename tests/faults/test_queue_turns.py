"""Processes that change a queue by turns: each sees what the others did, although it reads no more than it needs."""

from __future__ import annotations

from random import Random

import pytest

from oauthbroker.repository.repository import KINDS, LEASES
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import TestClock
from tests.faults.queue_crash_kit import AGENT, Model, event, next_step, queues_on, small_segments

STEPS = 250


@pytest.mark.case("93", "94")
@pytest.mark.sample(4)
@pytest.mark.parametrize("items", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(12))
async def test_processes_that_take_turns_find_what_one_process_would(monkeypatch, seed, items):
    """The next event, every settlement and every dead letter."""
    small_segments(monkeypatch, items)
    clock, dice, model = TestClock(), Random(seed), Model()
    store = MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=clock)
    processes = [queues_on(store, clock) for _ in range(3)]
    for _ in range(STEPS):
        step, queues = next_step(model, dice), dice.choice(processes)
        delivery = await step.run(queues, clock)
        expected, model = model, model.after(step, delivery if step.name == "lease" else None)
        if step.name == "lease":
            held = [each for each in model.waiting if delivery is not None and each.lease == delivery.lease]
            assert [delivery.id if delivery is not None else None] == [event(each.number).id for each in held] or (
                delivery is None and expected.leases == model.leases
            )
        if dice.random() < 0.1:
            await _compare(dice.choice(processes), model)


async def _compare(queues, model: Model) -> None:
    assert model.leases == await queues.unsettled(AGENT, model.leases)
    assert {lease for lease, *_ in model.settled[-9:]} == await queues.settled(
        AGENT, [lease for lease, *_ in model.settled[-9:]]
    )
    assert {event(number).id for number in model.dead} == {each.id for each in await queues.dead(AGENT)}
    assert len(model.waiting) == sum(each.waiting + each.leased for each in await queues.depths())
