"""Runs of frameworks without checkpoints: the broker's store keeps their history, and then their answer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from oauthbroker import Broker, BrokerError, Turn
from oauthbroker.integrations.paused_runs import PausedRun, PausedRuns
from oauthbroker.integrations.resuming import PauseEnd, TakesOther, resume


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


async def kept(broker: Broker, turn: Turn, reached: Reached, *, run: str = "") -> RunAnswer:
    """Keep a run that paused, by default as a new one, and return its answer."""
    answer, state = reached
    if answer.pauses:
        run = run or hashlib.sha256(json.dumps(state).encode()).hexdigest()
        await PausedRuns(broker).add(turn, run, [each["sessionId"] for each in answer.pauses], state)
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
