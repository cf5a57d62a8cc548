"""`python -m tests.faults.audit_crashes`: random lives of the audit log's slots, with a crash at every change of the disk.

Processes take slots, write, rotate, write the checkpoint, end, and are killed. `test_audit_crash.py` runs a short form.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random

from rich.console import Console

from oauthbroker.audit.file import AuditFile
from tests.faults.audit_crash_kit import Story, sweep
from tests.faults.storm_report import Report
from tests.kit.audit import die

CRASHES = 3_000
STEPS = 16  # of one story
MOST_LOGS = 3  # at a time


def random_story(seed: int, steps: int = STEPS) -> Callable[[Story], None]:
    """Return a story that is the same each time it is told."""

    def tell(story: Story) -> None:
        dice, logs = Random(seed), list[AuditFile]()
        for _ in range(steps):
            step = dice.choice(("open", "enter", "enter", "enter", "keep", "close", "kill"))
            if not logs or (step == "open" and len(logs) < MOST_LOGS):
                logs.append(story.opened())
                story.enter(logs[-1])
                continue
            log = dice.choice(logs)
            _take_step(story, log, step)
            if step in {"close", "kill"}:
                logs.remove(log)

    return tell


def _take_step(story: Story, log: AuditFile, step: str) -> None:
    match step:
        case "keep":
            story.keep(log)
        case "close":
            story.close(log)
        case "kill":
            die(log)
        case _:
            story.enter(log)


async def lives(folder: Path, crashes: int, seed: int) -> Report:
    done, stories, problems = 0, 0, list[str]()
    for number in count(seed):
        if done >= crashes or problems:
            break
        stories += 1
        try:
            done += await sweep(folder / str(number), lambda _: None, random_story(number))
        except AssertionError as error:
            problems.append(f"seed {number}: {error}")
    return Report(f"Slots of the audit log, from seed {seed}", {"stories": stories, "crashes": done}, problems)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.audit_crashes")
    parser.add_argument("--crashes", type=int, default=CRASHES)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = asyncio.run(lives(Path(folder), given.crashes, given.seed))
    Console().print(report.table())
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
