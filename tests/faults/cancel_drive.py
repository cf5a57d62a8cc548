"""Runs a coroutine and cancels its task at one of its awaits: before the awaited result arrives, or just after."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from dataclasses import dataclass, field
from pathlib import PurePath
from random import Random
from typing import Any

LONGEST_STEPS = 24  # turns of the loop between an await and its cancellation
LONGEST_SECONDS = 0.02


@dataclass(frozen=True)
class Plan:
    """When to cancel. `at` counts awaits from 1, None for never. `how`: at once, once the awaited future is `done` but the
    task does not know yet, after some turns of the loop, or after a while. `again` more times at the next awaits."""

    at: int | None = None
    how: str = "now"
    steps: int = 0
    seconds: float = 0.0
    again: int = 0

    @classmethod
    def drawn(cls, dice: Random, awaits: int, share: float) -> Plan:
        """For a coroutine that was seen to await so many times."""
        if dice.random() >= share:
            return cls()
        how = dice.choice(("now", "done", "done", "steps", "steps", "later"))
        again = dice.choice((0, 0, 0, 1, 2))
        at = dice.randint(1, awaits)
        return cls(at, how, dice.randint(1, LONGEST_STEPS), dice.uniform(0, LONGEST_SECONDS), again)


@dataclass
class Driven:
    """Await this in a task of its own. `asked` is how often its task was asked to end, `place` where it was then."""

    work: Coroutine[Any, Any, Any]
    plan: Plan
    awaits: int = 0
    asked: int = 0
    place: str = ""
    _left: int = field(default=0)

    def __await__(self) -> Generator[Any, None, Any]:
        task = asyncio.current_task()
        assert task is not None
        thrown: BaseException | None = None
        while True:
            try:
                awaited = self.work.throw(thrown) if thrown is not None else self.work.send(None)
            except StopIteration as done:
                return done.value
            thrown = None
            self.awaits += 1
            if self.awaits == self.plan.at:
                self.place, self._left = place_of(self.work), self.plan.again
                self._arm(task, awaited)
            elif self.asked and self._left:
                self._left -= 1
                asyncio.get_running_loop().call_soon(self._cancel, task)
            try:
                yield awaited
            except GeneratorExit:
                self.work.close()
                raise
            except BaseException as exc:  # noqa: BLE001  (every exception belongs to the work)
                thrown = exc

    def _arm(self, task: asyncio.Task[Any], awaited: Any) -> None:
        loop, how = asyncio.get_running_loop(), self.plan.how
        if how == "done" and isinstance(awaited, asyncio.Future):
            awaited.add_done_callback(lambda _: self._cancel(task))  # comes before the task's own
        elif how == "later":
            loop.call_later(self.plan.seconds, self._cancel, task)
        else:
            self._count_down(task, self.plan.steps if how == "steps" else 0)

    def _count_down(self, task: asyncio.Task[Any], steps: int) -> None:
        if steps:
            asyncio.get_running_loop().call_soon(self._count_down, task, steps - 1)
        else:
            self._cancel(task)

    def _cancel(self, task: asyncio.Task[Any]) -> None:
        self.asked += task.cancel()


def place_of(work: Any) -> str:
    """Where a coroutine waits: the innermost line of the product."""
    place = ""
    while work is not None:
        frame = getattr(work, "cr_frame", None) or getattr(work, "gi_frame", None) or getattr(work, "ag_frame", None)
        if frame is not None:
            path = PurePath(frame.f_code.co_filename)
            if "oauthbroker" in path.parts and "testing" not in path.parts:
                place = f"{path.parent.name}/{path.name}:{frame.f_lineno}"
        work = getattr(work, "cr_await", None) or getattr(work, "gi_yieldfrom", None) or getattr(work, "ag_await", None)
    return place
