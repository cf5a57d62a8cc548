"""`python -m tests.faults.storm`: a grant that all processes want at once, and that short-lived processes want.

`rush`: many processes find one token expired at the same moment, at a provider that ends the family of a refresh
token that comes twice. `siege`: brokers that ask all the time are killed at random, mostly while a refresh is under
way. `cancels`: every public coroutine of two brokers is cancelled at every await. All print a table of what happened;
`problems` must be empty. CI runs a shortened form (`test_storm.py`, `test_cancel_storm.py`).
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from tests.faults.storm_cancels import CANCELS, cancels
from tests.faults.storm_rush import PROCESSES, TASKS, rush
from tests.faults.storm_siege import KILLS, siege


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.storm")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    parser.add_argument("--tasks", type=int, default=PROCESSES * TASKS, help="of all processes of the rush together")
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--cancels", type=int, default=CANCELS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=["rush", "siege", "cancels"])
    given = parser.parse_args()
    reports = []
    with tempfile.TemporaryDirectory() as folder:
        storms = {
            "rush": lambda place: rush(place, given.processes, max(1, given.tasks // given.processes)),
            "siege": lambda place: siege(place, given.kills, given.seed),
            "cancels": lambda place: cancels(place, given.cancels, given.seed),
        }
        for name in [given.only] if given.only else storms:
            (Path(folder) / name).mkdir()
            reports.append(asyncio.run(storms[name](Path(folder) / name)))
            Console().print(reports[-1].table())
    return 1 if any(report.problems for report in reports) else 0


if __name__ == "__main__":
    sys.exit(main())
