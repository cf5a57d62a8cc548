"""`python -m tests.faults.storm`: what happens to a grant when everybody wants it at once, and when nobody lives long.

`rush`: many processes find one token expired at the same moment, at a provider that ends the family of a refresh
token that comes twice. `siege`: brokers that ask all the time are killed at random, mostly while a renewal is under
way. Both print a table of what happened; `problems` must be empty. CI runs a shortened form (`test_storm.py`).
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from tests.faults.storm_rush import PROCESSES, TASKS, rush
from tests.faults.storm_siege import KILLS, siege


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.storm")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    parser.add_argument("--tasks", type=int, default=TASKS)
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=["rush", "siege"])
    given = parser.parse_args()
    reports = []
    with tempfile.TemporaryDirectory() as folder:
        for name in ("rush", "siege"):
            (Path(folder) / name).mkdir()
        if given.only != "siege":
            reports.append(asyncio.run(rush(Path(folder) / "rush", given.processes, given.tasks)))
            Console().print(reports[-1].table())
        if given.only != "rush":
            reports.append(asyncio.run(siege(Path(folder) / "siege", given.kills, given.seed)))
            Console().print(reports[-1].table())
    return 1 if any(report.problems for report in reports) else 0


if __name__ == "__main__":
    sys.exit(main())
