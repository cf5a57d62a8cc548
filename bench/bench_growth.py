"""A broker over 1,000, 10,000 and 100,000 grants, and a million with --long: opening it, the token call and its memory.

Each size is a process of its own; all of them live at once and take turns. The files lie in the page cache.
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import ExitStack
from pathlib import Path

from bench.children import Child, child
from bench.figures import parser, show
from bench.ours import fill

Taken = dict[str, list[float]]


def of(size: int, what: str) -> str:
    return f"{what}, {size:,} grants"


def measure(root: Path, sizes: tuple[int, ...], rounds: int, batch: int) -> None:
    with ExitStack() as stack:
        children = dict[int, Child]()
        for size in sizes:
            folder = root / str(size)
            folder.mkdir()
            asyncio.run(fill(folder, range(size)))
            children[size] = stack.enter_context(child("bench.ours", str(folder), "0"))
            children[size].ask(do="open")
        opened: dict[int, list[float]] = {size: [] for size in sizes}
        for _ in range(min(rounds, 20)):
            for size in sizes:
                opened[size].append(children[size].ask(do="open")["ms"])
        report(opened, "open_broker", "ms")
        memory = {size: [each.ask(do="memory")["mib"]] for size, each in children.items()}
        warm: dict[int, list[float]] = {size: [] for size in sizes}
        cold: dict[int, list[float]] = {size: [] for size in sizes}
        for number in range(rounds):
            for size in sizes:
                warm[size].append(children[size].ask(do="warm", subject=0, batch=batch)["us"])
                cold[size].append(children[size].ask(do="cold", round=number, grants=size, batch=batch // 4)["us"])
        report(warm, "warm call", "us")
        report(cold, "cold call", "us")
        report(memory, "memory of the process after it opened", "MiB")


def report(samples: dict[int, list[float]], what: str, unit: str) -> None:
    """Print each size; each but the smallest beside the smallest."""
    least = min(samples)
    for size, taken in samples.items():
        beside = {of(least, what): samples[least]} if size != least else None
        show(of(size, what), taken, unit, beside, grants=size)


def main(*, quick: bool, long: bool) -> None:
    sizes = (100, 1_000) if quick else (1_000, 10_000, 100_000)
    rounds, batch = (5, 40) if quick else (60, 200)
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), (*sizes, 1_000_000) if long else sizes, rounds, batch)


if __name__ == "__main__":
    given = parser().parse_args()
    main(quick=given.quick, long=given.long)
