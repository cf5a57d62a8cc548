"""How many calls one app has under way: many at a provider that copes with them, few at one that does not."""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from itertools import count

import pytest

from oauthbroker.refresh.concurrency_limit import FEWEST, ConcurrencyLimit
from oauthbroker.testing import TestClock

MOST = 32
SECONDS = 0.2  # that the provider takes


class Storm:
    """Grants that all want one refresh of a provider which takes `per_second` calls, in simulated time."""

    def __init__(self, clock: TestClock, per_second: float = float("inf"), seconds: float = SECONDS) -> None:
        self.clock, self.places, self.calls, self.limited = clock, ConcurrencyLimit(clock, MOST), 0, 0
        self.per_second, self.seconds, self.used = per_second, seconds, deque[float]()

    async def refresh(self, grants: int) -> float:
        """Refresh all, one that was refused again at the end. Return the seconds."""
        began, order, left = self.clock.monotonic(), count(), deque(str(each) for each in range(grants))
        under_way = list[tuple[float, int, str, bool, asyncio.Event, asyncio.Task[None]]]()
        while left or under_way:
            while left and len(under_way) < self.places.number:
                grant, over = left.popleft(), asyncio.Event()
                holder = asyncio.create_task(self.hold(grant, over))
                await asyncio.sleep(0)
                end = self.clock.monotonic() + self.seconds
                heapq.heappush(under_way, (end, next(order), grant, self.admits(), over, holder))
            end, _, grant, admitted, over, holder = heapq.heappop(under_way)
            self.clock.advance(max(0.0, end - self.clock.monotonic()))
            if admitted:
                self.places.answered(grant)
            else:
                self.places.slow_down(grant)
                left.append(grant)
            over.set()
            await holder
        return self.clock.monotonic() - began

    async def hold(self, grant: str, over: asyncio.Event) -> None:
        async with self.places.held(grant):
            await over.wait()

    def admits(self) -> bool:
        now = self.clock.monotonic()
        self.calls += 1
        while self.used and self.used[0] <= now - 1:
            self.used.popleft()
        if len(self.used) >= self.per_second:
            self.limited += 1
            return False
        self.used.append(now)
        return True


async def test_a_storm_at_a_provider_without_a_limit_uses_every_place(test_clock: TestClock) -> None:
    storm = Storm(test_clock)
    seconds = await storm.refresh(2_000)
    assert 2_000 == storm.calls
    assert 2_000 / seconds >= 150


async def test_a_storm_at_a_provider_with_a_limit_costs_few_refused_calls(test_clock: TestClock) -> None:
    storm = Storm(test_clock, per_second=50)
    seconds = await storm.refresh(2_000)
    assert storm.limited > 0
    assert storm.calls <= 2_000 * 1.1
    assert 2_000 / seconds >= 30


async def test_a_provider_that_answers_later_and_later_gets_fewer_calls_and_more_once_it_is_well(
    test_clock: TestClock,
) -> None:
    storm = Storm(test_clock)
    await storm.refresh(100)
    storm.seconds = 10 * SECONDS
    await storm.refresh(8)
    assert MOST // 2 == storm.places.number
    storm.seconds = SECONDS
    await storm.refresh(1_000)
    assert MOST == storm.places.number


async def test_places_are_halved_once_for_the_calls_that_are_under_way(test_clock: TestClock) -> None:
    places = ConcurrencyLimit(test_clock, MOST)
    async with places.held("one"), places.held("two"):
        test_clock.advance(1)
        places.slow_down("one")
        places.slow_down("two")
        assert MOST // 2 == places.number
        for number in range(10):
            test_clock.advance(1)
            async with places.held(f"later {number}"):
                places.slow_down(f"later {number}")
    assert FEWEST == places.number


@pytest.mark.parametrize("most", [1, 2])
async def test_a_caller_that_leaves_gives_its_place_to_the_next_one(test_clock: TestClock, most: int) -> None:
    places, got, over = ConcurrencyLimit(test_clock, most), list[str](), asyncio.Event()

    async def call(grant: str) -> None:
        async with places.held(grant):
            got.append(grant)
            await over.wait()

    calls = [asyncio.create_task(call(str(number))) for number in range(most + 2)]
    await asyncio.sleep(0)
    assert most == len(got)
    waiting, last = calls[most:]
    calls[0].cancel()
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(calls[0], waiting, return_exceptions=True)
    over.set()
    await asyncio.gather(*calls[1:most], last)
    assert str(most + 1) == got[-1]
