"""`python -m tests.faults.proof`: run the long forms one after another, and write one page of figures.

`make test` runs the short form of each. `--scale 0.1` runs a tenth of the kills, cancels and minutes; `--minutes 30`
stops after half an hour, and the parts that did not end by then count as failed. `--only hosts` runs the parts whose
title has that text. The page is build/proof.md. `tests/faults/proof_record.json` keeps when each part last ran whole,
at which commit, and how that ended: commit it. `--list` prints it, so that no long form is forgotten.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "build" / "proof.md"
RECORD = ROOT / "tests" / "faults" / "proof_record.json"
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
    Part("Every scenario of the MCP project", "tests.faults.long_forms", {}, ("--which", "conformance")),
    Part("Runs of flow tools, killed and raised in anywhere", "tests.faults.long_forms", {}, ("--which", "flows")),
    Part("Every order of what may come during a refresh", "tests.model.search", {"states": 400_000}),
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


def recorded(done: Iterable[Done], day: str) -> None:
    """Note the parts that ran whole in the record."""
    record = json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {}
    for each in done:
        if each.result != "stopped":
            seconds, figures = round(each.seconds), each.figures.splitlines()[-1:]
            row = {"day": day, "commit": _commit(), "result": each.result, "seconds": seconds, "figures": figures}
            record[each.part.title] = row
    kept = {part.title: record[part.title] for part in PARTS if part.title in record}
    RECORD.write_text(json.dumps(kept, indent=2) + "\n", "utf-8")


def last_runs() -> str:
    """Return a line for each part: when it last ran whole, and how that ended."""
    record = json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {}
    lines = []
    for part in PARTS:
        row = record.get(part.title)
        reported = "never" if row is None else f"{row['day']} at {row['commit']}: {row['result']} in {row['seconds']} s"
        lines.append(f"{part.title}: {reported}")
    return "\n".join(lines)


def _scaled(size: float, scale: float) -> str:
    """Never less than one: memory that settles looks like memory that grows within the first minute."""
    return f"{max(1.0, size * scale):g}" if isinstance(size, float) else str(max(1, round(size * scale)))


def _sizes(part: Part, scale: float) -> str:
    return ", ".join(f"{_scaled(size, scale)} {name}" for name, size in part.sizes.items())


def _machine() -> str:
    python, system = platform.python_version(), platform.platform(terse=True)
    return f"Commit {_commit()}, Python {python}, {system}, {os.cpu_count()} cores."


def _commit() -> str:
    git = ("git", "describe", "--always", "--dirty")
    return subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.proof")
    parser.add_argument("--scale", type=float, default=1.0, help="how much of each part, such as 0.1")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="the longest that all parts may take")
    parser.add_argument("--only", default="", help="the parts whose title has this text")
    parser.add_argument("--list", action="store_true", help="print when each part last ran whole, and run none")
    given = parser.parse_args()
    if given.list:
        print(last_runs())
        return 0
    parts = [part for part in PARTS if given.only.lower() in part.title.lower()]
    if not parts:
        parser.error(f"no part has {given.only!r} in its title; --list prints them")
    done = prove(parts, given.scale, given.minutes, lambda each: print(f"{each.part.title}: {each.result}", flush=True))
    if given.scale >= 1:
        recorded(done, f"{datetime.now(UTC):%Y-%m-%d}")
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(done, given.scale), "utf-8")
    print(f"\n{PAGE.read_text('utf-8')}\nwrote {PAGE.relative_to(ROOT)}")
    return 0 if all(each.result == "passed" for each in done) else 1


if __name__ == "__main__":
    sys.exit(main())
