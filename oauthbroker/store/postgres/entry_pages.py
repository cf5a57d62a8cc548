"""Read entries page by page, in an order that an index keeps: one short statement a page, for a table of any size."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from math import inf
from typing import Any, Final

from oauthbroker.store.format.port import Entry, Key, Tag
from oauthbroker.store.keys.keyed_store import KeyedStore
from oauthbroker.store.postgres import entry_statements as statements
from oauthbroker.store.postgres.connection_pool import ConnectionPool

_PAGE: Final = 64  # entries that are read at a time
_BREATH: Final = 8  # entries that are opened, and that the caller works on, before other tasks may run


class EntryPages(KeyedStore):
    """The part of a `PostgresStore` that lists entries."""

    connections: ConnectionPool

    async def _found(self, key: Key, row: Sequence[Any]) -> Entry | None:
        """Return the entry of a row, or None for one that cannot be read."""
        raise NotImplementedError

    def scan(
        self, kind: str, *, after: str = "", limit: int | None = None, skip: Callable[[Key], bool] = lambda _: False
    ) -> AsyncIterator[Entry]:
        self._check_kind(kind)
        return _entries(self._placed(statements.SCAN, {"kind": kind, "value": b""}, after, limit, skip))

    def find(
        self, tag: Tag, *, after: str = "", limit: int | None = None, skipped: list[Key] | None = None
    ) -> AsyncIterator[Entry]:
        self._check_kind(tag.kind)
        values = {"kind": tag.kind, "label": tag.label, "value": bytes.fromhex(tag.value)}
        return _entries(self._placed(statements.FIND, values, after, limit, skipped=skipped))

    def labelled(
        self, kind: str, label: str, *, after: str = "", limit: int | None = None
    ) -> AsyncIterator[tuple[str, Entry]]:
        self._check_kind(kind)
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
        skipped: list[Key] | None = None,
    ) -> AsyncIterator[tuple[str, Entry]]:
        """Yield entries after their places. A page begins after the last place of the page before."""
        value, name, left = values["value"], bytes.fromhex(after), inf if limit is None else limit
        while left > 0:
            rows = await self.connections.read(statement, {**values, "value": value, "after": name, "limit": _PAGE})
            for number, (value, name, *row) in enumerate(rows):
                if number and number % _BREATH == 0:
                    await asyncio.sleep(0)
                key = Key(values["kind"], name.hex())
                if not left or skip(key):
                    continue
                if (entry := await self._found(key, row)) is not None:
                    yield f"{value.hex()}.{key.name}", entry
                    left -= 1
                elif skipped is not None:
                    skipped.append(key)
            if len(rows) < _PAGE:
                return


async def _entries(placed: AsyncIterator[tuple[str, Entry]]) -> AsyncIterator[Entry]:
    async for _, entry in placed:
        yield entry
