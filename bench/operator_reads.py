"""What an operator reads of a store of grants: python -m bench.operator_reads <folder>. One JSON object of CPU ms.

The first read of each kind is left out: it imports and compiles what the others use.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench.figures import MS
from oauthbroker.core.clock import SystemClock
from oauthbroker.grants.grant_pages import GrantFilter, GrantPages
from oauthbroker.grants.grants import GrantList
from oauthbroker.repository.repository import Repository
from oauthbroker.testing.stores import open_file_store

ROWS = 50


async def cpu_ms(read: Callable[[], Awaitable[object]], times: int = 5) -> list[float]:
    await read()
    taken = []
    for _ in range(times):
        began = time.process_time()
        await read()
        taken.append((time.process_time() - began) * MS)
    return taken


async def main(folder: str) -> None:
    clock, store = SystemClock(), open_file_store(Path(folder))
    pages = GrantPages(GrantList(Repository(store), clock, {}), clock)
    _, after = await pages.page(GrantFilter(), ROWS)

    async def counts() -> None:
        pages.forget()
        await pages.sample()

    reads: dict[str, Callable[[], Awaitable[object]]] = {
        "page 1 of the list": lambda: pages.page(GrantFilter(), ROWS),
        "next page of the list": lambda: pages.page(GrantFilter(after=after), ROWS),
        "search by subject": lambda: pages.page(GrantFilter(subject="idp:user:7"), ROWS),
        "operators' page": lambda: pages.numbered(GrantFilter()),
        "counts by state": counts,
    }
    print(json.dumps({name: await cpu_ms(read) for name, read in reads.items()}))
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
