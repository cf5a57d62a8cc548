"""A process that writes an audit log until it has written enough, or is killed: `folder name count most_bytes tear`.

Says `wrote <number>` after each entry, in one write: a line that was read is an entry that must be there. With `tear` it dies by
SIGKILL in the middle of its last line.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from oauthbroker.audit.file import AuditFile
from tests.kit.audit import AT, ENTRY, KEYS


def tearing(write: Callable[[int, Any], int]) -> Callable[[int, Any], int]:
    def half(descriptor: int, line: Any) -> int:
        write(descriptor, line[: len(line) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    return half


def main(folder: str, name: str, count: int, most_bytes: int, tear: bool) -> None:
    log = AuditFile(Path(folder), KEYS, most_bytes=most_bytes)
    log.take(AT)  # as a broker does at its start
    os.write(1, b"ready\n")
    sys.stdin.readline()
    for number in range(count):
        if tear and number == count - 1:
            os.write = tearing(os.write)
        log.write(replace(ENTRY, agent=name, tool=f"Tool/{number}"), AT)
        os.write(1, f"wrote {number}\n".encode())
    log.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5:] == ["tear"])
