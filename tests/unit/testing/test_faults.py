"""Waits of the scripted provider."""

from __future__ import annotations

import time

import pytest

from oauthbroker.testing.provider.faults import wait_until


async def test_a_machine_that_stands_still_takes_no_look_from_a_wait() -> None:
    looks = 0

    def claim() -> bool:
        nonlocal looks
        looks += 1
        time.sleep(0.02)  # longer than the whole wait
        return looks == 5

    await wait_until(claim, timeout=0.01)
    assert 5 == looks


async def test_a_claim_that_never_holds_ends_the_wait() -> None:
    with pytest.raises(TimeoutError, match="not true within"):
        await wait_until(lambda: False, timeout=0.01)
