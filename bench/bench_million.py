"""What an operator does with 1,000, 10,000 and 100,000 grants, and a million with --long, in files and in PostgreSQL:
lists, searches, doctor, export and reseal. A list has its CPU, the longest turn of the event loop and its memory, a
command the CPU and the memory of its process; the server of the database is not in them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from bench.bench_growth import of
from bench.children import ROOT
from bench.figures import parser, show, show_failure
from bench.filled_stores import URL, make_store
from tests.kit import postgres

PATIENCE = 3600.0
UNITS = {": the loop's longest turn": "ms CPU", ": memory": "MiB", "": "ms CPU"}
COMMANDS = {
    "doctor": ("doctor", "--offline"),
    "grants list": ("grants", "list"),
    "store export": ("store", "export", "{folder}/archive.age", "-r", "{recipient}"),
    "keys rotate": ("keys", "rotate"),
    "keys reseal": ("keys", "reseal"),
    "keys retire": ("keys", "retire", "--yes"),
}
MOST_SYNCED = 10_000  # records that a short run seals anew in files: each one waits for the disk
# A process that starts another one counts as its memory until then: so this one is small.
_SMALL = """
import json, resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([done.returncode, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]))
"""


def measure(place: str, folder: Path, size: int, most_synced: int, url: str = "") -> None:
    make_store(folder, size, url)
    words = [sys.executable, "-m", "bench.operator_reads", str(folder)]
    done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=PATIENCE)
    for what, taken in json.loads(done.stdout).items():
        unit = next(unit for end, unit in UNITS.items() if what.endswith(end))
        show(of(size, f"{place}: {what}"), taken, unit, grants=size)
    recipient = _recipient()
    for name, command in COMMANDS.items():
        row = of(size, f"{place}: {name}")
        if "{recipient}" in command and not recipient:
            show_failure(row, "pyrage is not installed")
        elif name.startswith("keys") and place == "files" and size > most_synced:
            show_failure(row, "not run: it waits for the disk at each record, see the smaller stores")
        else:
            cpu, peak = _run(folder, [word.format(recipient=recipient, folder=folder) for word in command])
            show(row, [cpu], "s CPU", grants=size)
            show(of(size, f"{place}: {name}: memory of the process"), [peak], "MiB", grants=size)


def _recipient() -> str:
    try:
        from pyrage import x25519
    except ImportError:
        return ""
    return str(x25519.Identity.generate().to_public())


def _run(folder: Path, command: list[str]) -> tuple[float, float]:
    """Return the seconds of CPU of a command, and the MiB that it had at most."""
    words = [sys.executable, "-m", "oauthbroker", *command, "--config", str(folder / "config")]
    small = [sys.executable, "-I", "-S", "-c", _SMALL, *words]
    done = subprocess.run(small, capture_output=True, check=True, timeout=PATIENCE)
    code, cpu, peak = json.loads(done.stdout)
    if code:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.decode()[-200:]}")
    return cpu, peak


def main(*, quick: bool, long: bool) -> None:
    sizes = (100, 1_000) if quick else (1_000, 10_000, 100_000)
    most_synced = 1_000_000 if long else MOST_SYNCED
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = None
        if postgres.binaries() is not None:
            server = stack.enter_context(postgres.server("fsync=off", "full_page_writes=off", on_disk=True))
        for size in (*sizes, 1_000_000) if long else sizes:
            measure("files", root / f"files-{size}", size, most_synced)
            if server is None:
                show_failure(of(size, "PostgreSQL: page 1 of the list"), f"this machine lacks {postgres.LACKS}")
                continue
            server.run(f"create database bench_{size}")
            os.environ[URL] = server.url(f"bench_{size}").reveal()
            measure("PostgreSQL", root / f"rows-{size}", size, most_synced, os.environ[URL])


if __name__ == "__main__":
    given = parser().parse_args()
    main(quick=given.quick, long=given.long)
