"""A host dies in a refresh, and its clock is minutes off: the other hosts go on as soon as its lease is over."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from oauthbroker.testing import IdentityProvider, TestClock
from tests.faults.crash_kit import CrashAtChange
from tests.faults.refresh_kit import Expired, asked, is_live
from tests.kit.broker_process import Process
from tests.kit.crashfs import Crash

MOST_CHANGES = 100
GRACE = 30  # seconds for which the provider forgives a second use
PAUSE = 2  # longer than the pause after one lost answer


async def left_by_a_host_that_died(story: Expired, place: Path, clock: TestClock) -> Path:
    """Return the store as a host with this clock leaves it that dies when the provider has answered."""
    for number in range(MOST_CHANGES):
        root = story.copy(place / str(number))
        fs = CrashAtChange(root)
        process = Process.on(story.store(root, fs, clock), [story.app], clock)
        fs.arm(number)
        with suppress(Crash):
            await asked(process)
        left = list(fs.clones(place / f"{number}-clones", seeds=1))
        fs.restore()
        await process.die()
        assert fs.fired
        if story.requests:
            return left[0]
    raise AssertionError("the provider was not asked")


@pytest.mark.parametrize("ahead", [200, 90, 0, -120])
async def test_a_refresh_that_a_host_left_open_is_settled_while_the_provider_forgives_a_second_use(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path, ahead
):
    story = await Expired.prepare(tmp_path, identity_provider, test_clock, GRACE)
    left = await left_by_a_host_that_died(
        story, tmp_path / "copies", TestClock(test_clock.now() + timedelta(seconds=ahead))
    )
    test_clock.advance(PAUSE)
    process = story.start(left)
    assert is_live(story, await asked(process))
    assert 2 == story.requests
    await process.die()
