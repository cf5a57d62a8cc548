"""Runs every `bench/bench_*.py` in a process of its own, shows the figures, and assesses them by the targets.

Usage: python -m bench.run [--quick] [--long] [name ...], where `store` means bench/bench_store.py. A bench prints one
JSON object a line (`bench/figures.py`); other lines pass through. The figures of one run are kept in
bench/results/<time>.json together with the machine they were taken on; `make performance` makes a page of them.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.figures import Figure, parser
from bench.targets import Results, assessed

HERE = Path(__file__).parent
LIMIT_SECONDS, LONG_SECONDS = 600, 7200


def figures_of(script: Path, words: list[str], limit: float) -> tuple[list[Figure], int]:
    """Return what one bench measured, and its exit code. Its other output is shown as it comes."""
    figures: list[Figure] = []
    command = [sys.executable, "-m", f"bench.{script.stem}", *words]
    with subprocess.Popen(command, cwd=HERE.parent, stdout=subprocess.PIPE, text=True) as process:
        patience = threading.Timer(limit, process.kill)
        patience.start()
        for line in process.stdout or ():
            figure = as_figure(line)
            if figure is None:
                print(line, end="", flush=True)
            else:
                figures.append(figure)
                print(as_row(figure), flush=True)
        patience.cancel()
    return figures, process.returncode


def as_figure(line: str) -> Figure | None:
    """Return the figure a line holds, if it holds one."""
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) and {"name", "value", "unit"} <= value.keys() else None


def as_row(figure: Figure) -> str:
    if figure["value"] is None:
        return f"  {figure['name']:<52} NOT MEASURED: {figure.get('failed', '')}"
    spread = f"({figure['low']:,}..{figure['high']:,})" if "low" in figure and figure.get("rounds", 1) > 1 else ""
    ratios = "  ".join(f"{each['ratio']} of {name}" for name, each in figure.get("beside", {}).items())
    return f"  {figure['name']:<52} {figure['value']:>12,} {figure['unit']:<10} {spread:<22} {ratios}".rstrip()


def as_assessments(results: Results) -> list[str]:
    """Return a line for each target that this run measured."""
    lines = []
    for target, now in assessed(results):
        if now is not None:
            assessment = "met" if target.met(now[0]) else "NOT MET"
            spread = f"({now[1]:g}..{now[2]:g})"
            lines.append(f"  {target.call:<40} {now[0]:>9.7g} {spread:<18} target {target.goal:<12} {assessment}")
    return lines


def machine() -> dict[str, Any]:
    """Return what a reader must know to compare figures."""
    names = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    memory = [int(line.split()[1]) // 1024 // 1024 for line in _lines("/proc/meminfo") if line.startswith("MemTotal")]
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": names[0] if names else platform.machine(),
        "cores": os.cpu_count(),
        "memoryGiB": memory[0] if memory else None,
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text("utf-8").splitlines()
    except OSError:
        return []


def keep(path: Path, run: dict[str, Any]) -> None:
    """Write what there is so far: a run that is interrupted keeps its figures."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(run, indent=1), "utf-8")


def main() -> int:
    options = parser()
    options.add_argument("names", nargs="*", help="benches to run; all when none is named")
    given = options.parse_args()
    scripts = {path.stem.removeprefix("bench_"): path for path in sorted(HERE.glob("bench_*.py"))}
    if unknown := set(given.names) - scripts.keys():
        options.error(f"no such bench: {', '.join(sorted(unknown))}; there are: {', '.join(scripts) or 'none'}")

    words = [f"--{name}" for name in ("quick", "long") if getattr(given, name)]
    results, failed, taken = dict[str, list[Figure]](), list[str](), datetime.now(UTC)
    about = {"at": taken.isoformat(timespec="seconds"), "quick": given.quick, "load": round(os.getloadavg()[0], 2)}
    kept = HERE / "results" / f"{taken:%Y%m%dT%H%M%SZ}.json"
    for name in given.names or scripts:
        print(f"{name}", flush=True)
        began = time.monotonic()
        results[name], code = figures_of(scripts[name], words, LONG_SECONDS if given.long else LIMIT_SECONDS)
        print(f"  {time.monotonic() - began:.0f} s", flush=True)
        if code:
            failed.append(f"{name} (exit {code})")
        keep(kept, {**about, "machine": machine(), "results": results})
    print("\n".join(["targets", *as_assessments(results)]))
    print(f"kept in {kept.relative_to(HERE.parent)}" + (f"; FAILED: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
