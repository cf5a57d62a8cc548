"""Open circuits of this process and of other workers: each once, with the longest wait."""

from __future__ import annotations

from typing import Any

from oauthbroker.admin.open_circuits import Left, SharedCircuits
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.refresh.circuit import Circuits
from oauthbroker.testing import TestClock


def shared_circuits(clock: TestClock, *left: Left, elsewhere: list[Any] | None = None) -> SharedCircuits:
    async def others() -> list[Left]:
        return elsewhere if elsewhere is not None else [*left]

    return SharedCircuits([Circuits(clock), Circuits(clock), Circuits(clock)], clock, others)


def worker(clock: TestClock, app: str, seconds: int) -> SharedCircuits:
    """A process whose provider asks for a pause in refreshes."""
    one = shared_circuits(clock)
    one.own[2].failed(app, BrokerError(Code.PROVIDER_RATE_LIMITED, retry_after_seconds=seconds))
    return one


async def test_a_circuit_of_several_workers_is_one_row_with_the_longest_wait() -> None:
    clock = TestClock()
    left = worker(clock, "mail", 40).left() + worker(clock, "mail", 90).left() + worker(clock, "files", 7).left()
    ours = shared_circuits(clock, *left)
    ours.own[2].failed("mail", BrokerError(Code.PROVIDER_RATE_LIMITED, retry_after_seconds=10))
    ours.own[0].failed("mail", BrokerError(Code.PROVIDER_RATE_LIMITED, retry_after_seconds=10))
    found = {(each.kind, each.circuit.app): each for each in await ours.seen()}
    assert {("revocations", "mail"): 1, ("refreshes", "mail"): 3, ("refreshes", "files"): 1} == {
        place: each.workers for place, each in found.items()
    }
    assert 89 < found["refreshes", "mail"].circuit.seconds_left < 91


async def test_ended_and_unreadable_circuits_are_skipped() -> None:
    clock = TestClock()
    (good,) = worker(clock, "mail", 40).left()
    odd = [[], None, 7, good[:-1], ["?", *good[1:]], [*good[:3], "noSuchCode", *good[4:]], [*good[:4], "soon", 1]]
    assert 1 == len(await shared_circuits(clock, elsewhere=[*odd, good]).seen())
    clock.advance(41)
    assert [] == await shared_circuits(clock, good).seen()


def test_the_stored_text_for_other_processes_does_not_change_with_time() -> None:
    clock = TestClock()
    one = worker(clock, "mail", 40)
    before = one.left()
    clock.advance(5.25)
    assert before == one.left()
