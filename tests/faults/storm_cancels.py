"""The cancel storm: every public coroutine, cancelled at every await, on two brokers that share a store (case 93)."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from oauthbroker.authorization import finish
from oauthbroker.core import lifecycle
from oauthbroker.core.errors import BrokerError
from oauthbroker.repository import repository
from oauthbroker.repository.repository import Repository
from oauthbroker.testing import IdentityProvider, TestClock
from tests.faults import cancel_actions, cancel_actions_web
from tests.faults.cancel_drive import Driven, Plan, place_of
from tests.faults.cancel_rest import Held, problems_of, to_rest
from tests.faults.cancel_table import TABLE, Action
from tests.faults.cancel_world import Quiet, World, complaints
from tests.faults.storm_report import Report

CANCELS = 20_000
EPOCH = 1_000  # cancels between two looks at the whole store
AT_ONCE = 16
SHARE = 0.85  # of the actions is meant to be cancelled
PATIENCE = 120.0  # real seconds for what runs side by side
LOCKED = 60.0  # real seconds for a lock: a loaded machine is slow, and two that wait for each other stand still
MOST_PROBLEMS = 20
PLUGINS = (cancel_actions, cancel_actions_web)  # which fill the table


@dataclass
class Figures:
    """What happened in a storm."""

    cancels: int = 0
    actions: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    places: Counter[str] = field(default_factory=Counter)
    hit: dict[str, set[int]] = field(default_factory=dict)
    awaits: dict[str, int] = field(default_factory=dict)
    lately: defaultdict[str, deque[int]] = field(default_factory=lambda: defaultdict(lambda: deque(maxlen=50)))
    epochs: int = 0
    slowest: tuple[float, str] = (0.0, "")


@dataclass
class Storm:
    """One run."""

    world: World
    dice: Random
    figures: Figures = field(default_factory=Figures)
    problems: list[str] = field(default_factory=list)

    async def epoch(self, cancels: int) -> None:
        """Opens both brokers, storms, lets everything come to rest, closes them and looks."""
        w, aim = self.world, self.figures.cancels + cancels
        before = Held.now()
        with complaints() as heard:
            await w.open()
            passing = asyncio.create_task(self.time_passes())
            await asyncio.gather(*(self.work(aim) for _ in range(AT_ONCE)))
            passing.cancel()
            await asyncio.wait_for(to_rest(w), PATIENCE)
            await w.close()
            self.problems += await problems_of(w, before)
        self.problems += [f"asyncio: {each}" for each in heard] + w.model.problems + w.log_problems()
        self.figures.epochs += 1
        await w.turn_the_page()

    async def time_passes(self) -> None:
        """Slowly, and now and then by leaps: tokens and leases end, back-offs are over."""
        while True:
            await asyncio.sleep(0.005)
            leaps = self.dice.random() < 0.02
            self.world.clock.advance(self.dice.choice((5, 15)) if leaps else 0.1)

    async def work(self, aim: int) -> None:
        """One action after the other, beside others who do the same."""
        table = list(TABLE.values())
        weights = [each.weight for each in table]
        while self.figures.cancels < aim and not self.problems:
            (action,) = self.dice.choices(table, weights)
            await self.one(action)
            self.problems += self.world.model.problems

    async def one(self, action: Action) -> None:
        """One action, driven in a task of its own, and how it ended."""
        figures, dice = self.figures, Random(self.dice.random())
        plan = Plan.drawn(dice, dice.choice(figures.lately[action.name] or [20]) + 1, SHARE)
        driven = Driven(action.act(self.world, dice.choice(self.world.sides), dice), plan)
        task = asyncio.create_task(_alone(driven))
        began = time.monotonic()
        _, late = await asyncio.wait([task], timeout=PATIENCE)
        figures.slowest = max(figures.slowest, (round(time.monotonic() - began, 1), action.name))
        if late:
            waits = place_of(driven.work) or "an await of its own"
            self.problems.append(f"{action.name}, cancelled {driven.asked} times, does not end: it waits at {waits}")
            return
        figures.actions[action.name] += 1
        figures.awaits[action.name] = max(figures.awaits.get(action.name, 0), driven.awaits)
        if not driven.asked:
            figures.lately[action.name].append(driven.awaits)
        if driven.asked:
            figures.cancels += 1
            figures.places[driven.place] += 1
            figures.hit.setdefault(action.name, set()).add(plan.at or 0)
        figures.ends[self.end_of(action, driven, task)] += 1

    def end_of(self, action: Action, driven: Driven, task: asyncio.Task[Any]) -> str:
        if task.cancelled():
            if not driven.asked:
                self.problems.append(f"{action.name} was cancelled without a reason")
            return "cancelled"
        error = task.exception()
        if error is None:
            return "asked to end, done first" if driven.asked else "done"
        if isinstance(error, BrokerError) and error.code in action.allows:
            return f"refused: {error.code.value}"
        self.problems.append(f"{action.name}, cancelled at {driven.place or 'no await'}: {_trace(error)}")
        return "broken"


async def _alone(driven: Driven) -> Any:
    return await driven


def _trace(error: BaseException) -> str:
    """The exception and the last lines of ours that it went through."""
    lines, at = [], error.__traceback__
    while at is not None:
        lines.append(f"{Path(at.tb_frame.f_code.co_filename).name}:{at.tb_lineno}")
        at = at.tb_next
    return f"{error!r} at {' '.join(lines[-8:])}"


@contextmanager
def long_waits() -> Iterator[None]:
    """Let each wait for a pair's lock end after `LOCKED`, also in a pass. A claim outlives the wait of its commit by the
    storm's clock, too, which runs some 50 times as fast as the machine: else a sweep ends the session of a callback that
    waits for the pair, as if its process had died."""
    assert Repository.pair.__kwdefaults__ is not None
    with (
        patch.object(lifecycle, "LOCK_SECONDS", LOCKED),
        patch.object(repository, "WRITABLE_SECONDS", LOCKED),
        patch.object(finish, "PAIR_WAIT_SECONDS", 50 * LOCKED),
        patch.dict(Repository.pair.__kwdefaults__, wait=LOCKED),
    ):
        yield


async def cancels(folder: Path, count: int = CANCELS, seed: int = 1, epoch: int = EPOCH) -> Report:
    """Goes on until so many actions were cancelled, or something is wrong."""
    began, clock = time.monotonic(), TestClock()
    with Quiet() as canaries, long_waits():
        async with IdentityProvider(clock=clock, canaries=canaries) as idp:
            storm = Storm(World.of(idp, clock, folder, seed), Random(seed))
            while storm.figures.cancels < count and not storm.problems:
                await storm.epoch(min(epoch, count - storm.figures.cancels))
    return _report(storm, seed, time.monotonic() - began)


def _report(storm: Storm, seed: int, seconds: float) -> Report:
    figures = storm.figures
    awaits = sum(figures.awaits.values())
    shown = {
        "seed": seed,
        "actions": f"{sum(figures.actions.values())} of {len(figures.actions)} kinds",
        "cancels": figures.cancels,
        "awaits that were cancelled at": f"{sum(map(len, figures.hit.values()))} of {awaits}",
        "lines of the product that were cancelled at": len(figures.places),
        "ends": dict(figures.ends.most_common()),
        "events handed out": storm.world.model.handed_in_all,
        "entries of the audit log": dict(Counter(type(e).__name__ for e in storm.world.audit.entries).most_common(12)),
        "times that everything came to rest": figures.epochs,
        "slowest action (seconds)": f"{figures.slowest[1]}: {figures.slowest[0]}",
        "seconds": round(seconds),
    }
    problems = [f"seed {seed}: {each}" for each in dict.fromkeys(storm.problems)][:MOST_PROBLEMS]
    return Report("The cancels: every public coroutine, cancelled at every await", shown, problems)
