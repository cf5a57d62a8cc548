"""The rush: many processes find one token expired at the same moment (case 46)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from tests.faults.storm_kit import Nursery, People, Provider
from tests.faults.storm_report import Report
from tests.faults.storm_worker import World

PROCESSES, TASKS = 32, 20
PAUSE = 10  # seconds in which at least one task is served: a loaded machine is slow, and a lost wake-up stands still


async def rush(folder: Path, processes: int = PROCESSES, tasks: int = TASKS) -> Report:
    """One expired grant, many processes with many tasks each. The whole may take its time, as long as it goes on."""
    reported: list[list[str]] = []
    served: list[float] = []
    now = asyncio.get_running_loop().time

    def hear(line: list[str]) -> None:
        if line[0] == "told":
            reported.append(line[2:])
            served.append(now())

    async with Provider.open({"strict": 0}, people=1, lifetime=1) as provider:
        world = World(provider.introduction)
        async with People.open(folder, world) as people:
            await people.agree("strict", 0)
        await provider.ask("change", "strict", access_lifetime=3600)
        async with Nursery.open({"folder": str(folder), "people": 1, **provider.introduction}, hear) as nursery:
            for _ in range(processes):
                nursery.order(f"ask {tasks}")
            await nursery.until(lambda: len(nursery.up) == processes, lambda: len(nursery.up))
            await asyncio.sleep(1)  # so that the token is over
            served.append(now())
            nursery.order("go")
            await nursery.until(lambda: len(nursery.ends) == processes, lambda: (len(served), len(nursery.ends)))
        return await _rush_report(provider, reported, processes * tasks, longest_pause(served))


def longest_pause(served: Sequence[float]) -> float:
    """Return the longest time between two that follow each other; the first is that of the order to begin."""
    return max((after - before for before, after in pairwise(served)), default=0.0)


async def _rush_report(provider: Provider, reported: list[list[str]], total: int, pause: float) -> Report:
    words = Counter(word for word, _, _ in reported)
    tokens = len({token for _, token, _ in reported})
    times = sorted(float(seconds) for _, _, seconds in reported)
    requests, authorized = await provider.ask("count", "refresh_token"), await provider.ask("count", "authorize")
    (family,) = await provider.ask("figures")
    figures = {
        "tasks that asked": total,
        "answers": dict(words),
        "different tokens": tokens,
        "refresh requests": requests,
        "authorizations (the first one included)": authorized,
        "family ended by": family["ended_by"] or "nothing: alive",
        "longest pause between two answers, seconds": round(pause, 3),
        "seconds to the first, median, last answer": f"{times[0]}, {times[len(times) // 2]}, {times[-1]}",
    }
    problems = [
        *([] if words == {"ready": total} else [f"not every task was served: {dict(words)}"]),
        *([] if pause <= PAUSE else [f"no task was served for {pause:.1f} seconds"]),
        *([] if tokens == 1 else [f"{tokens} different tokens"]),
        *([] if requests == 1 else [f"{requests} refresh requests"]),
        *([] if authorized == 1 else ["a person was asked to consent again"]),
        *([] if not family["ended_by"] else [f"the family was ended by {family['ended_by']}"]),
    ]
    return Report("The rush: one expired grant, all tasks at once", figures, problems)
