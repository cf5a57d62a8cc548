"""`python -m tests.world --worlds 1000 --seed 0`: live many worlds, and print the broken laws of each.

`--seed 38 --worlds 1 --trace` prints all that happens in one. `--mutants` first plants one fault after another in the
product: each must break a law. The last lines are its figures.
"""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys
import time
from typing import NamedTuple

from tests.world.mutants import MUTANTS, WORLDS, plant

MOST_SECONDS = 900
WORLDS_A_SWEEP = 2  # their garbage is still in the cache of the processor then


class Told(NamedTuple):
    """What came of so many worlds: how many are broken, how many states the laws looked at and how many laws were
    asked, and the seconds of CPU time."""

    worlds: int
    broken: int
    states: int
    laws: int
    seconds: float


def live(seeds: range, *, trace: bool, stop: bool) -> Told:
    """Live these worlds, and print the broken laws. With `stop`, at most one is broken."""
    from tests.world.run import lived  # after a fault was planted

    gc.disable()  # a world has many cycles, and ends as a whole
    gc.collect()
    gc.freeze()  # what all worlds share is not looked through again
    broken, states, laws, began = 0, 0, set[str](), time.process_time()
    for seed in seeds:
        found = lived(seed, trace=trace)
        states += found.states
        if not seed % WORLDS_A_SWEEP:
            gc.collect()
        laws |= found.laws
        if trace:
            print("\n".join(found.lines))
        if found.broken:
            broken += 1
            for law in dict.fromkeys(found.broken):
                print(f"world {seed}: {law}", flush=True)
            if stop:
                break
    return Told(seed + 1 - seeds.start, broken, states, len(laws), time.process_time() - began)


def try_mutants() -> int:
    """Plant each fault in a process of its own, and return how many no law has noticed."""
    missed = 0
    for name in MUTANTS:
        command = [sys.executable, "-m", "tests.world", "--mutant", name, "--worlds", str(WORLDS)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=MOST_SECONDS)
        missed += done.returncode != 1
        lines = (done.stdout + done.stderr).splitlines()
        print(f"{name}: {next((line for line in lines if line.startswith('world ')), 'NOT NOTICED')}", flush=True)
    return missed


def figures(given: argparse.Namespace, told: Told, missed: int | None) -> str:
    """Return the figures of a run, one in a line."""
    figures = {
        "worlds": told.worlds,
        "seeds": f"{given.seed} to {given.seed + told.worlds - 1}",
        "states": told.states,
        "laws": told.laws,
        **({} if missed is None else {"mutants noticed": f"{len(MUTANTS) - missed} of {len(MUTANTS)}"}),
        "broken": told.broken,
        "worlds a minute of CPU time": round(told.worlds * 60 / told.seconds),
    }
    return "\n".join(f"{name}: {figure}" for name, figure in figures.items())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.world")
    parser.add_argument("--worlds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="the first world")
    parser.add_argument("--trace", action="store_true", help="print all that happens")
    parser.add_argument("--mutant", choices=MUTANTS, help="plant this fault, and stop at the first broken law")
    parser.add_argument("--mutants", action="store_true", help="also plant all faults, one after another")
    given = parser.parse_args()
    if given.mutant:
        plant(given.mutant)
    missed = try_mutants() if given.mutants else None
    told = live(range(given.seed, given.seed + given.worlds), trace=given.trace, stop=bool(given.mutant))
    print(figures(given, told, missed))
    return 1 if told.broken or missed else 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is part of a world
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.world", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    sys.exit(main())
