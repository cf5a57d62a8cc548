"""Each part of the contract of queues refuses queues that are wrong on purpose."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from oauthbroker.core.errors import BrokerError
from oauthbroker.events.port import Queues
from oauthbroker.events.queue import StoreQueues
from oauthbroker.observability.metrics import Metrics
from oauthbroker.repository.repository import KINDS, LEASES, Repository
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import TestClock
from tests.contract import wrong_queues as wrong
from tests.contract.queue_contract import LIMITS, PARTS, QueueContract, Setting

WRONG: dict[type[StoreQueues], list[str]] = {
    wrong.LosesOrder: ["test_a_conversation_is_in_order"],
    wrong.DoublesALease: [
        "test_only_the_head_of_a_conversation_is_leased",
        "test_what_many_tasks_put_and_take_is_there_once_and_in_order",
    ],
    wrong.ForgetsEvents: [
        "test_an_event_comes_back_as_it_was_put",
        "test_an_event_is_known_while_it_waits_and_after_it_is_done",
    ],
    wrong.ForgetsLeases: [
        "test_settling_is_idempotent_by_lease",
        "test_an_acknowledged_change_survives_a_loss_of_power",
    ],
    wrong.RetriesForEver: [
        "test_a_dead_event_is_known",
        "test_a_refused_event_comes_later_and_later_and_then_is_dead",
    ],
    wrong.KeepsWhatIsErased: ["test_erasing_removes_events_in_any_state"],
    wrong.CountsWhatIsGivenBack: [
        "test_an_event_that_is_given_back_is_free_and_uncounted",
        "test_a_cancelled_lease_leases_nothing",
    ],
    wrong.NeverFull: ["test_a_full_queue_refuses_and_takes_more_when_it_is_consumed"],
    wrong.RevivesNothing: ["test_a_dead_letter_is_revived_at_the_end_with_all_attempts"],
    wrong.NeverLapses: [
        "test_a_lapsed_lease_belongs_to_the_next_consumer",
        "test_a_lease_that_lapses_counts_as_an_attempt",
    ],
    wrong.HasOneQueue: ["test_agents_have_queues_of_their_own"],
    wrong.FailsAWait: ["test_a_change_ends_a_wait_at_the_latest_after_its_time"],
    wrong.ForgetsWhatIsDropped: ["test_a_dead_letter_is_dropped_for_good"],
    wrong.ExtendsNothing: ["test_an_extended_lease_lasts_its_whole_time_again"],
    wrong.LosesATail: ["test_many_answers_survive_a_loss_of_power"],
}
EACH = [(queues, part) for queues, parts in WRONG.items() for part in parts]


def test_each_part_of_the_contract_has_queues_that_fail_it() -> None:
    assert set(WRONG) == set(wrong.Wrong.__subclasses__())
    assert {part for _, part in EACH} == set(PARTS)


@pytest.mark.parametrize(("queues", "part"), EACH, ids=[f"{queues.__name__}, {part}" for queues, part in EACH])
async def test_wrong_queues_fail(queues: type[StoreQueues], part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with AsyncExitStack() as stack:
        here = setting(queues, stack)
        more = {"monkeypatch": monkeypatch} if "full" in part else {}
        with pytest.raises((AssertionError, BrokerError, TimeoutError)):
            await getattr(QueueContract(), part)(here, **more)


def setting(queues: type[StoreQueues], stack: AsyncExitStack) -> Setting:
    clock = TestClock()
    store = MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=clock)
    stack.push_async_callback(store.close)
    both = [queues(repository=Repository(store), clock=clock, limits=LIMITS, metrics=Metrics()) for _ in range(2)]

    async def power_loss() -> list[Queues]:
        return [both[1]]

    return Setting(both[0], both[1], clock, power_loss)
