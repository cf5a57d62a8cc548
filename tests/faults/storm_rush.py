"""The rush: many processes find one token expired at the same moment (case 46)."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

from tests.faults.storm_kit import Nursery, People, Provider
from tests.faults.storm_provider import SLOW
from tests.faults.storm_report import Report
from tests.faults.storm_worker import World

PROCESSES, TASKS = 32, 20
MARGIN = 2  # seconds that the last one may wait longer than the provider takes


async def rush(folder: Path, processes: int = PROCESSES, tasks: int = TASKS, within: float = SLOW + MARGIN) -> Report:
    """One expired grant, many processes with many tasks each; the last of them is served `within` seconds."""
    reported: list[list[str]] = []

    def hear(line: list[str]) -> None:
        if line[0] == "told":
            reported.append(line[2:])

    async with Provider.open({"strict": 0}, people=1, lifetime=1) as provider:
        world = World(provider.introduction)
        async with People.open(folder, world) as people:
            await people.agree("strict", 0)
        await provider.ask("change", "strict", access_lifetime=3600)
        async with Nursery.open({"folder": str(folder), "people": 1, **provider.introduction}, hear) as nursery:
            for _ in range(processes):
                nursery.order(f"ask {tasks}")
            await nursery.until(lambda: len(nursery.up) == processes)
            await asyncio.sleep(1)  # so that the token is over
            nursery.order("go")
            await nursery.until(lambda: len(nursery.ends) == processes)
        return await _rush_report(provider, reported, processes * tasks, within)


async def _rush_report(provider: Provider, reported: list[list[str]], total: int, within: float) -> Report:
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
        "seconds to the first, median, last answer": f"{times[0]}, {times[len(times) // 2]}, {times[-1]}",
    }
    problems = [
        *([] if words == {"ready": total} else [f"not every task was served: {dict(words)}"]),
        *([] if times[-1] <= within else [f"the last one waited for {times[-1]} seconds"]),
        *([] if tokens == 1 else [f"{tokens} different tokens"]),
        *([] if requests == 1 else [f"{requests} refresh requests"]),
        *([] if authorized == 1 else ["a person was asked to consent again"]),
        *([] if not family["ended_by"] else [f"the family was ended by {family['ended_by']}"]),
    ]
    return Report("The rush: one expired grant, all tasks at once", figures, problems)
