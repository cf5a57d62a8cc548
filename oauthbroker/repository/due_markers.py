"""Keep due markers: they show which records have pending work, so that a relay need not read every record.

A marker holds nothing that its record does not. So a damaged one is replaced, it never blocks a write of its record,
and `Upkeep.repair` adds a missing one. While a grant with pending work is unchanged, neither is opened again: that
costs one stat.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from oauthbroker.core.bounded_cache import Bounded
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.records import Grant, codec
from oauthbroker.repository.versioned import (
    Due,
    DueWork,
    Versioned,
    drop,
    due_in,
    readable,
    readable_records,
    replaceable,
    reported,
    write_over,
)
from oauthbroker.store.format.port import Conflict, Damage, Entry, Key, Store

KIND = "due"
KNOWN = 10_000  # markers that are known to be there


@dataclass(frozen=True, slots=True)
class _Seen:
    """A marker, with the last read version of its grant and that grant's pending work."""

    due: Due
    version: Entry
    pending: DueWork


class Markers:
    """Due markers, stored under the names of their records. Every method may raise `BrokerError` with a store code."""

    def __init__(self, store: Store, on_damage: Damage) -> None:
        self._store = store
        self._on_damage = on_damage
        self._seen: dict[str, _Seen] = {}
        self._marked = Bounded[str, Entry](KNOWN)  # as they were read or written last

    async def mark(self, key: Key, grant: GrantKey) -> bool:
        """Mark a record before it is written, under the pair's lease, so that no relay settles the marker in between.
        False if it is marked already, or if the stored bytes cannot be replaced: the record is written all the same."""
        known, marker = self._marked.get(key.name), Key(KIND, key.name)
        if known is not None and self._store.unchanged(known):
            return False
        with suppress(Conflict), reported(marker, self._on_damage):
            there, generation = await replaceable(self._store, marker, due_in, self._on_damage)
            if there is None:
                body = codec.encode("DueMarker", {"spec": {"kind": key.kind, **grant.to_json()}})
                entry = await write_over(self._store, marker, body, expect=generation)
            else:
                entry = there.marker
            self._marked.keep(key.name, entry.without_body())
            return there is None
        return False

    async def has(self, key: Key) -> bool:
        """Return whether the record has a readable marker."""
        found = await readable(replaceable(self._store, Key(KIND, key.name), due_in, self._on_damage))
        return found is not None and found[0] is not None

    async def unmark(self, key: Key) -> None:
        """Remove the marker of a record that is being deleted. A marker that cannot be removed is harmless."""
        marker = Key(KIND, key.name)
        with reported(marker, self._on_damage):
            await drop(self._store, marker, self._on_damage, due_in)

    async def settle(self, due: Due) -> None:
        """Remove this version of a marker. One that another process removed or rewrote meanwhile is kept."""
        with suppress(Conflict):
            await self._store.delete(due.marker.key, expect=due.marker.generation)

    def note(self, due: Due, grant: Versioned[Grant] | None) -> None:
        """Remember the grant that a marker led to; None if there was none."""
        if grant is not None and grant.record.unfinished:
            self._seen[due.key.name] = _Seen(due, grant.entry.without_body(), DueWork.of(grant.record))
        else:
            self._seen.pop(due.key.name, None)

    async def all(self, rests: Callable[[Due, DueWork], bool]) -> AsyncIterator[Due]:
        """Yield every readable marker. One without pending work is harmless. Markers of grants are skipped if the grant
        is unchanged since it was read and `rests` returns true for its pending work."""
        listed, unchanged = set[str](), list[_Seen]()

        def skip(marker: Key) -> bool:
            listed.add(marker.name)
            seen = self._seen.get(marker.name)
            if seen is None or not self._store.unchanged(seen.version):
                return False
            unchanged.append(seen)
            return True

        async for due in readable_records(self._store.scan(KIND, skip=skip), due_in, self._on_damage):
            yield due
        for name in self._seen.keys() - listed:
            del self._seen[name]
        for seen in unchanged:
            if not rests(seen.due, seen.pending):
                yield seen.due
