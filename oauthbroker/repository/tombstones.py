"""Tombstones of turns, API keys and visits: entries of a kind of their own, which no copy of a record overwrites."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from oauthbroker.clock import Clock
from oauthbroker.errors import BrokerError, Code
from oauthbroker.records.tombstone import Tombstone
from oauthbroker.store.port import Conflict, Entry, Key, Store

KIND = "tombstones"
SWEEP_SECONDS = 600.0
Damage = Callable[[str, Code], None]


class Tombstones:
    """Each is filed under the name of its record. Every method may raise `BrokerError` with a store code."""

    def __init__(self, store: Store, on_damage: Damage) -> None:
        self._store = store
        self._on_damage = on_damage
        self._swept: float | None = None

    async def of(self, key: Key) -> Tombstone | None:
        """The tombstone of the record under `key`. Raises `recordCorrupt` and the like for one that cannot be read."""
        entry = await self._store.get(_place(key))
        return None if entry is None else _opened(entry)

    async def bury(self, key: Key, tombstone: Tombstone) -> None:
        """Keeps it durably. Where there is one, the earlier end counts, and it stays as long as either; a damaged one
        is replaced."""
        for _ in range(16):
            there, generation = await self._there(_place(key))
            made = tombstone if there is None else tombstone.and_also(there)
            with suppress(Conflict):
                await self._store.put(_place(key), made.to_plaintext(), expect=generation)
                return
        raise BrokerError(Code.STORE_LOCKED)

    async def _there(self, place: Key) -> tuple[Tombstone | None, int]:
        """The tombstone, None for none that can be read, and the generation that the next version follows."""
        generation = 0  # that of a record whose seal is broken
        try:
            entry = await self._store.get(place)
            generation = entry.generation if entry is not None else 0
            return (None if entry is None else _opened(entry)), generation
        except BrokerError as error:
            if error.code is not Code.RECORD_CORRUPT:
                raise
            self._on_damage(KIND, error.code)
        return None, generation

    async def sweep(self, clock: Clock) -> int:
        """Removes those whose record would have ended by now; how many. Looks once in a while, however often it is
        called."""
        if self._swept is not None and clock.monotonic() - self._swept < SWEEP_SECONDS:
            return 0
        self._swept, now, gone, failed = clock.monotonic(), clock.now(), 0, None
        async for entry in self._store.scan(KIND):
            try:
                over = _opened(entry).is_over(now)
            except BrokerError as error:
                self._on_damage(KIND, error.code)
                continue
            try:
                if over:
                    await self._store.delete(entry.key, expect=entry.generation)
                    gone += 1
            except Conflict:
                continue
            except BrokerError as error:  # it keeps no other one
                failed = error
        if failed is not None:
            raise failed
        return gone


def _place(key: Key) -> Key:
    return Key(KIND, key.name)


def _opened(entry: Entry) -> Tombstone:
    found: Tombstone | None = None
    with suppress(BrokerError, ValueError, LookupError, TypeError, AttributeError):
        found = Tombstone.from_plaintext(entry.body)
    if found is None:
        raise BrokerError(Code.RECORD_CORRUPT, note="tombstones: not a record of this schema")
    return found
