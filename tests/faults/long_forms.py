"""`python -m tests.faults.long_forms`: run every row and every example that the short form in `make test` leaves out.

These are the tables with the mark `sample`, the laws of hypothesis, and the pages in every size and color scheme.
`--which postgres` runs all stories on PostgreSQL instead, and `--which conformance` all scenarios of the MCP project;
`make test` runs a sample of both. `--which flows` runs what may happen to a run of a flow tool. Prints what pytest says, without its dots.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRESS = re.compile(r"[.sxFE]*\s*(\[\s*\d+%\])?")


CHOSEN = {
    "memory": ["--long", "-m", "sample or hypothesis or e2e"],
    "postgres": ["--store", "postgres", "-m", "not e2e", "tests/story"],
    "flows": ["--long", "tests/unit/flowtools/running"],
    "conformance": ["--long", "tests/e2e/test_mcp_conformance.py"],
}


def command(workers: int, which: str = "memory") -> list[str]:
    """Return the command line of pytest. `which` is a key of `CHOSEN`."""
    chosen = CHOSEN[which]
    return [sys.executable, "-m", "pytest", "-q", "-n", str(workers), "--dist", "worksteal", "--durations=10", *chosen]


def without_progress(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not PROGRESS.fullmatch(line))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.long_forms")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--which", choices=CHOSEN, default="memory")
    given = parser.parse_args()
    line = command(given.workers, given.which)
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    print(without_progress(done.stdout + done.stderr))
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
