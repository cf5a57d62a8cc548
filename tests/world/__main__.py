"""`python -m tests.world --worlds 100 --seed 0`: live many worlds, and print what was broken in which."""

from __future__ import annotations

import argparse
import os
import sys
import time

from tests.world.run import lived


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.world")
    parser.add_argument("--worlds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="the first world")
    parser.add_argument("--trace", action="store_true", help="print all that happens")
    given = parser.parse_args()
    began, broken = time.process_time(), 0
    for seed in range(given.seed, given.seed + given.worlds):
        found = lived(seed, trace=given.trace)
        if given.trace:
            print("\n".join(found.lines))
        if found.broken:
            broken += 1
            print(f"world {seed}: {found.broken[0]}", flush=True)
    seconds = time.process_time() - began
    print(f"{given.worlds} worlds, {broken} broken, {given.worlds * 60 / seconds:.0f} a minute of CPU time")
    return 1 if broken else 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is part of a world
        os.execve(
            sys.executable, [sys.executable, "-m", "tests.world", *sys.argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"}
        )
    sys.exit(main())
