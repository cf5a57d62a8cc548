"""The record of the proof: when each long form last ran, at which size and commit, and how that ended
(proof_record.json)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TypedDict

ROOT = Path(__file__).parents[2]
RECORD = Path(__file__).with_name("proof_record.json")
WRITTEN = ("tests/faults/proof_record.json", "docs/proof.md")  # by each run; neither changes what a part tests


class Failure(TypedDict):
    """A run that failed before a later one: what broke, and how it was mended, which is written by hand."""

    day: str
    commit: str
    broke: str
    mended: str


class Run(TypedDict):
    day: str
    commit: str
    size: str
    scale: float
    result: str
    seconds: int
    figures: list[str]
    failures: list[Failure]


def ran(result: str, seconds: float, figures: Iterable[str], *, size: str = "", scale: float = 1) -> Run:
    """Return the row of a run that ended now."""
    return Run(
        day=f"{datetime.now(UTC):%Y-%m-%d}",
        commit=commit(),
        size=size,
        scale=scale,
        result=result,
        seconds=round(seconds),
        figures=list(figures),
        failures=[],
    )


def runs() -> dict[str, Run]:
    found: dict[str, Run] = json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {}
    return found


def note(new: Mapping[str, Run]) -> None:
    """Keep these runs, with the failures before them. A smaller run that passed does not take the place of a larger
    one."""
    old = runs()
    kept = {title: _after(old.get(title), row) for title, row in new.items()}
    RECORD.write_text(json.dumps(dict(sorted((old | kept).items())), indent=2) + "\n", "utf-8")


def _after(old: Run | None, new: Run) -> Run:
    if old is None or (new["result"] == "passed" and new["scale"] < old["scale"]):
        return old or new
    failed = Failure(day=old["day"], commit=old["commit"], broke="; ".join(old["figures"][-1:]), mended="")
    return {**new, "failures": [*old["failures"], *([failed] if old["result"] != "passed" else [])]}


def last_run(title: str, rows: Mapping[str, Run]) -> str:
    """Return a line: when this last ran, and how that ended."""
    if title not in rows:
        return f"{title}: never"
    row = rows[title]
    size = f" ({row['size']})" if row["size"] else ""
    return f"{title}{size}: {row['day']} at {row['commit']}: {row['result']} in {row['seconds']} s"


def commit() -> str:
    """Return the commit of the work tree, with "-dirty" after it if a file differs that a run does not write."""
    others = [f":(exclude){path}" for path in WRITTEN]
    head = _git("rev-parse", "--short", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", *others)
    return f"{head or 'unknown'}{'-dirty' if changed else ''}"


def _git(*words: str) -> str:
    return subprocess.run(("git", *words), cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
