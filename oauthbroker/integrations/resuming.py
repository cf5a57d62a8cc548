"""Resume paused runs: consume an agent's events, go on with the run that waits, settle the event last."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from oauthbroker import Broker, BrokerError, Code, Turn
from oauthbroker.integrations.consent import refuse, resumes
from oauthbroker.integrations.paused_runs import ENDED, PausedRun, PausedRuns
from oauthbroker.plugins import EventLease

_LOG: Final = logging.getLogger("oauthbroker.integrations")
_ENDS: Final = frozenset({"auth.granted", "auth.denied", "auth.failed", "auth.expired", ENDED})


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseEnd:
    """The end of an authorization. `sentence` is for the model if the user did not consent, else None."""

    session_id: str
    sentence: str | None


GoesOn = Callable[[PausedRun, PauseEnd], Awaitable[None]]
TakesOther = Callable[[Mapping[str, Any]], Awaitable[None]] | None


@asynccontextmanager
async def resume(broker: Broker, agent: str, go_on: GoesOn, *, other: TakesOther = None) -> AsyncIterator[None]:
    """Call `go_on` with each paused run of an agent whose authorization has ended, while the block runs.

    It is called again, also after a crash, until it returns; then never again for this end. In one conversation the
    calls come one after another. `other` gets the agent's other events; without it they become dead letters.
    """
    task = asyncio.create_task(_Consumer(broker, agent, go_on=go_on, other=other).consume())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class _Consumer:
    def __init__(self, broker: Broker, agent: str, *, go_on: GoesOn, other: TakesOther) -> None:
        self._broker, self._agent, self._go_on, self._other = broker, agent, go_on, other
        self._runs, self._free = PausedRuns(broker), asyncio.Semaphore(16)  # conversations

    async def consume(self) -> None:
        async with asyncio.TaskGroup() as group:
            while not self._broker.life.stopping:
                await self._free.acquire()
                try:
                    delivery = await self._broker.events.lease(self._agent, wait=30)
                except BrokerError:
                    delivery = None
                    await asyncio.sleep(1)
                if delivery is None:
                    self._free.release()
                else:
                    group.create_task(self._settled(delivery))

    async def _settled(self, delivery: EventLease) -> None:
        """Handle an event while its lease is extended. One that is not settled comes again after its lease."""
        work = asyncio.create_task(self._take(delivery))
        extending = asyncio.create_task(self._extend(delivery, work))
        try:
            with suppress(BrokerError):
                await asyncio.wait({work})
                if not work.cancelled():
                    if (error := work.exception()) is not None:
                        _LOG.error("a paused run did not go on: %s", type(error).__name__)
                    await (delivery.ack() if error is None else delivery.nack())
        except asyncio.CancelledError:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            await delivery.give_back()
            raise
        finally:
            extending.cancel()
            self._free.release()

    async def _extend(self, delivery: EventLease, work: asyncio.Task[None]) -> None:
        """Extend a lease. Work whose lease is lost is cancelled: another consumer has it."""
        while True:
            await asyncio.sleep(self._broker.bundle.settings.limits.queue_lease_seconds / 3)
            with suppress(BrokerError):
                if not await delivery.extend():
                    work.cancel()

    async def _take(self, delivery: EventLease) -> None:
        event, turn = delivery.to_json(), delivery.event.turn
        session_id = event["payload"].get("authSessionId")
        runs = await self._runs.waiting(turn, session_id) if event["type"] in _ENDS else []
        if not runs and event["type"] != ENDED and self._other is not None:
            await self._other(event)
        elif not runs and not event["type"].startswith(("auth.", ENDED)):
            raise LookupError("an event that no paused run waits for")
        for run in runs:
            end = PauseEnd(session_id=session_id, sentence=await self._sentence(event, turn))
            if end.sentence is not None:
                refuse(run.waits[session_id], end.sentence)
            resumes(run.waits.values())
            await self._go_on(run, end)
            await self._runs.done(run)

    async def _sentence(self, event: Mapping[str, Any], turn: Turn) -> str | None:
        """Return a sentence for the model; None after consent. An event of our own does not say how it ended."""
        code, granted = event["payload"].get("code"), event["type"] == "auth.granted"
        if event["type"] == ENDED:
            outcome = await self._broker.wait(event["payload"]["authSessionId"], timeout=0)
            code, granted = outcome.code, outcome.status == "completed"
        locale = turn.locale or self._broker.bundle.settings.locale
        return None if granted else BrokerError(code or Code.STATE_EXPIRED).message(locale)
