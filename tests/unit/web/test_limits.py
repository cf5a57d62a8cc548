"""Token buckets: bounded, fair, exact about when to come back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oauthbroker.errors import BrokerError, Code
from oauthbroker.testing import TestClock
from oauthbroker.web.api.limits import FAILURES_PER_MINUTE, Buckets, RequestLimits


def refusal(buckets: Buckets, who: str) -> BrokerError | None:
    """Why a call is not taken; None when it is."""
    try:
        buckets.take(who)
    except BrokerError as error:
        return error
    return None


def taken(buckets: Buckets, who: str, tries: int) -> int:
    """How many of so many calls are taken."""
    refused = [error for error in (refusal(buckets, who) for _ in range(tries)) if error is not None]
    assert {Code.RATE_LIMITED} >= {error.code for error in refused}
    return tries - len(refused)


@pytest.mark.case("99")
def test_ten_seconds_worth_may_come_at_once_and_then_one_as_time_goes() -> None:
    clock = TestClock()
    buckets = Buckets(clock, 600)
    assert 100 == taken(buckets, "a", 150)
    clock.advance(0.5)
    assert 5 == taken(buckets, "a", 10)
    clock.advance(3600)
    assert 100 == taken(buckets, "a", 150), "a bucket is never fuller than full"


def test_one_caller_costs_another_nothing() -> None:
    buckets = Buckets(TestClock(), 60)
    assert 10 == taken(buckets, "a", 100)
    assert 10 == taken(buckets, "b", 100)


@settings(deadline=None)
@given(per_minute=st.integers(1, 10_000), tries=st.integers(1, 50))
def test_who_waits_as_long_as_told_is_served(per_minute: int, tries: int) -> None:
    clock = TestClock()
    buckets = Buckets(clock, per_minute)
    taken(buckets, "a", 2_000)
    for _ in range(tries):
        refused = refusal(buckets, "a")
        if refused is not None:
            assert refused.retry_after_seconds is not None
            assert 1 <= refused.retry_after_seconds <= 60
            clock.advance(refused.retry_after_seconds)
            buckets.take("a")


@given(per_minute=st.integers(1, 6_000), steps=st.lists(st.floats(0, 30), max_size=30))
def test_nobody_gets_more_than_the_burst_and_what_time_brings(per_minute: int, steps: list[float]) -> None:
    clock = TestClock()
    buckets, count = Buckets(clock, per_minute), 0
    for step in steps:
        clock.advance(step)
        count += taken(buckets, "a", 40)
    assert count <= max(1, per_minute / 6) + per_minute / 60 * sum(steps) + 1


@pytest.mark.case("99")
def test_a_million_callers_take_no_more_room_than_so_many() -> None:
    buckets = Buckets(TestClock(), 600, most=100)
    for number in range(10_000):
        buckets.take(str(number))
    assert 100 == len(buckets)
    taken(buckets, "busy", 200)
    buckets.take("another")
    assert 0 == taken(buckets, "busy", 1), "who calls all the time is not forgotten"


@pytest.mark.case("99")
def test_strangers_are_limited_by_their_address_and_known_callers_are_not() -> None:
    limits = RequestLimits(TestClock(), 6_000)
    for _ in range(FAILURES_PER_MINUTE // 6):
        limits.strange("10.0.0.1")
    with pytest.raises(BrokerError) as refused:
        limits.strange("10.0.0.1")
    assert 1 == refused.value.retry_after_seconds
    limits.strange("10.0.0.2")
    limits.called("key-1")


def test_strangers_never_have_more_than_the_operator_allows_anybody() -> None:
    limits = RequestLimits(TestClock(), 6)
    limits.strange("10.0.0.1")
    with pytest.raises(BrokerError):
        limits.strange("10.0.0.1")
