"""Time that moves when a test says so."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta, timezone

import pytest

from oauthbroker.core.clock import Clock
from oauthbroker.testing import TestClock

START = datetime(2026, 1, 31, 9, 10, 1, tzinfo=UTC)


def test_it_is_a_clock_and_no_test():
    clock: Clock = TestClock(START)
    assert START == clock.now()
    assert TestClock.__test__ is False


def test_it_starts_at_the_real_second_unless_told():
    assert abs((datetime.now(UTC) - TestClock().now()).total_seconds()) < 2
    assert 0 != TestClock().now().microsecond


def test_it_stands_still_until_advanced():
    clock = TestClock(START)
    before = clock.monotonic()
    assert clock.now() == clock.now() == START
    clock.advance(90.5)
    assert (START + timedelta(seconds=90.5), before + 90.5) == (clock.now(), clock.monotonic())


def test_set_jumps_the_wall_clock_only():
    clock = TestClock(START)
    before = clock.monotonic()
    clock.set(START - timedelta(days=1))
    assert (START - timedelta(days=1), before) == (clock.now(), clock.monotonic())
    clock.set(START.astimezone(timezone(timedelta(hours=9))))
    assert (START, UTC) == (clock.now(), clock.now().tzinfo)


def test_a_naive_moment_is_refused():
    naive = START.replace(tzinfo=None)
    with pytest.raises(ValueError, match="aware"):
        TestClock(naive)
    with pytest.raises(ValueError, match="aware"):
        TestClock().set(naive)


def test_time_does_not_advance_backwards():
    with pytest.raises(ValueError, match="set"):
        TestClock().advance(-1)


async def test_sleeping_an_hour_takes_no_time():
    clock, started = TestClock(START), time.monotonic()
    await clock.sleep(3600)
    assert START + timedelta(hours=1) == clock.now()
    assert time.monotonic() - started < 60


async def test_sleepers_side_by_side_share_the_time():
    clock = TestClock(START)
    await asyncio.gather(*(clock.sleep(60) for _ in range(10)))
    assert START + timedelta(seconds=60) == clock.now()


async def test_a_frozen_clock_keeps_sleepers_until_it_is_advanced():
    clock = TestClock(START, frozen=True)
    sleeper = asyncio.create_task(clock.sleep(10))
    await asyncio.sleep(0.01)
    clock.advance(9)
    await asyncio.sleep(0.01)
    assert not sleeper.done()
    clock.advance(1)
    await asyncio.wait_for(sleeper, 20)
    assert START + timedelta(seconds=10) == clock.now()


def test_chance_repeats_only_with_a_seed():
    assert TestClock(seed=7).random_bytes(32) == TestClock(seed=7).random_bytes(32)
    assert TestClock(seed=7).random_bytes(32) != TestClock(seed=8).random_bytes(32)
    assert TestClock().random_bytes(32) != TestClock().random_bytes(32)
    assert 5 == len(TestClock().random_bytes(5))
    assert all(2 <= TestClock().jitter(2, 3) <= 3 for _ in range(20))
