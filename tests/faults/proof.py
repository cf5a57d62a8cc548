"""`python -m tests.faults.proof`: run the long forms one after another, and write one page of figures.

`make test` runs the short form of each. `--scale 0.1` runs a tenth of the kills, cancels and minutes; `--minutes 30`
stops after half an hour, and the parts that did not end by then count as failed. `--only hosts` runs the parts whose
title has that text, and the whole form of each test file whose path has it. The page is build/proof.md.
`tests/faults/proof_record.json` keeps when each part and each file last ran whole, at which commit, and how that ended:
commit it. `--list` prints it, so that no long form is forgotten.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tests.faults import long_forms
from tests.faults.proof_record import commit, last_run, note, ran, runs

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "build" / "proof.md"
MINUTES = 120.0
Result = Literal["passed", "failed", "stopped"]


@dataclass(frozen=True)
class Part:
    """One long form: a module, and the options that say how long it is."""

    title: str
    module: str
    sizes: Mapping[str, float]
    options: tuple[str, ...] = ()

    def command(self, scale: float) -> list[str]:
        sizes = [word for name, size in self.sizes.items() for word in (f"--{name}", _scaled(size, scale))]
        return [sys.executable, "-m", self.module, *self.options, *sizes]


PARTS = (
    Part("Every row and example of the tests", "tests.faults.long_forms", {}),
    Part("Every story on PostgreSQL", "tests.faults.long_forms", {}, ("--which", "postgres")),
    Part("Every order of what may come during a refresh", "tests.model.search", {"states": 400_000}),
    Part("Worlds whose time and faults come from a seed", "tests.world.__main__", {"worlds": 1000}, ("--mutants",)),
    Part("Brokers killed at random", "tests.faults.kills", {"kills": 300}),
    Part("A server killed under load", "tests.faults.server_kills", {"kills": 30}),
    Part("A server of two workers killed under load", "tests.faults.server_kills", {"kills": 30}, ("--workers", "2")),
    Part("Many processes want one expired grant", "tests.faults.storm", {"tasks": 640}, ("--only", "rush")),
    Part("Brokers killed during refreshes", "tests.faults.storm", {"kills": 1000}, ("--only", "siege")),
    Part("Calls cancelled at every await", "tests.faults.storm", {"cancels": 20_000}, ("--only", "cancels")),
    Part("Rights that end in another process", "tests.faults.interleavings", {"rounds": 6_000}),
    Part("Queues that crash at each change", "tests.faults.queue_crashes", {"crashes": 1_500}),
    Part("Slots of the audit log that crash", "tests.faults.audit_crashes", {"crashes": 3_000}),
    Part("Agents and orchestrators killed at random", "tests.faults.agent_kills", {"turns": 1000}),
    Part("Four hosts with one database", "tests.faults.hosts", {"seconds": 600.0}),
    Part("Mixed load for minutes", "bench.soak", {"minutes": 6.0}),
)


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
    """Run one part for at most so many seconds; then its whole process group is killed."""
    began = time.monotonic()
    process = subprocess.Popen(
        part.command(scale),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        figures, _ = process.communicate(timeout=max(seconds, 0.0))
        result: Result = "failed" if process.returncode else "passed"
    except subprocess.TimeoutExpired:
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
    rows = [f"| {each.part.title} | {_sizes(each.part, scale)} | {each.result} | {each.seconds:.0f} |" for each in done]
    parts = [f"## {each.part.title}\n\n```\n{each.figures}\n```\n" for each in done]
    head = ["# Proof", "", _machine(), "", "| part | size | result | seconds |", "|---|---|---|---|"]
    return "\n".join([*head, *rows, "", *parts])


def recorded(done: Iterable[Done]) -> None:
    """Note the parts that ran whole in the record. A file with a long form notes itself (long_forms.py)."""
    titles = {part.title for part in PARTS}
    whole = [each for each in done if each.result != "stopped" and each.part.title in titles]
    note({each.part.title: ran(each.result, each.seconds, _last_line(each.figures)) for each in whole})


def last_runs() -> str:
    """Return a line for each part and each file: when it last ran whole, and how that ended."""
    rows = runs()
    return "\n".join(last_run(title, rows) for title in [*(part.title for part in PARTS), *long_forms.files()])


def _last_line(text: str) -> str:
    """Return the last line that says something; a table ends with its frame."""
    said = [line.strip(" │") for line in text.splitlines() if any(map(str.isalnum, line))]
    return re.sub(r"\s*│\s*", ": ", "".join(said[-1:]))


def _scaled(size: float, scale: float) -> str:
    """Never less than one: memory that settles looks like memory that grows within the first minute."""
    return f"{max(1.0, size * scale):g}" if isinstance(size, float) else str(max(1, round(size * scale)))


def _sizes(part: Part, scale: float) -> str:
    return ", ".join(f"{_scaled(size, scale)} {name}" for name, size in part.sizes.items())


def _machine() -> str:
    python, system = platform.python_version(), platform.platform(terse=True)
    return f"Commit {commit()}, Python {python}, {system}, {os.cpu_count()} cores."


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.proof")
    parser.add_argument("--scale", type=float, default=1.0, help="how much of each part, such as 0.1")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="the longest that all parts may take")
    parser.add_argument("--only", default="", help="the parts and files whose title has this text")
    parser.add_argument(
        "--list", action="store_true", help="print when each part and file last ran whole, and run none"
    )
    given = parser.parse_args()
    if given.list:
        print(last_runs())
        return 0
    parts = parts_with(given.only)
    if not parts:
        parser.error(f"no part and no file has {given.only!r} in its title; --list prints them")
    done = prove(parts, given.scale, given.minutes, lambda each: print(f"{each.part.title}: {each.result}", flush=True))
    if given.scale >= 1:
        recorded(done)
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(done, given.scale), "utf-8")
    print(f"\n{PAGE.read_text('utf-8')}\nwrote {PAGE.relative_to(ROOT)}")
    return 0 if all(each.result == "passed" for each in done) else 1


if __name__ == "__main__":
    sys.exit(main())
