"""Work on a leased event: its lease is extended meanwhile, and it ends with a lease that is lost."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.events.port import EventLease
from tests.unit.records.kit import event

EVERY = 0.001


class Extensions:
    """A queue that answers `extend` with the given values, and then with True."""

    def __init__(self, *answers: bool | Exception) -> None:
        self.answers, self.asked = list(answers), asyncio.Event()

    async def extend(self, *_lease: str) -> bool:
        answer = self.answers.pop(0) if self.answers else True
        if not self.answers:
            self.asked.set()
        if isinstance(answer, Exception):
            raise answer
        return answer


def leased(queues: Any) -> EventLease:
    return EventLease(event=event(1), attempt=1, lease="lease", until=datetime.now(UTC), _queues=queues)


async def test_the_lease_of_work_that_takes_longer_is_extended_also_after_an_error_of_the_store() -> None:
    queues = Extensions(BrokerError(Code.STORE_UNAVAILABLE), True)

    async def work() -> None:
        await queues.asked.wait()

    assert await leased(queues).extended_during(work(), EVERY)


async def test_work_whose_lease_is_lost_is_cancelled_and_has_ended() -> None:
    ends = list[str]()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ends.append("cleaned up")

    async with asyncio.timeout(30):
        assert not await leased(Extensions(True, False)).extended_during(work(), EVERY)
    assert ends == ["cleaned up"]


async def test_an_exception_of_the_work_is_raised() -> None:
    async def work() -> None:
        raise LookupError

    with pytest.raises(LookupError):
        await leased(Extensions()).extended_during(work(), EVERY)


async def test_work_ends_with_its_caller() -> None:
    begun, ends = asyncio.Event(), list[str]()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ends.append("ended")

    task = asyncio.create_task(leased(Extensions()).extended_during(work(), EVERY))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ends == ["ended"]
