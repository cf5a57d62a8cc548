"""Runs every `bench/bench_*.py` in a process of its own and shows what they measured.

Usage: python bench/run.py [--quick] [name ...], where `store` means bench/bench_store.py. A bench prints one JSON
object a line, `{"name": ..., "value": ..., "unit": ...}` plus whatever explains the figure; other lines pass through.
The figures of one run are kept in bench/results/<time>.json together with the machine they were taken on.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
Figure = dict[str, Any]


def figures_of(script: Path, *, quick: bool) -> tuple[list[Figure], int]:
    """What one bench measured, and its exit code. Its other output is shown as it comes."""
    command = [sys.executable, str(script), *(["--quick"] if quick else [])]
    figures: list[Figure] = []
    with subprocess.Popen(command, cwd=HERE.parent, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            figure = as_figure(line)
            if figure is None:
                print(line, end="", flush=True)
            else:
                figures.append(figure)
                print(as_row(figure), flush=True)
    return figures, process.returncode


def as_figure(line: str) -> Figure | None:
    """The figure a line holds, if it holds one."""
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) and {"name", "value", "unit"} <= value.keys() else None


def as_row(figure: Figure) -> str:
    value = figure["value"]
    number = f"{value:,.3f}" if isinstance(value, float) else f"{value:,}"
    rest = "  ".join(f"{key}={figure[key]}" for key in figure if key not in {"name", "value", "unit"})
    return f"  {figure['name']:<44} {number:>14} {figure['unit']:<8} {rest}".rstrip()


def machine() -> dict[str, Any]:
    """What a reader must know to compare figures."""
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure oauthbroker.")
    parser.add_argument("names", nargs="*", help="benches to run; all when none is named")
    parser.add_argument("--quick", action="store_true", help="small counts: shows that a bench runs, not what is fast")
    options = parser.parse_args()
    scripts = {path.stem.removeprefix("bench_"): path for path in sorted(HERE.glob("bench_*.py"))}
    if unknown := set(options.names) - scripts.keys():
        parser.error(f"no such bench: {', '.join(sorted(unknown))}; there are: {', '.join(scripts) or 'none'}")

    results: dict[str, list[Figure]] = {}
    failed: list[str] = []
    for name in options.names or scripts:
        print(f"{name}", flush=True)
        results[name], code = figures_of(scripts[name], quick=options.quick)
        if code:
            failed.append(f"{name} (exit {code})")

    taken = datetime.now(UTC)
    kept = HERE / "results" / f"{taken:%Y%m%dT%H%M%SZ}.json"
    kept.parent.mkdir(exist_ok=True)
    kept.write_text(json.dumps({"at": taken.isoformat(), "machine": machine(), "results": results}, indent=2), "utf-8")
    print(f"kept in {kept.relative_to(HERE.parent)}" + (f"; FAILED: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
