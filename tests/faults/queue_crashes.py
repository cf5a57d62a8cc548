"""`python -m tests.faults.queue_crashes`: random stories of a queue, with a crash at every change of its store.

In memory a process dies before each call that changes the store. On disk a machine stops at each change of a file, and
each disk that it may leave is looked at. Each state has to fit the model of `queue_crash_kit`, and again after the
interrupted call was repeated. CI runs a shortened form (`test_queue_crash.py`).
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
from rich.console import Console

from oauthbroker.testing import TestClock
from tests.faults.queue_crash_kit import (
    Interrupted,
    Model,
    Step,
    check,
    next_step,
    queues_on,
    script_of_a_join,
    small_segments,
    with_its_lease,
)
from tests.faults.queue_crash_places import CrashingStore, InMemory, OnDisk, Place, Survivor
from tests.faults.storm_report import Report

CRASHES = 6_000
STEPS = 60  # of one story
MOST_CHANGES = 200  # far more than a step makes
ON_DISK = 0.2  # of the crashes: they take longer


@dataclass
class Sweep:
    """Runs stories, crashes in their steps, and checks the state after them."""

    figures: Counter[str] = field(default_factory=Counter)
    states: int = 0
    most: int = CRASHES
    each: int = 1

    async def story(self, place: Place, steps: Iterable[Step] | Random, swept: range = range(STEPS)) -> None:
        """Run the steps, or random ones, and crash in those whose number is in `swept`. Raises AssertionError."""
        clock, model = TestClock(), Model()
        script = None if isinstance(steps, Random) else list(steps)
        for number in range(swept.stop):
            if script is not None and number == len(script):
                return
            step = next_step(model, steps) if isinstance(steps, Random) else with_its_lease(script[number], model)  # type: ignore[index]
            if number in swept and sum(self.figures.values()) < self.most:
                await self.step(place, step, model, clock)
            delivery = await place.run(step, clock)
            model = model.after(step, delivery if step.name == "lease" else None)
            if number in swept:
                await self._look(place.survivor(), clock, Interrupted(step, model, model))

    async def step(self, place: Place, step: Step, model: Model, clock: TestClock) -> None:
        """Crash at every change that one step makes, or at one of `each`."""
        uncertain = Interrupted(step, model, model.after(step))
        for number in range(0, MOST_CHANGES, self.each):
            crash = await place.crashed(step, TestClock(clock.now()), number)
            known = uncertain.retried() if crash.answered else uncertain
            for survivor in crash.left:
                await self._look(survivor, clock, known)
                if step.name != "lease":
                    await self._look(survivor, clock, known, again=True)
            if crash.answered:
                return
            self.figures[step.name] += 1
        raise AssertionError(f"{step.name} makes more than {MOST_CHANGES} changes")

    async def _look(self, survivor: Survivor, clock: TestClock, known: Interrupted, *, again: bool = False) -> None:
        """`again`: first the caller, who got no answer, calls again. Then it is as if the first call was answered."""
        self.states += 1
        async with survivor.open() as store:
            if again:
                await known.step.run(queues_on(store, clock), TestClock(clock.now()))
                known = known.retried()
            await check(store, TestClock(clock.now()), known)


async def stories(folder: Path, crashes: int, seed: int) -> Report:
    """Run random stories, in memory and on disk, and one whose segments are joined."""
    in_memory, on_disk, problems = Sweep(most=crashes), Sweep(most=round(crashes * ON_DISK)), list[str]()
    with pytest.MonkeyPatch.context() as patch:
        small_segments(patch, items=8)
        for sweep, place in ((in_memory, memory()), (on_disk, disk(folder / "join"))):
            script = script_of_a_join()
            await _reported(problems, "a join", sweep.story(place, script, range(len(script) - 3, len(script))))
        small_segments(patch)
        for number in count(seed):
            full = [sum(sweep.figures.values()) >= sweep.most for sweep in (in_memory, on_disk)]
            if problems or all(full):
                break
            if not full[0]:
                await _reported(problems, f"seed {number}", in_memory.story(memory(), Random(number)))
            if not full[1]:
                await _reported(
                    problems, f"seed {number}, disk", on_disk.story(disk(folder / str(number)), Random(number))
                )
    figures = {
        "crashes at calls of the store": dict(in_memory.figures),
        "crashes at changes of the disk": dict(on_disk.figures),
        "states that were looked at": in_memory.states + on_disk.states,
    }
    return Report(f"Queues that crash, from seed {seed}", figures, problems)


async def _reported(problems: list[str], where: str, story: Any) -> None:
    try:
        await story
    except AssertionError as error:
        problems.append(f"{where}: {error}")


def memory() -> InMemory:
    return InMemory(CrashingStore(TestClock()))


def disk(place: Path) -> OnDisk:
    place.mkdir()
    return OnDisk(place)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.queue_crashes")
    parser.add_argument("--crashes", type=int, default=CRASHES)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = asyncio.run(stories(Path(folder), given.crashes, given.seed))
    Console().print(report.table())
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
