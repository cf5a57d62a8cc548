"""A lock that is held for a moment is no fault of background work; one that stays held is told, seldom."""

from __future__ import annotations

import io
import json
from collections.abc import Callable

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import Pass
from oauthbroker.observability.held_locks import LASTS_SECONDS, HeldLocks
from oauthbroker.observability.logging import json_log
from oauthbroker.store.format.port import Conflict
from oauthbroker.testing import TestClock

LOCKED = BrokerError(Code.STORE_LOCKED)


@pytest.fixture
def held(clock: TestClock, stream: io.StringIO) -> HeldLocks:
    return HeldLocks(clock, json_log(stream, clock))


def lines(stream: io.StringIO) -> list[tuple[str, str, str, int]]:
    found = map(json.loads, stream.getvalue().splitlines())
    return [(it["level"], it["event"], it["task"], it["seconds"]) for it in found]


@pytest.mark.parametrize("error", [LOCKED, Conflict()])
def test_a_held_lock_says_nothing_and_any_other_failure_is_the_callers(held, stream, error) -> None:
    assert held.met("relay", error)
    for other in (BrokerError(Code.STORE_UNAVAILABLE), ValueError("anything")):
        assert not held.met("relay", other)
    assert "" == stream.getvalue()


def test_a_lock_that_stays_held_is_a_line_every_five_minutes(held, stream, clock) -> None:
    for _ in range(40):
        held.met("relay", LOCKED)
        held.met("sweep", LOCKED)
        held.worked("sweep")
        clock.advance(30)
    assert [("warning", "a lock stays held", "relay", seconds) for seconds in (300, 600, 900)] == lines(stream)
    assert LASTS_SECONDS == 300


@pytest.mark.parametrize("end", ["works", "another failure"])
def test_a_pass_that_came_past_begins_the_time_anew(held, stream, clock, end) -> None:
    ends: dict[str, Callable[[], object]] = {
        "works": lambda: held.worked("relay"),
        "another failure": lambda: held.met("relay", BrokerError(Code.STORE_UNAVAILABLE)),
    }
    held.met("relay", LOCKED)
    clock.advance(299)
    ends[end]()
    held.met("relay", LOCKED)
    clock.advance(299)
    held.met("relay", LOCKED)
    assert [] == lines(stream)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_held_lock_hides_no_other_failure_of_its_pass(order: tuple[int, ...]) -> None:
    errors, this_pass = (LOCKED, BrokerError(Code.STORE_UNAVAILABLE)), Pass()
    for at in order:
        with this_pass.entry():
            raise errors[at]
    with pytest.raises(BrokerError) as found:
        this_pass.over()
    assert found.value.code is Code.STORE_UNAVAILABLE
