"""Store the bodies of events, which queues and outboxes name by their ids."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial

from oauthbroker.core.errors import BrokerError
from oauthbroker.records import AgentEvent
from oauthbroker.repository.versioned import UNREADABLE, drop, opened, readable_records, write_over
from oauthbroker.store.format.port import Conflict, Damage, Entry, Store

KIND = "events"
_open: Callable[[Entry], AgentEvent] = partial(opened, AgentEvent.from_plaintext)


class EventRecords:
    """Events by id. Every method may raise `BrokerError` with a store code."""

    def __init__(self, store: Store, on_damage: Damage) -> None:
        self._store = store
        self._on_damage = on_damage

    async def keep(self, event: AgentEvent) -> None:
        """Store the event's body. Idempotent."""
        try:
            await write_over(self._store, self._store.key(KIND, event.id), event.to_plaintext(), expect=0)
        except Conflict:
            await self._store.sync(KIND)

    async def get(self, event_id: str) -> AgentEvent | None:
        entry = await self._store.get(self._store.key(KIND, event_id))
        return None if entry is None else _open(entry)

    def all(self) -> AsyncIterator[AgentEvent]:
        """Yield every readable event, unordered."""
        return readable_records(self._store.scan(KIND), _open, self._on_damage)

    async def drop(self, event_id: str) -> None:
        """Delete the event's body, in any state. Idempotent."""
        key = self._store.key(KIND, event_id)
        try:
            await self._store.delete(key, expect=1)  # a body has one version
        except Conflict:  # it is gone, or damaged
            pass
        except BrokerError as error:
            if error.code not in UNREADABLE:
                raise
        else:
            return
        await drop(self._store, key, self._on_damage)
