"""The side of a child process that measures (`bench/children.py`): answer each line of stdin until it ends."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

Answer = Mapping[str, Any]
Handler = Callable[[Mapping[str, Any]], Awaitable[Answer]]
KIB = 1024


async def answer(handlers: Mapping[str, Handler]) -> None:
    """Run the handler that each request names under `do`. An exception becomes an answer that says so."""
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        request = json.loads(line)
        try:
            found = await handlers[request["do"]](request)
        except Exception as problem:  # noqa: BLE001  (the parent prints a row that says so)
            found = {"failed": f"{type(problem).__name__}: {problem}"[:200]}
        print(json.dumps(found), flush=True)


def memory_mib() -> float:
    """Return the resident memory of this process, in MiB."""
    pages = int(open("/proc/self/statm").read().split()[1])  # noqa: SIM115, PTH123  (no pathlib in a small process)
    return pages * os.sysconf("SC_PAGE_SIZE") / KIB / KIB
