"""The record of the proof: when each long form last ran whole, at which commit, and how that ended (proof_record.json)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TypedDict

ROOT = Path(__file__).parents[2]
RECORD = Path(__file__).with_name("proof_record.json")


class Run(TypedDict):
    day: str
    commit: str
    result: str
    seconds: int
    figures: str


def ran(result: str, seconds: float, figures: str) -> Run:
    """Return the row of a run that ended now."""
    day = f"{datetime.now(UTC):%Y-%m-%d}"
    return Run(day=day, commit=commit(), result=result, seconds=round(seconds), figures=figures)


def runs() -> dict[str, Run]:
    found: dict[str, Run] = json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {}
    return found


def note(new: Mapping[str, Run]) -> None:
    RECORD.write_text(json.dumps(dict(sorted((runs() | dict(new)).items())), indent=2) + "\n", "utf-8")


def last_run(title: str, rows: Mapping[str, Run]) -> str:
    """Return a line: when this last ran whole, and how that ended."""
    if title not in rows:
        return f"{title}: never"
    row = rows[title]
    return f"{title}: {row['day']} at {row['commit']}: {row['result']} in {row['seconds']} s"


def commit() -> str:
    git = ("git", "describe", "--always", "--dirty")
    return subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
