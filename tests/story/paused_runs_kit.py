"""A host of paused runs that notes its calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from oauthbroker.integrations import PausedRun, PauseEnd, resume
from tests.kit.queues import until_relayed
from tests.kit.running_broker import Harness


class Runs:
    """A host that notes its calls."""

    def __init__(self, harness: Harness) -> None:
        self.harness, self.calls = harness, list[tuple[str, Any, str | None]]()
        self.others: list[str] = []
        self.then: Callable[[PausedRun, PauseEnd], Awaitable[None]] | None = None

    async def go_on(self, run: PausedRun, end: PauseEnd) -> None:
        self.calls.append((run.name, run.state, end.sentence))
        if self.then is not None:
            await self.then(run, end)

    async def other(self, event: Any) -> None:
        self.others.append(event["type"])

    def resuming(self, **more: Any) -> Any:
        return resume(self.harness.broker, "planner", self.go_on, **more)

    async def until(self, claim: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not claim():
                await asyncio.sleep(0.01)

    async def settled(self) -> None:
        """Wait until no event and no paused run is left. The broker's clock runs meanwhile."""
        await until_relayed(self.harness.store)
        async with asyncio.timeout(60):
            while await records(self.harness) or any(
                state.waiting or state.leased for state in await self.harness.broker.dead_letters.states()
            ):
                self.harness.clock.advance(0.5)
                await asyncio.sleep(0.01)


async def records(harness: Harness) -> list[Any]:
    return [value async for _, value in harness.broker.plugin_state("integrations").all()]
