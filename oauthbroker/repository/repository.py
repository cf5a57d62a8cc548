"""Records <-> sealed entries. The single writer of OAuth state: nothing else puts a record into the store.

Grants, waiting lists and session endings of one (app, subject) are written under that pair's lease, so that they
change together; plain reads take no lock.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AbstractAsyncContextManager, suppress
from typing import TypeVar

from oauthbroker.errors import BrokerError, Code
from oauthbroker.held import Due, GrantCache, Held, in_place, opened, replaceable, secret_in, waiting_in
from oauthbroker.markers import Markers
from oauthbroker.records import AgentEvent, AuthSession, Grant, codec
from oauthbroker.secret import Secret
from oauthbroker.shelf import Shelf, Shelved
from oauthbroker.store.port import Conflict, Entry, Key, Room, Store
from oauthbroker.tombstones import KIND as TOMBSTONES
from oauthbroker.tombstones import Tombstones

__all__ = ["Conflict", "Due", "Entry", "Held", "Key", "Repository", "Room"]

KINDS = (
    "grants", "sessions", "waiting", "events", "queues", "secrets", "due", "turns", "apikeys", "visits", "uses",
    TOMBSTONES,
)  # fmt: skip
LEASES = ("pair", "flight", "queue")
PAIR_WAIT_SECONDS = 20.0
MEND_WAIT_SECONDS = 1.0
ANSWER_BYTES = 64 * 1024
PROBE_BYTES = 4 * 1024

R = TypeVar("R")
S = TypeVar("S", bound=Shelved)
Damage = Callable[[str, Code], None]

_log = logging.getLogger("oauthbroker.repository")


def _log_damage(place: str, code: Code) -> None:
    _log.warning("unreadable record %s: %s", place, code.value)


class Repository:
    """Typed access to the store, which keeps `kinds`. Every method may raise `BrokerError` with a store code."""

    def __init__(self, store: Store, on_damage: Damage = _log_damage, kinds: Collection[str] = KINDS) -> None:
        self._store = store
        self._on_damage = on_damage
        self.tombstones = Tombstones(store, on_damage) if TOMBSTONES in kinds else None
        self._markers = Markers(store, on_damage)
        self._cache = GrantCache()

    def pair(self, app: str, subject: str, *, wait: float = PAIR_WAIT_SECONDS) -> AbstractAsyncContextManager[None]:
        """The write lock of one (app, subject). Never held while a provider is called."""
        return self._store.lease(self._store.key("pair", app, subject), wait=wait)

    def flight(self, app: str, subject: str, *, wait: float = PAIR_WAIT_SECONDS) -> AbstractAsyncContextManager[None]:
        """Held while a provider is asked to change a grant; it never blocks a write."""
        return self._store.lease(self._store.key("flight", app, subject), wait=wait)

    # grants

    def grant_key(self, app: str, subject: str) -> Key:
        return self._store.key("grants", app, subject)

    def warm_grant(self, app: str, subject: str) -> Held[Grant] | None:
        """The cached grant if it is surely still the newest; costs one stat."""
        held = self._cache.get((app, subject))
        return held if held is not None and self._store.unchanged(held.entry) else None

    async def grant(self, app: str, subject: str) -> Held[Grant] | None:
        """The newest grant of the pair, tombstones included."""
        held = self.warm_grant(app, subject)
        if held is not None:
            return held
        key = self.grant_key(app, subject)
        try:
            entry = await self._store.get(key)
        except BrokerError as error:
            if error.code is not Code.RECORD_CORRUPT:
                raise
            entry = None  # the store has kept its bytes aside and lets a new one be written: connect again
            self._on_damage(f"grants/{key.name[:8]}", error.code)
        return None if entry is None else self._cache.keep(self._open_grant(entry))

    def room_for(self, grant: Grant) -> AbstractAsyncContextManager[Room]:
        """Disk space for the grant's next version, whatever a provider's answer may add to it."""
        return self._store.reserve(self.grant_key(grant.app, grant.subject), len(grant.to_plaintext()) + ANSWER_BYTES)

    def room_for_first(self, app: str, subject: str) -> AbstractAsyncContextManager[Room]:
        """The same for a pair that has no grant yet."""
        return self._store.reserve(self.grant_key(app, subject), ANSWER_BYTES)

    async def save_grant(self, grant: Grant, *, expect: int, room: Room | None = None) -> Held[Grant]:
        """Writes durably, under the pair's lease. A grant with something left to do is marked due first."""
        key = self.grant_key(grant.app, grant.subject)
        if grant.unfinished:
            await self._markers.mark(key, grant.app, grant.subject)
        try:
            entry = await self._store.put(key, grant.to_plaintext(), expect=expect, room=room)
        except Conflict:
            self._cache.drop(grant.app, grant.subject)  # what was read there is older than it seemed
            raise
        return self._cache.keep(Held(grant, entry))

    async def erase_grant(self, held: Held[Grant]) -> None:
        """Remove a grant with its marker, under the pair's lease: its tombstone too."""
        await self._markers.unmark(held.entry.key)
        await self._store.delete(held.entry.key, expect=held.generation)

    async def grants(self) -> AsyncIterator[Held[Grant]]:
        """Every readable grant; a damaged one never hides the others."""
        async for held in self._readable("grants", self._open_grant):
            yield held

    async def _readable(self, kind: str, read: Callable[[Entry], R]) -> AsyncIterator[R]:
        """What can be read of a kind; what cannot (another version's schema, say) is reported and left alone."""
        async for entry in self._store.scan(kind):
            try:
                record = read(entry)
            except BrokerError as error:
                self._on_damage(f"{kind}/{entry.key.name[:8]}", error.code)
                continue
            yield record

    def _open_grant(self, entry: Entry) -> Held[Grant]:
        grant = opened(Grant.from_plaintext, entry)
        in_place(entry, self.grant_key(grant.app, grant.subject))
        return Held(grant, entry)

    # sessions and who waits

    def session_key(self, locator: str) -> Key:
        return self._store.key("sessions", locator)

    async def session(self, locator: str) -> Held[AuthSession] | None:
        entry = await self._store.get(self.session_key(locator))
        return None if entry is None else self._open_session(entry)

    async def save_session(self, session: AuthSession, *, expect: int) -> Held[AuthSession]:
        """Writes durably; a session with an event of its own is marked due first (then under the pair's lease)."""
        key = self.session_key(session.locator)
        if session.outbox is not None:
            await self._markers.mark(key, session.app, session.subject)
        return Held(session, await self._store.put(key, session.to_plaintext(), expect=expect))

    async def drop_session(self, held: Held[AuthSession]) -> None:
        await self._store.delete(held.entry.key, expect=held.generation)

    async def erase_session(self, held: Held[AuthSession]) -> None:
        """Remove a session with its marker, under the pair's lease."""
        await self._markers.unmark(held.entry.key)
        await self.drop_session(held)

    async def sessions(self) -> AsyncIterator[Held[AuthSession]]:
        """Every readable session; a damaged one never hides the others."""
        async for held in self._readable("sessions", self._open_session):
            yield held

    def _open_session(self, entry: Entry) -> Held[AuthSession]:
        session = opened(AuthSession.from_plaintext, entry)
        in_place(entry, self.session_key(session.locator))
        return Held(session, entry)

    async def waiting(self, app: str, subject: str) -> list[Held[AuthSession]]:
        """The open sessions of a pair, oldest first. One that cannot be read is nobody's way in any more."""
        found = []
        for locator in (await self._waiting(app, subject))[0]:
            try:
                held = await self.session(locator)
            except BrokerError as error:
                if error.retryable:
                    raise
                self._on_damage(f"sessions/{self.session_key(locator).name[:8]}", error.code)
                continue
            if held is not None and held.record.open:
                found.append(held)
        return found

    async def save_waiting(self, app: str, subject: str, locators: list[str]) -> None:
        """Replaces the list, under the pair's lease; an empty one leaves nothing behind."""
        before, generation = await self._waiting(app, subject)
        if before == locators:
            return
        key = self._store.key("waiting", app, subject)
        if not locators:
            await self._store.delete(key, expect=generation)
            return
        body = codec.encode("WaitingList", {"spec": {"app": app, "subject": subject, "sessions": locators}})
        await self._store.put(key, body, expect=generation)

    def _open_waiting(self, entry: Entry) -> list[str]:
        app, subject, locators = opened(waiting_in, entry)
        in_place(entry, self._store.key("waiting", app, subject))
        return locators

    async def _waiting(self, app: str, subject: str) -> tuple[list[str], int]:
        """(locators, generation). A damaged list starts anew: its sessions end by themselves."""
        key = self._store.key("waiting", app, subject)
        found, generation = await replaceable(self._store, key, self._open_waiting, self._on_damage)
        return found or [], generation

    # what is left to do

    async def due(self) -> list[Due]:
        """Every record that says it has something left to do. A stale marker is harmless."""
        return [due async for due in self._markers.all()]

    async def mend_grant(self, seen: Held[Grant]) -> bool:
        """Marks a grant that has something left to do and no marker. False where it is marked, or done by now."""
        app, subject = seen.record.app, seen.record.subject
        async with self.pair(app, subject, wait=MEND_WAIT_SECONDS):
            held = await self.grant(app, subject)
            left = held is not None and held.record.unfinished
            return left and await self._markers.mark(seen.entry.key, app, subject)

    async def mend_session(self, seen: Held[AuthSession]) -> bool:
        """The same for a session with an event of its own."""
        app, subject = seen.record.app, seen.record.subject
        async with self.pair(app, subject, wait=MEND_WAIT_SECONDS):
            held = await self.session(seen.record.locator)
            left = held is not None and held.record.outbox is not None
            return left and await self._markers.mark(seen.entry.key, app, subject)

    async def marked(self, key: Key) -> bool:
        """Whether a readable marker is there. Takes no lease."""
        return await self._markers.has(key)

    def unchanged(self, entry: Entry) -> bool:
        """Whether that is surely still the newest version of its record; costs one stat."""
        return self._store.unchanged(entry)

    async def due_grant(self, due: Due) -> Held[Grant] | None:
        entry = await self._store.get(due.key) if due.key.kind == "grants" else None
        return None if entry is None else self._open_grant(entry)

    async def due_session(self, due: Due) -> Held[AuthSession] | None:
        entry = await self._store.get(due.key) if due.key.kind == "sessions" else None
        return None if entry is None else self._open_session(entry)

    async def settle(self, due: Due) -> None:
        """Nothing is left to do; under the pair's lease."""
        await self._markers.settle(due)

    async def _forget(self, entry: Entry) -> None:
        """Removes this version; one that somebody removed or rewrote meanwhile is his."""
        with suppress(Conflict):
            await self._store.delete(entry.key, expect=entry.generation)

    # queues and events

    def queue_lock(self, agent: str) -> AbstractAsyncContextManager[None]:
        return self._store.lease(self._store.key("queue", agent), wait=PAIR_WAIT_SECONDS)

    async def queue(self, agent: str) -> tuple[bytes | None, Entry | None]:
        """The agent's queue index, under its lock when it is going to be written."""
        entry = await self._store.get(self._store.key("queues", agent))
        return (entry.body, entry) if entry is not None else (None, None)

    async def queues(self) -> AsyncIterator[bytes]:
        """The indexes of all agents' queues."""
        async for entry in self._store.scan("queues"):
            yield entry.body

    async def save_queue(self, agent: str, body: bytes, *, expect: int) -> Entry:
        return await self._store.put(self._store.key("queues", agent), body, expect=expect)

    async def keep_event(self, event: AgentEvent) -> None:
        """Keeps the event's body; keeping the same event twice is keeping it once."""
        try:
            await self._store.put(self._store.key("events", event.id), event.to_plaintext(), expect=0)
        except Conflict:
            await self.sync("events")

    async def event(self, event_id: str) -> AgentEvent | None:
        entry = await self._store.get(self._store.key("events", event_id))
        return None if entry is None else opened(AgentEvent.from_plaintext, entry)

    async def events(self) -> AsyncIterator[AgentEvent]:
        """Every readable event, in no order."""
        async for event in self._readable("events", lambda entry: opened(AgentEvent.from_plaintext, entry)):
            yield event

    async def drop_event(self, event_id: str) -> None:
        entry = await self._store.get(self._store.key("events", event_id))
        if entry is not None:
            await self._forget(entry)

    # the runtime's own secrets

    async def secrets(self) -> dict[tuple[str, str], Secret]:
        """Every `Secret/<name>` entry: (name, key) -> value."""
        found: dict[tuple[str, str], Secret] = {}
        async for entry in self._store.scan("secrets"):
            spec = opened(secret_in, entry)
            in_place(entry, self._store.key("secrets", spec["name"]))
            found.update({(spec["name"], key): Secret(value) for key, value in spec["data"].items()})
        return found

    async def change_secret(self, name: str, change: Callable[[dict[str, str]], dict[str, str]]) -> None:
        """Rewrites one secret's keys; an empty result removes it."""
        key = self._store.key("secrets", name)
        entry = await self._store.get(key)
        before = opened(secret_in, entry)["data"] if entry else {}
        after = change(dict(before))
        if after:
            body = codec.encode("Secret", {"spec": {"name": name, "data": after}})
            await self._store.put(key, body, expect=entry.generation if entry else 0)
        elif entry is not None:
            await self._store.delete(key, expect=entry.generation)

    # what lies under a locator of its own

    def shelf(self, kind: str, read: Callable[[bytes], S]) -> Shelf[S]:
        return Shelf(self._store, kind, read, self._on_damage, self.tombstones)

    async def sync(self, *kinds: str) -> None:
        """Makes durable what was found done already, before an answer stands on it: the sync of the write itself may
        have failed, here or in another process."""
        for kind in kinds:
            await self._store.sync(kind)

    async def probe(self) -> None:
        """Reads, and takes room and gives it back: raises what either comes to. Nothing is written."""
        key = self._store.key("grants", "probe")
        await self._store.get(key)
        async with self._store.reserve(key, PROBE_BYTES):
            pass

    async def close(self) -> None:
        self._cache.clear()
        await self._store.close()
