"""Token limiter: bounded, fair, exact about when to come back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.testing import TestClock
from oauthbroker.web.middleware.rate_limits import (
    FAILED_LOGINS,
    FAILURES_PER_MINUTE,
    Limiter,
    RequestLimits,
    failed_logins,
)


def refusal(limiter: Limiter, who: str) -> BrokerError | None:
    """Why a call is not taken; None when it is."""
    try:
        limiter.admit(who)
    except BrokerError as error:
        return error
    return None


def taken(limiter: Limiter, who: str, tries: int) -> int:
    """How many of so many calls are taken."""
    refused = [error for error in (refusal(limiter, who) for _ in range(tries)) if error is not None]
    assert {Code.RATE_LIMITED} >= {error.code for error in refused}
    return tries - len(refused)


@pytest.mark.case("99")
def test_ten_seconds_worth_may_come_at_once_and_then_one_as_time_goes() -> None:
    clock = TestClock()
    limiter = Limiter(clock, 600)
    assert 100 == taken(limiter, "a", 150)
    clock.advance(0.5)
    assert 5 == taken(limiter, "a", 10)
    clock.advance(3600)
    assert 100 == taken(limiter, "a", 150), "a bucket is never fuller than full"


def test_one_caller_costs_another_nothing() -> None:
    limiter = Limiter(TestClock(), 60)
    assert 10 == taken(limiter, "a", 100)
    assert 10 == taken(limiter, "b", 100)


@settings(deadline=None)
@given(per_minute=st.integers(1, 10_000), tries=st.integers(1, 50))
def test_who_waits_as_long_as_told_is_served(per_minute: int, tries: int) -> None:
    clock = TestClock()
    limiter = Limiter(clock, per_minute)
    taken(limiter, "a", 2_000)
    for _ in range(tries):
        refused = refusal(limiter, "a")
        if refused is not None:
            assert refused.retry_after_seconds is not None
            assert 1 <= refused.retry_after_seconds <= 60
            clock.advance(refused.retry_after_seconds)
            limiter.admit("a")


@given(per_minute=st.integers(1, 6_000), steps=st.lists(st.floats(0, 30), max_size=30))
def test_no_caller_gets_more_than_the_burst_and_the_refill(per_minute: int, steps: list[float]) -> None:
    clock = TestClock()
    limiter, count = Limiter(clock, per_minute), 0
    for step in steps:
        clock.advance(step)
        count += taken(limiter, "a", 40)
    assert count <= max(1, per_minute / 6) + per_minute / 60 * sum(steps) + 1


@pytest.mark.case("99")
def test_a_million_callers_stay_within_the_bound() -> None:
    limiter = Limiter(TestClock(), 600, most=100)
    for number in range(10_000):
        limiter.admit(str(number))
    assert 100 == len(limiter)
    taken(limiter, "busy", 200)
    limiter.admit("another")
    assert 0 == taken(limiter, "busy", 1), "who calls all the time is not forgotten"


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


def test_strangers_never_have_more_than_the_operators_limit() -> None:
    limits = RequestLimits(TestClock(), 6)
    limits.strange("10.0.0.1")
    with pytest.raises(BrokerError):
        limits.strange("10.0.0.1")


def test_an_address_may_fail_to_sign_in_so_often_and_others_are_not_held_to_it() -> None:
    clock = TestClock()
    failures = failed_logins(clock)
    assert FAILED_LOGINS == taken(failures, "192.0.2.1", 2 * FAILED_LOGINS)
    failures.admit("192.0.2.2")
    clock.advance(60)
    assert FAILED_LOGINS == taken(failures, "192.0.2.1", 2 * FAILED_LOGINS)


def test_of_addresses_by_the_thousands_the_quietest_are_evicted_and_one_that_goes_on_failing_is_not() -> None:
    failures = Limiter(TestClock(), 1, burst=20, most=100)
    taken(failures, "busy", 20)
    for number in range(1000):
        failures.admit(str(number))
        if number % 50 == 0:
            assert 0 == taken(failures, "busy", 1)
        assert len(failures) <= 100
    assert 20 == taken(failures, "0", 30)
