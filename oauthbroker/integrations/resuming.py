"""Resume paused runs: consume an agent's events, go on with the run that waits, settle the event last. For frameworks
without checkpoints, the broker's store keeps a run's history, and then its answer."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAnswer:
    """The result of a run, in JSON: its `output`, or the `pauses` to show. `history` is the framework's."""

    output: Any = None
    pauses: list[dict[str, str]] = field(default_factory=list)
    history: Any = None


Reached = tuple[RunAnswer, Any]  # an answer; or pauses, and the state to go on from
GoesOnFrom = Callable[[Turn, Any, PauseEnd], Awaitable[Reached]]
DeliversAnswer = Callable[[Turn, RunAnswer], Awaitable[None]]
Streams = Callable[[Turn, Any], Awaitable[None]] | None  # gets the framework's events of a run
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
        pause, settle = self._broker.bundle.settings.limits.queue_lease_seconds / 3, delivery.ack
        try:
            with suppress(BrokerError):
                try:
                    if not await delivery.extended_during(self._take(delivery), pause):
                        return
                except Exception as error:  # noqa: BLE001  (code of the host and of the framework)
                    _LOG.error("a paused run did not go on: %s", type(error).__name__)
                    settle = delivery.nack
                await settle()
        except asyncio.CancelledError:
            await delivery.give_back()
            raise
        finally:
            self._free.release()

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


async def kept(broker: Broker, turn: Turn, reached: Reached, *, run: str = "", question: Any = None) -> RunAnswer:
    """Keep a run that paused, by default as a new one, and return its answer. A new one takes the place of one that
    waits, with the same question of the same user in the same conversation: its tools run once."""
    answer, state = reached
    if answer.pauses:
        named = state if question is None else [question, turn.resume_target.to_json().get("auth")]
        name = run or hashlib.sha256(json.dumps(named, default=repr).encode()).hexdigest()
        await PausedRuns(broker).add(turn, name, [each["sessionId"] for each in answer.pauses], state, anew=not run)
    return answer


def resume_kept(
    broker: Broker, agent: str, go_on_from: GoesOnFrom, *, deliver: DeliversAnswer, other: TakesOther
) -> AbstractAsyncContextManager[None]:
    """Resume runs while the block runs. An answer is kept before it is delivered: no finished run runs again."""

    async def go_on(run: PausedRun, end: PauseEnd) -> None:
        if "answer" in run.state:
            answer = RunAnswer(**run.state["answer"])
        else:
            answer = await kept(broker, run.turn, await go_on_from(run.turn, run.state, end), run=run.name)
            with suppress(BrokerError):  # an answer that is too large to keep is delivered, too
                if not answer.pauses:
                    await PausedRuns(broker).keep(run, {"answer": asdict(answer)})
        await deliver(run.turn, answer)

    return resume(broker, agent, go_on, other=other)


async def streamed(events: AsyncIterable[Any], turn: Turn, stream: Streams) -> AsyncIterator[Any]:
    """Yield the events of a run, each after `stream` has got it."""
    async for event in events:
        if stream is not None:
            await stream(turn, event)
        yield event
