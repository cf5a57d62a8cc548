"""Read entries page by page, in an order that an index keeps: one short statement a page, for a table of any size."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from oauthbroker.store.format.port import Entry, Key, Tag
from oauthbroker.store.postgres import entry_statements as statements
from oauthbroker.store.postgres.connection_pool import ConnectionPool

_PAGE: Final = 64  # entries that are read at a time
_BREATH: Final = 8  # entries that are opened, and that the caller works on, before other tasks may run


@dataclass(frozen=True, slots=True)
class EntryPages:
    """`opened` returns the entry of a row, or None for one that cannot be read."""

    connections: ConnectionPool
    opened: Callable[[Key, Sequence[Any]], Awaitable[Entry | None]]

    async def of_kind(
        self, kind: str, after: str, limit: int | None, skip: Callable[[Key], bool]
    ) -> AsyncIterator[Entry]:
        async for _, entry in self._placed(statements.SCAN, {"kind": kind, "value": b""}, after, limit, skip):
            yield entry

    async def tagged(self, tag: Tag, after: str, limit: int | None) -> AsyncIterator[Entry]:
        values = {"kind": tag.kind, "label": tag.label, "value": bytes.fromhex(tag.value)}
        async for _, entry in self._placed(statements.FIND, values, after, limit):
            yield entry

    def labelled(self, kind: str, label: str, after: str, limit: int | None) -> AsyncIterator[tuple[str, Entry]]:
        value, _, name = after.partition(".")
        values = {"kind": kind, "label": label, "value": bytes.fromhex(value)}
        return self._placed(statements.LABELLED, values, name, limit)

    async def _placed(
        self,
        statement: str,
        values: dict[str, Any],
        after: str,
        limit: int | None,
        skip: Callable[[Key], bool] = lambda _: False,
    ) -> AsyncIterator[tuple[str, Entry]]:
        """Yield entries after their places. A page begins after the last place of the page before."""
        value, name, left = values["value"], bytes.fromhex(after), inf if limit is None else limit
        while left > 0:
            rows = await self.connections.read(statement, {**values, "value": value, "after": name, "limit": _PAGE})
            for number, (value, name, *row) in enumerate(rows):
                if number and number % _BREATH == 0:
                    await asyncio.sleep(0)
                key = Key(values["kind"], name.hex())
                if left and not skip(key) and (entry := await self.opened(key, row)) is not None:
                    yield f"{value.hex()}.{key.name}", entry
                    left -= 1
            if len(rows) < _PAGE:
                return
