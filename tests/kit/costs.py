"""A pytest plugin: `pytest --costs FOLDER` writes what each test costs, and `python -m tests.kit.costs FOLDER` sums it up.

A line per test, with its fixtures: seconds of CPU in the worker, seconds of CPU in the children that it waited for (a
database server's are at the test that ended it), seconds in all, and the test.
"""

from __future__ import annotations

import os
import sys
import time
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest

Cost = tuple[float, float, float]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("oauthbroker").addoption("--costs", type=Path, metavar="FOLDER", help="write each test's costs")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    folder: Path | None = item.config.getoption("--costs")
    before = _now()
    done = yield
    if folder is not None:
        cost = "\t".join(f"{after - at:.3f}" for after, at in zip(_now(), before, strict=True))
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / str(os.getpid())).open("a") as lines:
            lines.write(f"{cost}\t{item.nodeid}\n")
    return done


def _now() -> Cost:
    times = os.times()
    return times.user + times.system, times.children_user + times.children_system, time.monotonic()


def summed(folder: Path, parts: int) -> list[tuple[str, Cost]]:
    """Return the costs of files (`parts` 0), of tests (1) or of rows (2), the dearest first."""
    sums: list[dict[str, float]] = [defaultdict(float) for _ in range(3)]
    for line in (line for path in folder.iterdir() for line in path.read_text().splitlines()):
        *seconds, node = line.split("\t", 3)
        name = [node.partition("::")[0], node.partition("[")[0], node][parts]
        for column, value in zip(sums, seconds, strict=True):
            column[name] += float(value)
    rows = [(name, (sums[0][name], sums[1][name], sums[2][name])) for name in sums[2]]
    return sorted(rows, key=lambda row: -row[1][0] - row[1][1])


def main(folder: str, parts: str = "0", most: str = "40") -> None:
    rows = summed(Path(folder), int(parts))
    total: list[float] = [sum(cost[column] for _, cost in rows) for column in range(3)]
    for name, cost in [("all", (total[0], total[1], total[2])), *rows[: int(most)]]:
        print("".join(f"{seconds:9.1f}" for seconds in cost), name)


if __name__ == "__main__":
    print("   worker children   in all  seconds")
    main(*sys.argv[1:])
