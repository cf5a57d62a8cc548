"""A process that locks the files it is given, as a broker that works on them would, and keeps them until it is killed."""

from __future__ import annotations

import fcntl
import os
import sys


def main(paths: list[str]) -> None:
    for path in paths:
        fcntl.flock(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), fcntl.LOCK_EX)
    sys.stdout.write("held\n")
    sys.stdout.flush()
    sys.stdin.readline()


if __name__ == "__main__":
    main(sys.argv[1:])
