"""Another process that writes an audit log: `module:name` of a backend, a folder, who, how many, and how it ends.

Says `wrote <number>` after each entry. `die` ends by SIGKILL after the last entry, else the log is closed.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

from tests.kit.audit import AT, ENTRY


def main(backend: str, folder: str, name: str, count: int, end: str) -> None:
    module, _, attribute = backend.partition(":")
    log = getattr(importlib.import_module(module), attribute)(Path(folder)).open()
    for number in range(count):
        log.write(replace(ENTRY, agent=name, tool=f"Tool/{number}"), AT)
        os.write(1, f"wrote {number}\n".encode())
    if end == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    log.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])
