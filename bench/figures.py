"""The one form of a figure: a JSON object a line, with its median, its spread and its ratios to what stands beside it.

`{"name": ..., "value": <median>, "unit": ..., "low": <first quartile>, "high": <third quartile>, "rounds": ...,
"beside": {<name of another figure>: {"ratio": ..., "low": ..., "high": ...}}}`. A ratio is the median of the ratios
of the rounds, because both sides took turns. A figure that could not be taken has the value
null and says why in `failed`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

Figure = dict[str, Any]
Samples = Sequence[float]
Work = Callable[[], Awaitable[object]]
DIGITS = 4
US, MS = 1e6, 1e3


def parser() -> argparse.ArgumentParser:
    """Return the options that every bench takes."""
    made = argparse.ArgumentParser()
    made.add_argument("--quick", action="store_true", help="small counts: shows that a bench runs, not its speed")
    made.add_argument("--long", action="store_true", help="larger counts where a bench has them")
    return made


def rounded(value: float) -> float:
    """Return a value with four digits that count, as an int where these are whole."""
    short = float(f"{value:.{DIGITS}g}")
    return int(short) if short.is_integer() else short


def quartiles(samples: Samples) -> tuple[float, float, float]:
    """Return the first quartile, the median and the third quartile."""
    if len(samples) == 1:
        return samples[0], samples[0], samples[0]
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
    return low, middle, high


def ratio(ours: Samples, its: Samples) -> dict[str, float]:
    """Return the median ratio of the rounds and its quartiles; of the medians where the rounds are not pairs."""
    pairs = (
        [mine / other for mine, other in zip(ours, its, strict=True)]
        if len(ours) == len(its)
        else [statistics.median(ours) / statistics.median(its)]
    )
    low, middle, high = quartiles(pairs)
    return {"ratio": round(middle, 2), "low": round(low, 2), "high": round(high, 2)}


def figure(name: str, samples: Samples, unit: str, beside: Mapping[str, Samples] | None = None, **more: Any) -> Figure:
    low, middle, high = quartiles(samples)
    found: Figure = {"name": name, "value": rounded(middle), "unit": unit, "low": rounded(low), "high": rounded(high)}
    found |= {"rounds": len(samples), **more}
    if beside:
        found["beside"] = {other: ratio(samples, its) for other, its in beside.items()}
    return found


def show(name: str, samples: Samples, unit: str, beside: Mapping[str, Samples] | None = None, **more: Any) -> None:
    print(json.dumps(figure(name, samples, unit, beside, **more)), flush=True)


def show_failure(name: str, why: str) -> None:
    """Print a row that says why there is no figure: the other rows go on."""
    print(json.dumps({"name": name, "value": None, "unit": "", "failed": why}), flush=True)


def show_in_turn(measured: Mapping[str, Samples], unit: str = "us", **more: Any) -> None:
    """Print figures whose rounds took turns. The last one is ours, the others stand beside it."""
    *others, ours = measured
    for name in others:
        show(name, measured[name], unit)
    show(ours, measured[ours], unit, {name: measured[name] for name in others}, **more)


async def in_turn(works: Mapping[str, Work], rounds: int, batch: int) -> dict[str, list[float]]:
    """Return the microseconds of one call, round by round.

    The works take turns, so that other work of the machine meets all of them.
    """
    samples: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            samples[name].append(await a_round(work, batch))
    return samples


async def a_round(work: Work, batch: int) -> float:
    """Return the microseconds of one call, over a batch."""
    began = time.perf_counter()
    for _ in range(batch):
        await work()
    return (time.perf_counter() - began) / batch * US


def called_in_turn(works: Mapping[str, Callable[[], object]], rounds: int, batch: int) -> dict[str, list[float]]:
    """Do as `in_turn` does, for functions that cost less than a coroutine."""
    samples: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            began = time.perf_counter()
            for _ in range(batch):
                work()
            samples[name].append((time.perf_counter() - began) / batch * US)
    return samples


async def timed(work: Awaitable[object], scale: float = US) -> float:
    began = time.perf_counter()
    await work
    return (time.perf_counter() - began) * scale
