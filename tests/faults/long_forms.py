"""`python -m tests.faults.long_forms`: run every row and every example that the short form in `make test` leaves out.

These are the tables with the mark `sample`, the laws of hypothesis, sweeps over crash points, and the pages in every size
and color scheme: whole files, found by their imports. `--file PATH` runs one of them. `--which postgres` runs all
stories on PostgreSQL instead; `make test` runs a sample of them. Prints what pytest says, without its dots.
"""

from __future__ import annotations

import argparse
import ast
import functools
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.faults.proof_record import note, ran, runs

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "build" / "long_forms.xml"
PROGRESS = re.compile(r"[.sxFE]*\s*(\[\s*\d+%\])?")
FORMS = "tests.kit.forms"
BATCH = 16  # files of one run of pytest
POSTGRES = ("--store", "postgres", "-m", "not e2e", "tests/story")


@functools.cache
def files(tests: Path = ROOT / "tests") -> list[str]:
    """Return the test files that have a long form: a sampled table, a law, or a part that asks which form it is."""
    sources = {_module(path, tests): path for path in sorted(tests.rglob("*.py")) if "node_modules" not in path.parts}
    texts = {module: path.read_text("utf-8") for module, path in sources.items()}
    imports = {module: set(_imported(text)) for module, text in texts.items()}
    by_form = {FORMS}
    while more := {module for module, used in imports.items() if used & by_form} - by_form - {"tests.conftest"}:
        by_form |= more
    return [
        path.relative_to(tests.parent).as_posix()
        for module, path in sources.items()
        if path.name.startswith("test_")
        and (module in by_form or "mark.sample(" in texts[module] or "hypothesis" in imports[module])
    ]


def _module(path: Path, tests: Path) -> str:
    return ".".join(path.relative_to(tests.parent).with_suffix("").parts)


def _imported(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (each.name for each in names)
            case ast.ImportFrom(module=str(module), names=names):
                yield module
                yield from (f"{module}.{each.name}" for each in names)


def command(workers: int, chosen: list[str]) -> list[str]:
    """Return the command line of pytest, which writes its results to `RESULTS`."""
    words = ["-q", "-n", str(workers), "--dist", "worksteal", "--durations=10"]
    return [sys.executable, "-m", "pytest", *words, f"--junitxml={RESULTS}", "-o", "junit_family=xunit1", *chosen]


def results(text: str) -> Mapping[str, tuple[str, float, str]]:
    """Return (result, seconds, figures) of each file whose tests ran, from what pytest wrote."""
    counts: dict[str, Counter[str]] = {}
    seconds: dict[str, float] = defaultdict(float)
    for test in ET.fromstring(text).iter("testcase"):  # noqa: S314 (we wrote it)
        file = _file_of(test.get("classname", ""))
        ends = {child.tag for child in test}
        end = "failed" if ends & {"failure", "error"} else "skipped" if "skipped" in ends else "passed"
        counts.setdefault(file, Counter())[end] += 1
        seconds[file] += float(test.get("time", 0))
    return {
        file: (
            "failed" if ends["failed"] else "passed",
            seconds[file],
            ", ".join(f"{count} {end}" for end, count in sorted(ends.items())),
        )
        for file, ends in counts.items()
        if ends["failed"] or ends["passed"]
    }


def _file_of(name: str) -> str:
    """Return the file of a test by its module or class: one that a class inherits was written in another file."""
    module, _, last = name.rpartition(".")
    return _file_of(module) if last[:1].isupper() else f"{name.replace('.', '/')}.py"


def without_progress(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not PROGRESS.fullmatch(line))


def longest_ago_first() -> list[str]:
    """Return the files in the order of their last whole run, those that never ran first."""
    days = {title: row["day"] for title, row in runs().items()}
    return sorted(files(), key=lambda file: days.get(file, ""))


def in_memory(chosen: list[str], workers: int) -> int:
    """Run these files, a batch at a time, and note each file whose batch has ended: a run that is stopped goes on where
    it stopped when it is begun again. Return the first status that is not 0."""
    status = 0
    for begin in range(0, len(chosen), BATCH):
        RESULTS.unlink(missing_ok=True)
        status = _pytest(workers, ["--long", *chosen[begin : begin + BATCH]]) or status
        if RESULTS.exists():
            ended = results(RESULTS.read_text("utf-8")).items()
            note({file: ran(result, seconds, [figures]) for file, (result, seconds, figures) in ended})
    return status


def _pytest(workers: int, chosen: list[str]) -> int:
    done = subprocess.run(command(workers, chosen), cwd=ROOT, capture_output=True, text=True, check=False)
    print(without_progress(done.stdout + done.stderr), flush=True)
    return done.returncode


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.long_forms")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--which", choices=("memory", "postgres"), default="memory")
    parser.add_argument("--file", choices=files(), default="", metavar="PATH")
    given = parser.parse_args()
    if given.which == "postgres":
        return _pytest(given.workers, list(POSTGRES))
    return in_memory([given.file] if given.file else longest_ago_first(), given.workers)


if __name__ == "__main__":
    sys.exit(main())
