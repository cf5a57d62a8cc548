"""What an operator reads of the grants of an installation: python -m bench.operator_reads <folder>. One JSON object: of
each read its CPU ms, the longest turn in which the event loop ran nothing else, and the MiB that it took.

The first read of each kind is left out: it imports and compiles what the others use. The objects of the start are left
out of the garbage collector's passes, as in a broker that serves.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Self

from bench.answering import KIB
from bench.figures import MS
from oauthbroker.config import load
from oauthbroker.core.clock import SystemClock
from oauthbroker.grants.grant_pages import GrantFilter, GrantPages
from oauthbroker.wiring import open_vault

ROWS = 50
PART = 2_000


async def cost_of(read: Callable[[], Awaitable[object]], times: int = 5) -> dict[str, list[float]]:
    """Return the milliseconds of CPU of each read and of its longest turn of the event loop, and the MiB of all."""
    with Peak() as peak:
        await read()
    taken, longest = list[float](), list[float]()
    for _ in range(times):
        began = time.process_time()
        await read()
        taken.append((time.process_time() - began) * MS)
    for _ in range(times):
        turns = Turns()  # costs CPU of its own
        await read()
        longest.append(turns.end() * MS)
    return {"": taken, ": the loop's longest turn": longest, ": memory": [peak.mib]}


class Peak:
    """Measures by how much the resident memory of this process grows, at the highest."""

    mib = 0.0

    def __enter__(self) -> Self:
        Path("/proc/self/clear_refs").write_text("5", "utf-8")  # the peak begins anew
        self._before = _kib("VmRSS")
        return self

    def __exit__(self, *_: object) -> None:
        self.mib = (_kib("VmHWM") - self._before) / KIB


def _kib(name: str) -> int:
    status = Path("/proc/self/status").read_text("utf-8")
    return int(status.split(f"{name}:")[1].split()[0])


class Turns:
    """Measures how long others wait for the event loop, in its thread's CPU seconds: other processes change nothing."""

    def __init__(self) -> None:
        self._longest = 0.0
        self._task = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        while True:
            before = time.thread_time()
            await asyncio.sleep(0)
            self._longest = max(self._longest, time.thread_time() - before)

    def end(self) -> float:
        self._task.cancel()
        return self._longest


async def part_of_all(pages: GrantPages) -> None:
    """Read some thousand grants of all, as a search for an unknown id, or diagnostics, read every one."""
    left = PART
    async for _ in pages.everything():
        left -= 1
        if not left:
            return


async def main(folder: Path) -> None:
    async with open_vault(load(folder / "config").settings) as vault:
        pages = GrantPages(vault.grants, SystemClock())
        costs = await costs_of(pages)
    print(json.dumps({f"{name}{what}": taken for name, each in costs.items() for what, taken in each.items()}))


async def costs_of(pages: GrantPages) -> dict[str, dict[str, list[float]]]:
    _, after = await pages.page(GrantFilter(), ROWS)

    async def counts() -> None:
        pages.forget()
        await pages.sample()

    gc.freeze()
    reads: dict[str, Callable[[], Awaitable[object]]] = {
        "page 1 of the list": lambda: pages.page(GrantFilter(), ROWS),
        "next page of the list": lambda: pages.page(GrantFilter(after=after), ROWS),
        "page 1 of an app": lambda: pages.page(GrantFilter(app="mail"), ROWS),
        "search by subject": lambda: pages.page(GrantFilter(subject="idp:user:7"), ROWS),
        "operators' page": lambda: pages.numbered(GrantFilter()),
        "counts by state": counts,
        f"{PART:,} of all": lambda: part_of_all(pages),
    }
    return {name: await cost_of(read) for name, read in reads.items()}


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
