"""Certain time: deletions that cannot be undone wait for it, and no step of the clock makes them wait for long."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker.core.clock import BELIEVED_SECONDS, SET_BACK, CertainTime, Spelling, to_iso
from oauthbroker.testing import TestClock

HOUR, DAY, YEAR = timedelta(hours=1), timedelta(days=1), timedelta(days=365)
STEPS = st.lists(
    st.timedeltas(timedelta(seconds=-2), timedelta(seconds=2)) | st.timedeltas(timedelta(-3), timedelta(3))
)


def passed(clock: TestClock, certain: CertainTime, seconds: float) -> timedelta:
    """Time passes with looks in between; how far certain time is behind then."""
    for _ in range(48):
        clock.advance(seconds / 48)
        certain.now()
    return clock.now() - certain.now()


@pytest.mark.case("59")
@pytest.mark.parametrize("step", [HOUR, DAY, YEAR])
def test_a_clock_that_is_set_forward_is_not_believed_for_a_week(step: timedelta) -> None:
    clock = TestClock()
    certain = CertainTime(clock)
    clock.set(clock.now() + step)
    assert step - SET_BACK == passed(clock, certain, BELIEVED_SECONDS * 0.9)
    clock.set(clock.now() - step)
    assert timedelta() == passed(clock, certain, 60)


@pytest.mark.case("59")
@pytest.mark.parametrize("steps", [[YEAR], [-YEAR, YEAR], [-DAY, DAY], [YEAR, -YEAR], [-YEAR]])
def test_a_clock_that_kept_pace_for_two_weeks_is_believed(steps: list[timedelta]) -> None:
    """One that was wrong for a moment, or a machine that was suspended, delays no deletion for as long as the process
    runs."""
    clock = TestClock()
    certain = CertainTime(clock)
    for step in steps:
        clock.set(clock.now() + step)
        passed(clock, certain, 600)
    assert timedelta() == passed(clock, certain, 2 * BELIEVED_SECONDS)


@pytest.mark.case("59")
def test_a_machine_that_is_suspended_every_night_is_behind_by_four_weeks_of_nights_at_most() -> None:
    clock = TestClock()
    certain = CertainTime(clock)
    for _ in range(90):
        passed(clock, certain, 12 * 3600)
        clock.set(clock.now() + 12 * HOUR)
    assert clock.now() - certain.now() <= 29 * 12 * HOUR
    clock.advance(60)
    assert certain.now() <= clock.now()


def test_certain_time_is_never_ahead_of_the_clock() -> None:
    clock = TestClock()
    certain = CertainTime(clock)
    for step in (DAY, -YEAR, HOUR, YEAR, -DAY):
        clock.set(clock.now() + step)
        assert certain.now() <= clock.now()


@given(st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=9, minutes=30))])), STEPS)
def test_times_are_spelt_as_everywhere_however_they_follow_each_other(first: datetime, steps: list[timedelta]) -> None:
    spelt, at = Spelling(), first
    for step in [timedelta(), *steps]:
        with suppress(OverflowError):
            at += step
        with suppress(OverflowError):
            assert to_iso(at) == spelt(at)
