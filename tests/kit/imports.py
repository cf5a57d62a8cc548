"""Count what a program's start loads, with the table of what each may load (imports.json).

Modules are counted and not seconds, so that a busy machine changes nothing. `python -m tests.kit.imports` records
the table anew.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_suffix(".json")
MARGIN = 1.15  # times the recorded number of modules: Python's own differ from version to version
BELOW = 0.6  # a number that fell further has to be recorded, so that it cannot come back
TOKEN = "oabt." + "l" * 22 + "." + "s" * 43

# Each start of a program, as a user of it writes it.
STARTS = {
    "the client": "import oauthbroker.client",
    "a tool's sync client": "from oauthbroker.client import SyncOAuth",
    "a call of the sync client": f"""
from oauthbroker.client import SyncOAuth
SyncOAuth("unix:/nowhere.sock", {TOKEN!r}).pending()""",
    "an async client": f"from oauthbroker.client import OAuth\nOAuth('unix:/nowhere.sock', {TOKEN!r})",
    "--help": "from oauthbroker.cli import run\nrun(['--help'])",
    "an embedded broker": "from oauthbroker import open_broker",
    "an agent's process": "import oauthbroker.tools.orchestration.agent_worker",
    "the parent of serving workers": """
from oauthbroker.config import load
from oauthbroker.serving.listeners import open_listeners
from oauthbroker.workers.parent import Parent""",
    "a reader of a configuration folder": "from oauthbroker.config import load",
}
# The parts of Python that cost most: the first use of an event loop, of TLS, of logging and so on is a choice.
COSTLY = {"asyncio", "ssl", "logging", "http", "email", "inspect", "pathlib", "multiprocessing", "unittest", "ctypes"}
EMPTY = {"backports"}  # httpx2 looks there for zstd: the package of that name, of any other distribution, has no code


def modules_of(start: str) -> list[str]:
    """Return the modules that a start loads."""
    program = f"{start}\nimport sys\nprint()\nprint(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    return ran.stdout.splitlines()[-1].split()


def loaded(start: str) -> tuple[set[str], int]:
    """Return the packages, folders of ours and costly parts of Python that a start loads, and its number of modules."""
    modules = modules_of(start)
    python = (sys.stdlib_module_names - COSTLY) | EMPTY
    names = {".".join(name.split(".")[: 2 if name.startswith("oauthbroker.") else 1]) for name in modules}
    return {name for name in names if not name.startswith("_") and name not in python}, len(modules)


def table() -> dict[str, dict[str, Any]]:
    made: dict[str, dict[str, Any]] = json.loads(TABLE.read_text("utf-8"))
    return made


def complaint(name: str, may: set[str], recorded: int) -> str:
    """Return the fault of a start; empty if it loads only permitted modules, and about as many as before."""
    names, count = loaded(STARTS[name])
    if more := sorted(names - may):
        return f"{name}: loads {', '.join(more)}"
    if not recorded * BELOW <= count <= recorded * MARGIN:
        return f"{name}: {count} modules instead of about {recorded}. If that is meant, `python -m tests.kit.imports` records it."
    return ""


def main() -> None:
    rows: dict[str, Any] = {}
    for name, start in STARTS.items():
        names, count = loaded(start)
        rows[name] = {"modules": count, "loads": sorted(names)}
    TABLE.write_text(json.dumps(rows, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
