"""Store tombstones of turns, API keys and browser sessions, as entries of their own that no copy of a record
overwrites."""

from __future__ import annotations

from contextlib import suppress

from oauthbroker.core.clock import CertainTime, Clock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import Pass
from oauthbroker.records.tombstone import Tombstone
from oauthbroker.repository.versioned import Versioned, opened, readable_records, replaceable, write_over
from oauthbroker.store.format.port import Conflict, Damage, Entry, Key, Store

KIND = "tombstones"
SWEEP_SECONDS = 600.0


class Tombstones:
    """Tombstones, stored under the names of their records. Every method may raise `BrokerError` with a store code."""

    def __init__(self, store: Store, on_damage: Damage) -> None:
        self._store = store
        self._on_damage = on_damage
        self._swept: float | None = None
        self._certain: CertainTime | None = None

    async def of(self, key: Key) -> Tombstone | None:
        """Return the tombstone of the record under `key`. Raises `recordCorrupt` and similar codes for an unreadable
        one."""
        entry = await self._store.get(_place(key))
        return None if entry is None else _opened(entry)

    async def write(self, key: Key, tombstone: Tombstone) -> None:
        """Store a tombstone durably. With an existing one, the earlier end and the longer retention are kept; a damaged
        one is replaced."""
        for _ in range(16):
            there, generation = await replaceable(self._store, _place(key), _opened, self._on_damage)
            made = tombstone if there is None else tombstone.and_also(there)
            with suppress(Conflict):
                await write_over(self._store, _place(key), made.to_plaintext(), expect=generation)
                return
        raise BrokerError(Code.STORE_LOCKED)

    async def sweep(self, clock: Clock) -> int:
        """Delete the tombstones whose record would have expired by now; return how many. Runs at most once per
        SWEEP_SECONDS. Goes by certain time, because copies of ended records would be valid again if a clock that was
        set forward is set back."""
        if self._swept is not None and clock.monotonic() - self._swept < SWEEP_SECONDS:
            return 0
        self._certain = self._certain or CertainTime(clock)
        self._swept, now, gone, this_pass = clock.monotonic(), self._certain.now(), 0, Pass()
        found = readable_records(self._store.scan(KIND), _versioned, self._on_damage)
        async for tombstone, entry in found:
            if tombstone.is_over(now):
                with this_pass.entry(), suppress(Conflict):
                    await self._store.delete(entry.key, expect=entry.generation)
                    gone += 1
        this_pass.over()
        return gone


def _place(key: Key) -> Key:
    return Key(KIND, key.name)


def _versioned(entry: Entry) -> Versioned[Tombstone]:
    return Versioned(_opened(entry), entry)


def _opened(entry: Entry) -> Tombstone:
    return opened(Tombstone.from_plaintext, entry)
