"""A worker reloads when it is told to, and again while the store is away; a refusal waits for the next signal."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from oauthbroker.broker import Broker
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.workers import worker


class Scripted:
    """A broker whose reloads come to these codes, one after the other, and then work."""

    def __init__(self, *codes: Code, lasting: bool = False) -> None:
        """`lasting`: as for a password that the database refuses."""
        self.codes, self.lasting, self.reloads, self.worked = list(codes), lasting, 0, asyncio.Event()

    async def reload(self) -> frozenset[str]:
        self.reloads += 1
        if self.codes:
            raise BrokerError(self.codes.pop(0), lasting=self.lasting)
        self.worked.set()
        return frozenset()


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "RELOAD_SECONDS", 0.01)


@pytest.mark.parametrize("lasting", [False, True], ids=["away", "refused"])
async def test_a_reload_that_finds_the_store_away_or_refused_is_tried_until_it_works(lasting: bool) -> None:
    broker: Any = Scripted(Code.STORE_UNAVAILABLE, Code.STORE_LOCKED, Code.STORE_UNAVAILABLE, lasting=lasting)
    again = asyncio.Event()
    async with worker._reloading(cast("Broker", broker), again):
        await asyncio.sleep(0.05)
        assert 0 == broker.reloads
        again.set()
        await asyncio.wait_for(broker.worked.wait(), 5)
        await asyncio.sleep(0.05)
    assert 4 == broker.reloads


async def test_a_fault_that_time_does_not_mend_is_tried_again_at_the_next_signal_only() -> None:
    broker: Any = Scripted(Code.CONFIG_INVALID)
    again = asyncio.Event()
    async with worker._reloading(cast("Broker", broker), again):
        again.set()
        await asyncio.sleep(0.05)
        assert 1 == broker.reloads
        again.set()
        await asyncio.wait_for(broker.worked.wait(), 5)
    assert 2 == broker.reloads
