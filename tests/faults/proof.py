"""`python -m tests.faults.proof`: run the long forms one after another, and write one page of figures.

`make test` runs the short form of each. `--scale 0.1` runs a tenth of the kills, cancels and minutes; `--minutes 30`
stops after half an hour, and the parts that did not end by then count as failed. `--only hosts` runs the parts whose
title has that text, and the whole form of each test file whose path has it. build/proof.md has all that was printed.
`tests/faults/proof_record.json` keeps when each part and each file last ran, at which size and commit, and how that
ended, and docs/proof.md shows it: commit both. `--list` prints it, so that no long form is forgotten.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tests.faults import long_forms, proof_page
from tests.faults.proof_parts import EVERY_FILE, PARTS, Part
from tests.faults.proof_record import commit, last_run, note, ran, runs

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "build" / "proof.md"
MINUTES = 120.0
END_SECONDS = 30.0
WIDTH = "200"  # of the terminal that the parts draw their tables for: no cell has two lines
Result = Literal["passed", "failed", "stopped"]


def parts_with(text: str) -> list[Part]:
    """Return the parts whose title has this text, and a part for each file with a long form whose path has it."""
    files = (Part(file, "tests.faults.long_forms", {}, ("--file", file)) for file in long_forms.files() if text)
    return [part for part in (*PARTS, *files) if text.lower() in part.title.lower()]


@dataclass(frozen=True)
class Done:
    """What came of one part."""

    part: Part
    result: Result
    seconds: float
    figures: str = field(repr=False)


def run(part: Part, scale: float, seconds: float) -> Done:
    """Run one part for at most so many seconds. Then its process group is interrupted, so that databases and networks
    are removed, and a moment later killed."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it, as its children do
    began = time.monotonic()
    process = subprocess.Popen(
        part.command(scale),
        cwd=ROOT,
        env={**os.environ, "COLUMNS": WIDTH},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        figures, _ = process.communicate(timeout=max(seconds, 0.0))
        result: Result = "failed" if process.returncode else "passed"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=END_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        figures, _ = process.communicate()
        result = "stopped"
    return Done(part, result, time.monotonic() - began, figures.strip())


def prove(parts: Iterable[Part], scale: float, minutes: float, tell: Callable[[Done], None]) -> list[Done]:
    """Run the parts in their order; a part that has not begun when the time is over is skipped."""
    end, done = time.monotonic() + minutes * 60, list[Done]()
    for part in parts:
        left = end - time.monotonic()
        done.append(run(part, scale, left) if left > 0 else Done(part, "stopped", 0.0, "not begun"))
        tell(done[-1])
    return done


def page(done: Iterable[Done], scale: float) -> str:
    """Return the page of figures: one table, and what each part printed."""
    done = list(done)
    rows = [f"| {each.part.title} | {each.part.size(scale)} | {each.result} | {each.seconds:.0f} |" for each in done]
    parts = [f"## {each.part.title}\n\n```\n{each.figures}\n```\n" for each in done]
    head = ["# Proof", "", _machine(), "", "| part | size | result | seconds |", "|---|---|---|---|"]
    return "\n".join([*head, *rows, "", *parts])


def recorded(done: Done, scale: float) -> None:
    """Note a part that ran to its end in the record. A file with a long form notes itself (long_forms.py)."""
    part = done.part
    if done.result != "stopped" and part in PARTS and part is not EVERY_FILE:
        lines = proof_page.lines(done.figures)[-part.lines :]
        note({part.title: ran(done.result, done.seconds, lines, size=part.size(scale), scale=scale)})


def last_runs() -> str:
    """Return a line for each part and each file: when it last ran whole, and how that ended."""
    rows = runs()
    titles = [part.title for part in PARTS if part is not EVERY_FILE]
    return "\n".join(last_run(title, rows) for title in [*titles, *long_forms.files()])


def _machine() -> str:
    python, system = platform.python_version(), platform.platform(terse=True)
    return f"Commit {commit()}, Python {python}, {system}, {os.cpu_count()} cores."


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.proof")
    parser.add_argument("--scale", type=float, default=1.0, help="how much of each part, such as 0.1")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="the longest that all parts may take")
    parser.add_argument("--only", default="", help="the parts and files whose title has this text")
    parser.add_argument("--list", action="store_true", help="print when each part and file last ran, and run none")
    given = parser.parse_args()
    if given.list:
        print(last_runs())
        return 0
    parts = parts_with(given.only)
    if not parts:
        parser.error(f"no part and no file has {given.only!r} in its title; --list prints them")

    def tell(each: Done) -> None:
        print(f"{each.part.title}: {each.result}", flush=True)
        recorded(each, given.scale)

    done = prove(parts, given.scale, given.minutes, tell)
    proof_page.write()
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(done, given.scale), "utf-8")
    print(f"\n{PAGE.read_text('utf-8')}\nwrote {PAGE.relative_to(ROOT)}")
    return 0 if all(each.result == "passed" for each in done) else 1


if __name__ == "__main__":
    sys.exit(main())
