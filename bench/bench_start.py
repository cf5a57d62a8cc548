"""Cold start: how long Python takes to import the parts of oauthbroker, and to the first token; memory when idle.

The files lie in the page cache and their byte code is compiled. Each round starts each program once.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.children import ROOT
from bench.figures import MS, parser, show
from bench.installation import free_port, install

BARE = "python, nothing imported"
PROGRAMS = {
    BARE: ["-c", "pass"],
    "import oauthbroker": ["-c", "import oauthbroker"],
    "import oauthbroker.client": ["-c", "import oauthbroker.client"],
    "oauthbroker --help": ["-m", "oauthbroker", "--help"],
    "import of open_broker": ["-c", "from oauthbroker import open_broker"],
}
FIRST, IDLE = "process start to the first token", "memory of an idle embedded broker"


def started(words: list[str]) -> float:
    """Return the milliseconds of one program from its start to its end."""
    began = time.perf_counter()
    subprocess.run([sys.executable, *words], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - began) * MS


def first_token(folder: Path) -> tuple[float, float]:
    """Return the milliseconds to the first token, and the memory in MiB a second later."""
    began = time.perf_counter()
    words = [sys.executable, "-m", "bench.first_token", str(folder)]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        program.stdout.readline()
        taken = (time.perf_counter() - began) * MS
        memory, problem = program.communicate()
    if program.returncode:
        raise RuntimeError(problem[-500:])
    return taken, float(memory)


def main(*, quick: bool) -> None:
    rounds = 2 if quick else 15
    taken: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for words in PROGRAMS.values():
        started(words)  # compiles, and fills the page cache
    for _ in range(rounds):
        for name, words in PROGRAMS.items():
            taken[name].append(started(words))
    for name, samples in taken.items():
        show(name, samples, "ms", None if name == BARE else {BARE: taken[BARE]})
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(install(Path(name), free_port()))
        found = [first_token(Path(name)) for _ in range(min(rounds, 7))]
    show(FIRST, [milliseconds for milliseconds, _ in found], "ms", {BARE: taken[BARE]})
    show(IDLE, [memory for _, memory in found], "MiB")


if __name__ == "__main__":
    main(quick=parser().parse_args().quick)
