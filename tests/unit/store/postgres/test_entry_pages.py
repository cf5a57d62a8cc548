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


async def test_others_run_between_a_few_rows() -> None:
    opened = [0]

    async def open_row(key: Key, _row: Sequence[Any]) -> Entry | None:
        opened[-1] += 1
        return Entry(key, 1, b"")

    async def other() -> None:
        while True:
            opened.append(0)
            await asyncio.sleep(0)

    pages = EntryPages(cast("ConnectionPool", Table()), open_row)
    task = asyncio.ensure_future(other())
    found = [entry async for entry in pages.of_kind("grants", "", None, lambda _: False)]
    task.cancel()
    assert ROWS == len(found) == sum(opened)
    assert max(opened) <= MOST_AT_ONCE
