"""What a process remembers of its queues: enough that it need not read again, and no more than is bounded."""

from __future__ import annotations

import pytest

from oauthbroker.events.queue import StoreQueues
from oauthbroker.model.settings import Limits
from oauthbroker.observability.metrics import Metrics
from oauthbroker.repository.repository import KINDS, LEASES, Entry, Key, Repository
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import TestClock
from tests.unit.records.kit import event


class CountingStore(MemoryStore):
    """Counts the parts of queues that are read."""

    reads = 0

    async def get(self, key: Key) -> Entry | None:
        self.reads += key.kind == "queues"
        return await super().get(key)


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
def store(clock: TestClock) -> CountingStore:
    return CountingStore(kinds=KINDS, lease_kinds=LEASES, clock=clock)


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
