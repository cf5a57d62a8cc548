"""Convert records to sealed entries and back. The only writer of OAuth state: no other code puts a record into the
store.

Grants, waiting lists and session endings of one (app, subject) are written under that pair's lease, for all of
its accounts, so that they change together. Plain reads take no lock.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import TypeVar

from oauthbroker.core.errors import BrokerError
from oauthbroker.core.lifecycle import Notifier
from oauthbroker.core.opened_here import OpenedHere
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.records import AuthSession, Grant
from oauthbroker.records.registered_client import RegisteredClient
from oauthbroker.repository.event_order import EventOrder
from oauthbroker.repository.event_records import EventRecords
from oauthbroker.repository.grant_records import GrantRecords
from oauthbroker.repository.plugin_values import PluginValues
from oauthbroker.repository.queue_parts import QueueParts
from oauthbroker.repository.record_store import RecordStore, StoredRecord
from oauthbroker.repository.stored_secrets import StoredSecrets
from oauthbroker.repository.tombstones import KIND as TOMBSTONES
from oauthbroker.repository.tombstones import Tombstones
from oauthbroker.repository.versioned import (
    Due,
    DueWork,
    PendingRevocation,
    Versioned,
    in_place,
    opened,
    place,
    readable,
    readable_records,
)
from oauthbroker.repository.waiting_lists import WaitingList, WaitingLists
from oauthbroker.store.format.port import (
    DEGRADED_SECONDS,
    FEED_SECONDS,
    Conflict,
    Damage,
    Entry,
    Key,
    Lease,
    Leases,
    Reservation,
    SharedStore,
    Store,
    log_damage,
)

__all__ = [
    "DEGRADED_SECONDS", "FEED_SECONDS", "Conflict", "Due", "DueWork", "Entry", "Key", "Lease", "Leases",
    "PendingRevocation", "Repository", "Reservation", "SharedStore", "Versioned",
]  # fmt: skip

KINDS = (
    "grants", "sessions", "waiting", "events", "queues", "secrets", "due", "turns", "apikeys", "browsersessions",
    "uses", "plugins", "clients", TOMBSTONES,
)  # fmt: skip
LEASES_OF_GRANTS = ("pair", "provider")  # all are waited for, so a pass may hold one for a moment
LEASES = (*LEASES_OF_GRANTS, "queue", "plugin", "registration", "forwarding")
PAIR_WAIT_SECONDS = 20.0
WRITABLE_SECONDS = 10.0  # before a provider call, when nothing is lost yet
PROBE_BYTES = 4 * 1024

S = TypeVar("S", bound=StoredRecord)


class Repository(GrantRecords):
    """Typed access to the store, which keeps `kinds`. `shared` is the store if it serves several hosts. Every
    method may raise `BrokerError` with a store code."""

    def __init__(self, store: Store, on_damage: Damage = log_damage, kinds: Collection[str] = KINDS) -> None:
        super().__init__(store, on_damage)
        self.opened_here = OpenedHere()
        self.tombstones = Tombstones(store, on_damage) if TOMBSTONES in kinds else None
        self.queue_parts = QueueParts(store, on_damage)
        self.events = EventRecords(store, on_damage)
        self.secrets = StoredSecrets(store, on_damage)
        self.waiting_lists = WaitingLists(store, on_damage)
        self.event_order = EventOrder(store, on_damage, self._newest_in_outboxes)
        self.plugin_values = PluginValues(store, on_damage)
        self.clients = self.records("clients", RegisteredClient.from_plaintext)

    def pair(self, key: GrantKey, *, wait: float = PAIR_WAIT_SECONDS) -> AbstractAsyncContextManager[Lease]:
        """Return the write lock of all grants of a subject for an app. Never held during a provider call."""
        return self._store.lease(self._store.key("pair", key.app, key.subject), wait=wait)

    def provider_lease(self, key: GrantKey, *, wait: float = PAIR_WAIT_SECONDS) -> AbstractAsyncContextManager[Lease]:
        """Return the lock for a provider call that changes a grant. It blocks no write."""
        return self._store.lease(self._store.key("provider", *key.parts), wait=wait)

    def registration(self, app: str, *, wait: float) -> AbstractAsyncContextManager[Lease]:
        """Return the lock for the requests that register a client for an app."""
        return self._store.lease(self._store.key("registration", app), wait=wait)

    def forwarding(self, agent: str) -> AbstractAsyncContextManager[Lease]:
        """Return the lock for forwarding the events of an agent. Raises `storeLocked` at once if another process has
        it."""
        return self._store.lease(self._store.key("forwarding", agent), wait=0)

    async def check_writable(self, key: GrantKey) -> None:
        """Raise `storeLocked` if another process keeps all writers from a pair's grant. Use it before a provider call
        whose outcome must be stored: a stopped process keeps its locks."""
        async with self.pair(key, wait=WRITABLE_SECONDS):
            await self._store.check_writable(self.grant_place(key))

    async def tidy(self) -> None:
        """Remove what free leases of grants have left: a file for each, in a store in files."""
        await self._store.tidy(LEASES_OF_GRANTS)

    @property
    def back(self) -> Notifier:
        """Notifies when the store is back after it was away."""
        return self._store.back

    async def history(self) -> str:
        """Return the name of the store's history. Another one than before: the store may have lost its last writes."""
        return await self._store.history()

    @property
    def degraded(self) -> bool:
        """Whether the shared store was away a moment ago, and versions were confirmed without it."""
        return self.shared is not None and self.shared.degraded

    def may_degrade(self) -> bool:
        """Return whether versions would be confirmed without the shared store if it were away now."""
        return self.shared is not None and self.shared.may_degrade

    # sessions

    def session_key(self, locator: str) -> Key:
        return self._store.key("sessions", locator)

    async def session(self, locator: str) -> Versioned[AuthSession] | None:
        entry = await self._store.get(self.session_key(locator))
        return None if entry is None else self._open_session(entry, locator)

    async def save_session(self, session: AuthSession, *, expect: int) -> Versioned[AuthSession]:
        """Write a session durably. Its event is numbered, and one with an event is marked as due first, under the
        pair's lease."""
        key = self.session_key(session.locator)
        if session.outbox is not None:
            session = replace(session, outbox=await self.event_order.numbered(session.outbox))
            await self.markers.mark(key, session.key)
        return Versioned(session, await self._store.put(key, session.to_plaintext(), expect=expect))

    async def drop_session(self, versioned: Versioned[AuthSession]) -> None:
        await self._store.delete(versioned.entry.key, expect=versioned.generation)

    async def erase_session(self, versioned: Versioned[AuthSession]) -> None:
        """Remove a session with its marker, under the pair's lease."""
        await self.markers.unmark(versioned.entry.key)
        await self.drop_session(versioned)

    def sessions(self) -> AsyncIterator[Versioned[AuthSession]]:
        """Yield every readable session. A damaged one hides no other."""
        return readable_records(self._store.scan("sessions"), self._open_session, self._on_damage)

    def _open_session(self, entry: Entry, locator: str | None = None) -> Versioned[AuthSession]:
        """Parse a session, and check that it is in its place. An entry that was read as that of a locator has its
        key."""
        session = opened(AuthSession.from_plaintext, entry)
        if session.locator != locator:
            in_place(entry, self.session_key(session.locator))
        return Versioned(session, entry)

    async def waiting(self, app: str, subject: str) -> list[Versioned[AuthSession]]:
        """Return the open sessions of a subject for an app, of all its accounts, oldest first."""
        return (await self.waiting_list(app, subject))[1]

    async def waiting_list(
        self, app: str, subject: str, but: Collection[str] = ()
    ) -> tuple[WaitingList, list[Versioned[AuthSession]]]:
        """Return a waiting list and its open sessions, oldest first, but those of some locators. Unreadable ones are
        left out: no user can complete them."""
        listed, found = await self.waiting_lists.of(app, subject), []
        for locator in listed.locators:
            if locator in but:
                continue
            try:
                versioned = await self.session(locator)
            except BrokerError as error:
                if error.code.retryable:
                    raise
                self._on_damage(place(self.session_key(locator)), error.code)
                continue
            if versioned is not None and versioned.record.open:
                found.append(versioned)
        return listed, found

    async def forget_waiting(self, app: str, subject: str, gone: Collection[str] = ()) -> None:
        """Keep only open sessions on a pair's waiting list, and none of `gone`. The caller holds the pair's lease."""
        listed, waiting = await self.waiting_list(app, subject, but=gone)
        await self.waiting_lists.save(listed, [versioned.record.locator for versioned in waiting])

    # pending work

    async def due(self, rests: Callable[[Due, DueWork], bool] = lambda _due, _pending: False) -> list[Due]:
        """Return every record marked as due. A stale marker is harmless. A grant that `due_grant` has read is skipped
        while it is unchanged and `rests` returns true for its pending work."""
        return [due async for due in self.markers.all(rests)]

    async def due_grant(self, due: Due) -> Versioned[Grant] | None:
        entry = await self._store.get(due.key) if due.key.kind == "grants" else None
        versioned = None if entry is None else self._open_grant(entry)
        self.markers.note(due, versioned)
        return versioned

    async def due_session(self, due: Due) -> Versioned[AuthSession] | None:
        entry = await self._store.get(due.key) if due.key.kind == "sessions" else None
        return None if entry is None else self._open_session(entry)

    async def _newest_in_outboxes(self) -> int:
        """Return the highest number of an event that has not reached its queue; 0 if there is none."""
        newest = 0
        for due in await self.due():
            grant, session = await readable(self.due_grant(due)), await readable(self.due_session(due))
            events = grant.record.outbox if grant is not None else ()
            outbox = session.record.outbox if session is not None else None
            newest = max([newest, *(event.order for event in (*events, outbox) if event is not None)])
        return newest

    # records with a locator of their own

    def records(self, kind: str, read: Callable[[bytes], S]) -> RecordStore[S]:
        return RecordStore(
            store=self._store, kind=kind, read=read, on_damage=self._on_damage, tombstones=self.tombstones
        )

    async def sync(self, *kinds: str) -> None:
        """Make earlier writes of a kind durable before an answer relies on them: the sync after the write may have
        failed, here or in another process."""
        for kind in kinds:
            await self._store.sync(kind)

    async def probe(self) -> None:
        """Reserve and release space, and read. Raises their errors. Writes nothing."""
        key = self._store.key("grants", "probe")
        async with self._store.reserve(key, PROBE_BYTES):
            await self._store.get(key)

    async def close(self) -> None:
        self.opened_here.end()
        self._cache.clear()
        await self._store.close()
