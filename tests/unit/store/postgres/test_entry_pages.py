"""Pages of rows: other tasks run between a few of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

from oauthbroker.store.format.port import Entry, Key
from oauthbroker.store.postgres.connection_pool import ConnectionPool
from oauthbroker.store.postgres.entry_pages import EntryPages

ROWS, MOST_AT_ONCE = 100, 8


class Table:
    """Answers with the rows after a name, as the statement does."""

    async def read(self, _statement: str, values: Mapping[str, Any]) -> list[tuple[bytes, bytes]]:
        await asyncio.sleep(0)
        names = [number.to_bytes(32, "big") for number in range(ROWS)]
        return [(b"", name) for name in names if name > values["after"]][: values["limit"]]


class Pages(EntryPages):
    """Lists the rows of the table, and counts those that are opened between two turns of another task."""

    def __init__(self) -> None:
        self.connections = cast("ConnectionPool", Table())
        self.opened = [0]

    def _check_kind(self, kind: str) -> None:
        pass

    async def _found(self, key: Key, row: Sequence[Any]) -> Entry | None:
        self.opened[-1] += 1
        return Entry(key, 1, b"")


async def test_others_run_between_a_few_rows() -> None:
    pages = Pages()

    async def other() -> None:
        while True:
            pages.opened.append(0)
            await asyncio.sleep(0)

    task = asyncio.ensure_future(other())
    found = [entry async for entry in pages.scan("grants")]
    task.cancel()
    assert ROWS == len(found) == sum(pages.opened)
    assert max(pages.opened) <= MOST_AT_ONCE
