"""Keep queues as rows of a shared store: keyed names, sealed events, and the statements on them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Final

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import to_its_end
from oauthbroker.records import AgentEvent
from oauthbroker.repository.repository import Repository
from oauthbroker.repository.versioned import UNREADABLE
from oauthbroker.store.postgres.postgres_store import PostgresStore
from oauthbroker.store.postgres.queue_statements import STATEMENTS

DAMAGED: Final = "damaged-"  # begins the id of a dead letter whose own id cannot be read


class QueueRows:
    """The rows of all queues. Every method may raise `BrokerError` with a store code."""

    def __init__(self, repository: Repository) -> None:
        store: object = repository.shared
        if not isinstance(store, PostgresStore):
            raise TypeError("rows of queues are in a PostgreSQL database")
        self._store, self.feed = store, store.feed

    async def read(self, statement: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        return await self._store.connections.read(STATEMENTS[statement], values)

    async def change(self, statement: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Run a change to its end. A caller that is cancelled gets no answer, and the change is made."""
        work = self._store.connections.write(STATEMENTS[statement], values)
        return await to_its_end(asyncio.ensure_future(work))

    def agent(self, agent: str) -> bytes:
        return bytes.fromhex(self._store.keyring.ring.name("queues", agent))

    def name(self, event_id: str) -> bytes:
        if event_id.startswith(DAMAGED):
            with suppress(ValueError):
                return bytes.fromhex(event_id.removeprefix(DAMAGED))
        return bytes.fromhex(self._store.keyring.ring.name("events", event_id))

    def mac(self, lease: str) -> bytes:
        return self._store.mac("queue lease", lease)[:16]

    def place(self, agent: str, event_id: str, lease: str | None = None) -> dict[str, Any]:
        """Return the values that name an event, and its lease."""
        hashed = self.mac(lease) if lease is not None else None
        return {"agent": self.agent(agent), "id": self.name(event_id), "lease": hashed}

    def sealed(self, event: AgentEvent) -> dict[str, Any]:
        """Return the values of an event's address and record, and the epoch that it is sealed in."""
        ring, name = self._store.keyring.ring, self.name(event.id).hex()
        address = bytes.fromhex(ring.name("queues", "address", *event.target.address))
        return {
            "address": address,
            "record": ring.seal("events", name, 1, event.to_plaintext()),
            "epoch": ring.epoch,
        }

    @property
    def epoch(self) -> int:
        return self._store.keyring.ring.epoch

    async def follow_keyring(self) -> None:
        """Look after a break of the contact whether another seed is active now."""
        await self._store.follow_keyring()

    async def adopt_newest(self) -> None:
        """Seal with the seed that is active now."""
        await self._store.adopt_newest()

    async def opened(self, name: bytes, record: bytes) -> AgentEvent | None:
        """Return the event; None if it is damaged. With an unknown seed it is read again: another process has made the
        seed, or has sealed the row anew and destroyed the seed."""
        for is_first in (True, False):
            try:
                return AgentEvent.from_plaintext(self._store.keyring.ring.unseal("events", name.hex(), record)[1])
            except BrokerError as error:
                if error.code not in UNREADABLE:
                    raise
                if error.code is not Code.KEY_UNKNOWN or not is_first:
                    return None
            await self._store.adopt_newest()
            record = next((newest for (newest,) in await self.read("record", {"id": name})), record)
        return None
