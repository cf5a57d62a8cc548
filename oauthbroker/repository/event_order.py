"""Number events in the order in which they happen, for all processes of a store.

The number of an event is larger than the numbers of all events that were stored before it was taken, also if the clock
was set back. It is the event's time in microseconds, or one more than the last number if that is larger. It is taken
before the event's record is written, in a write of its own. So events of one pair are in order, because the pair's
lease is held, and events of two pairs that are written at the same time may be stored in the other order.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime

from oauthbroker.core.dataclasses import dataclass, replace
from oauthbroker.core.errors import BrokerError
from oauthbroker.records import AgentEvent, codec
from oauthbroker.records.event import microseconds
from oauthbroker.repository.versioned import opened, replaceable, write_over
from oauthbroker.store.format.port import Conflict, Damage, Entry, Key, Store

KIND = "queues"
TRIES = 64  # of a write that other processes overtake


def place(store: Store) -> Key:
    """Return the key of the last number. No agent's queue has it."""
    return store.key(KIND, "", "order")


@dataclass(frozen=True, slots=True)
class _Last:
    """The last number as it is stored. `version` is None for a missing or damaged entry."""

    last: int
    generation: int
    version: Entry | None = None


class EventOrder:
    """The last number, as an entry beside the queues. One durable write for each event, and none for anything else.

    No method raises `BrokerError`: if the entry cannot be read or written, numbers come from this process and the
    event's time, because the place of an event is worth less than the event. `in_outboxes` returns the highest number
    in an outbox; a lost entry is made anew from it.
    """

    def __init__(self, store: Store, on_damage: Damage, in_outboxes: Callable[[], Awaitable[int]]) -> None:
        self._store = store
        self._on_damage = on_damage
        self._in_outboxes = in_outboxes
        self._one_at_a_time = asyncio.Lock()
        self._used = 0
        self._cached: _Last | None = None

    async def next(self, at: datetime) -> int:
        """Return the number of an event that happened at `at`. Call it under the lease of the event's pair."""
        async with self._one_at_a_time:
            return await self._advance(lambda last: max(microseconds(at), last + 1))

    async def numbered(self, event: AgentEvent) -> AgentEvent:
        """Return the event with its number. Call it under the lease of the event's pair."""
        return event if event.order else replace(event, order=await self.next(event.created_at))

    async def newest(self) -> int:
        """Return the last number, 0 if there is none. Costs one stat while it is unchanged. Higher than any number if
        the entry cannot be read."""
        try:
            return (await self._read()).last
        except BrokerError:
            return sys.maxsize

    async def catch_up(self, number: int) -> bool:
        """Raise the last number to `number`, which is in an outbox. Return whether it was lower: then it was lost."""
        async with self._one_at_a_time:
            if number <= await self.newest():
                return False
            await self._advance(lambda last: max(number, last))
        return True

    async def _advance(self, following: Callable[[int], int]) -> int:
        with suppress(BrokerError):
            for _ in range(TRIES):
                with suppress(Conflict):  # another process was first
                    return await self._write(following)
        self._used = following(self._used)
        return self._used

    async def _write(self, following: Callable[[int], int]) -> int:
        read = await self._read()
        last = read.last if read.version is not None else await self._in_outboxes()
        number = following(max(last, self._used))
        body = codec.encode("EventOrder", {"spec": {"last": number}})
        self._cached = None
        version = await write_over(self._store, place(self._store), body, expect=read.generation)
        self._used, self._cached = number, _Last(number, version.generation, version.without_body())
        return number

    async def _read(self) -> _Last:
        cached = self._cached
        if cached is not None and cached.version is not None and self._store.unchanged(cached.version):
            return cached
        entry, generation = await replaceable(self._store, place(self._store), _checked, self._on_damage)
        if entry is None:
            return _Last(0, generation)
        self._cached = _Last(_last_in(entry.body), generation, entry.without_body())
        return self._cached


def _checked(entry: Entry) -> Entry:
    opened(_last_in, entry)
    return entry


def _last_in(body: bytes) -> int:
    return int(codec.decode("EventOrder", body)["spec"]["last"])
