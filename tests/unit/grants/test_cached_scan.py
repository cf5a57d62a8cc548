"""A snapshot is read once for all readers, and never older than it says."""

from __future__ import annotations

import asyncio

import pytest

from oauthbroker.grants.cached_scan import SNAPSHOT_SECONDS, Snapshot
from oauthbroker.testing import TestClock


class Slow:
    """Gives the number of the reading; each takes some turns of the loop."""

    def __init__(self) -> None:
        self.begun = 0
        self.fails = False

    async def __call__(self) -> int:
        self.begun += 1
        number = self.begun
        for _ in range(4):
            await asyncio.sleep(0)
        if self.fails:
            raise OSError("unwell")
        return number


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
def read() -> Slow:
    return Slow()


@pytest.fixture
def snapshot(read: Slow, clock: TestClock) -> Snapshot[int]:
    return Snapshot(read, clock)


async def test_a_recent_look_is_shared_until_it_is_too_old(snapshot: Snapshot[int], clock: TestClock) -> None:
    assert [1] * 50 == await asyncio.gather(*(snapshot.recent() for _ in range(50)))
    clock.advance(SNAPSHOT_SECONDS - 0.1)
    assert 1 == await snapshot.recent()
    clock.advance(0.1)
    assert 2 == await snapshot.recent()


async def test_a_fresh_look_is_never_one_that_had_begun_before(snapshot: Snapshot[int], read: Slow) -> None:
    early = asyncio.create_task(snapshot.fresh_after_pause())
    await asyncio.sleep(0)
    assert 1 == read.begun
    late = [asyncio.create_task(snapshot.fresh_after_pause()) for _ in range(50)]
    assert 1 == await early
    assert [2] * 50 == await asyncio.gather(*late)


async def test_who_asks_again_and_again_reads_once_a_second(
    snapshot: Snapshot[int], read: Slow, clock: TestClock
) -> None:
    begun = clock.monotonic()
    for _ in range(20):
        await snapshot.fresh_after_pause()
    assert read.begun <= 1 + clock.monotonic() - begun


async def test_an_evicted_or_unread_snapshot_is_read_anew(snapshot: Snapshot[int], read: Slow) -> None:
    assert 1 == await snapshot.recent()
    snapshot.forget()
    read.fails = True
    with pytest.raises(OSError, match="unwell"):
        await snapshot.recent()
    read.fails = False
    assert 3 == await snapshot.recent()
