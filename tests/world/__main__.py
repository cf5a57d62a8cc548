"""`python -m tests.world --worlds 1000 --seed 0`: live many worlds, and print the broken laws of each.

`--seed 38 --worlds 1 --trace` prints all that happens in one. `--mutants` plants one fault after another in the product:
each must break a law.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import time

from tests.world.mutants import MUTANTS, WORLDS, plant

MOST_SECONDS = 900


def live(seeds: range, *, trace: bool, stop: bool) -> int:
    """Live these worlds, and return how many are broken. With `stop`, at most one."""
    from tests.world.run import lived  # after a fault was planted

    broken, all_of_it = 0, hashlib.sha256()
    for seed in seeds:
        found = lived(seed, trace=trace)
        all_of_it.update(found.digest.encode())
        if trace:
            print("\n".join(found.lines))
        if found.broken:
            broken += 1
            print(f"world {seed}: {found.broken[0]}", flush=True)
            if stop:
                break
    print(f"digest {all_of_it.hexdigest()[:16]}")
    return broken


def try_mutants() -> int:
    """Plant each fault in a process of its own, and return how many no law has noticed."""
    missed = 0
    for name in MUTANTS:
        command = [sys.executable, "-m", "tests.world", "--mutant", name, "--worlds", str(WORLDS)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=MOST_SECONDS)
        missed += done.returncode != 1
        lines = (done.stdout + done.stderr).splitlines()
        print(f"{name}: {next((line for line in lines if line.startswith('world ')), 'NOT NOTICED')}", flush=True)
    print(f"{len(MUTANTS) - missed} of {len(MUTANTS)}")
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.world")
    parser.add_argument("--worlds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="the first world")
    parser.add_argument("--trace", action="store_true", help="print all that happens")
    parser.add_argument("--mutant", choices=MUTANTS, help="plant this fault, and stop at the first broken law")
    parser.add_argument("--mutants", action="store_true", help="plant all faults, one after another")
    given = parser.parse_args()
    if given.mutants:
        return 1 if try_mutants() else 0
    if given.mutant:
        plant(given.mutant)
    began = time.process_time()
    broken = live(range(given.seed, given.seed + given.worlds), trace=given.trace, stop=bool(given.mutant))
    rate = given.worlds * 60 / (time.process_time() - began)
    print(f"{given.worlds} worlds, {broken} broken, {rate:.0f} a minute of CPU time")
    return 1 if broken else 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is part of a world
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.world", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    sys.exit(main())
