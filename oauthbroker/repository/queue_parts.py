"""Keep the parts of queues as entries: a head for each agent, and segments under their numbers.

All lie in one folder, so that the sync of a later part makes an earlier one durable, too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import AbstractAsyncContextManager

from oauthbroker.core.errors import Code
from oauthbroker.repository import event_order
from oauthbroker.repository.versioned import drop, place, replaceable, write_over
from oauthbroker.store.format.port import Damage, Entry, Key, Store

KIND, LEASE = "queues", "queue"
WAIT_SECONDS = 20.0
HEAD = 0  # the number of a head; segments count from 1


class QueueParts:
    """Every method may raise `BrokerError` with a store code."""

    def __init__(self, store: Store, on_damage: Damage) -> None:
        self._store = store
        self.unchanged = store.unchanged  # whether a version is certainly the newest; costs one stat
        self._on_damage = on_damage

    def lock(self, agent: str) -> AbstractAsyncContextManager[object]:
        """Return the lock of an agent's queue. All changes are made under it."""
        return self._store.lease(self._store.key(LEASE, agent), wait=WAIT_SECONDS)

    def key(self, agent: str, number: int = HEAD) -> Key:
        return self._store.key(KIND, agent, *([str(number)] if number else []))

    async def is_current(self, entry: Entry) -> bool:
        """Return whether the version is the newest, by the word of the store."""
        return self._store.unchanged(entry) or await self._store.is_current(entry)

    async def get(self, agent: str, number: int) -> Entry | None:
        return await self._store.get(self.key(agent, number))

    async def put(self, agent: str, number: int, body: bytes, *, expect: int) -> Entry:
        """Write a part. `expect` is 0 for one that is new or damaged."""
        return await write_over(self._store, self.key(agent, number), body, expect=expect)

    async def drop(self, agent: str, number: int) -> None:
        """Delete a part in any state. Idempotent."""
        await drop(self._store, self.key(agent, number), _reported_before)

    async def generation(self, agent: str, number: int) -> int:
        """Return the generation that a change of the part must expect: 0 if it is missing or damaged."""
        _, found = await replaceable(self._store, self.key(agent, number), lambda entry: entry, _reported_before)
        return found

    def report(self, agent: str, number: int, code: Code) -> None:
        """Report a part that cannot be read."""
        self._on_damage(place(self.key(agent, number)), code)

    def scan(self, known: Collection[Key] = ()) -> AsyncIterator[Entry]:
        """Yield every readable part of every agent but the `known` ones."""
        left_out = {event_order.place(self._store), *known}
        return self._store.scan(KIND, skip=lambda key: key in left_out)

    async def sync(self) -> None:
        """Make earlier writes durable, whose own sync may have failed."""
        await self._store.sync(KIND)


def _reported_before(_place: str, _code: Code) -> None:
    """Say nothing: a queue with a damaged part is rebuilt before the part is changed, and that reports it."""
