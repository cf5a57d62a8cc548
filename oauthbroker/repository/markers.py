"""Due markers: which records have something left to do, so that it is found without reading every record.

A marker holds nothing that its record does not say. So it is replaced when it is damaged, it never keeps its record
from being written, and one that is missing is made again by `Upkeep.mend`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from oauthbroker.errors import BrokerError, Code
from oauthbroker.held import Due, due_in, replaceable
from oauthbroker.records import codec
from oauthbroker.store.port import Conflict, Key, Store

KIND = "due"


class Markers:
    """Each is filed under the name of its record. Every method may raise `BrokerError` with a store code."""

    def __init__(self, store: Store, on_damage: Callable[[str, Code], None]) -> None:
        self._store = store
        self._on_damage = on_damage

    async def mark(self, key: Key, app: str, subject: str) -> bool:
        """Marks a record before it is written, under the pair's lease, so that no relay settles the marker in between.
        False where it is marked, and where what lies there cannot be replaced: the record must not wait for that."""
        marker = Key(KIND, key.name)
        try:
            there, generation = await replaceable(self._store, marker, due_in, self._on_damage)
            if there is None:
                body = codec.encode("DueMarker", {"spec": {"kind": key.kind, "app": app, "subject": subject}})
                await self._store.put(marker, body, expect=generation)
                return True
        except Conflict:
            return False
        except BrokerError as error:
            if error.retryable:
                raise
            self._on_damage(f"{KIND}/{key.name[:8]}", error.code)
        return False

    async def has(self, key: Key) -> bool:
        """Whether the record has a marker that can be read."""
        try:
            there, _ = await replaceable(self._store, Key(KIND, key.name), due_in, self._on_damage)
        except BrokerError as error:
            if error.retryable:
                raise
            there = None
        return there is not None

    async def unmark(self, key: Key) -> None:
        """Removes the marker of a record that goes; one that cannot be removed is harmless."""
        marker = Key(KIND, key.name)
        try:
            _, generation = await replaceable(self._store, marker, due_in, self._on_damage)
            await self._store.delete(marker, expect=generation)
        except Conflict:
            return
        except BrokerError as error:
            if error.retryable:
                raise
            self._on_damage(f"{KIND}/{key.name[:8]}", error.code)

    async def settle(self, due: Due) -> None:
        """Removes this version; one that another process removed or rewrote meanwhile is left alone."""
        with suppress(Conflict):
            await self._store.delete(due.marker.key, expect=due.marker.generation)

    async def all(self) -> AsyncIterator[Due]:
        """Every readable marker. One without a reason is harmless."""
        async for entry in self._store.scan(KIND):
            try:
                due = due_in(entry)
            except BrokerError as error:
                self._on_damage(f"{KIND}/{entry.key.name[:8]}", error.code)
                continue
            yield due
