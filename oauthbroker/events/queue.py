"""Keep one durable queue per agent: an index of event ids in order, and the events' bodies beside it.

The index is rewritten under the queue's lock, so order, leases and counts change together. FIFO holds within one
address (swarm, instance): only the head of an address can be leased. A poisoned event delays its own conversation and
no other.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from oauthbroker.core.clock import Clock, random_text
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import Patience, to_its_end
from oauthbroker.events.queue_index import Index, Item, Settled, address_of
from oauthbroker.model.settings import Limits
from oauthbroker.observability.metrics import Metric, Metrics
from oauthbroker.records import AgentEvent
from oauthbroker.repository.repository import PAIR_WAIT_SECONDS, Conflict, Repository
from oauthbroker.repository.versioned import UNREADABLE, opened, readable

MOST_BYTES = 2 * 1024 * 1024  # some ten thousand unconsumed events
BACKOFF_SECONDS = (1, 5, 25, 125, 600)


@dataclass(frozen=True, slots=True)
class EventLease:
    """A leased event. Settle it with `ack` or `nack`; an unsettled one is delivered again when the lease expires."""

    event: AgentEvent
    attempt: int
    lease: str
    until: datetime
    _queues: Queues

    @property
    def id(self) -> str:
        return self.event.id

    @property
    def type(self) -> str:
        return self.event.type

    def to_json(self) -> dict[str, object]:
        return self.event.to_json()

    async def ack(self) -> bool:
        """Settle the event as done. Idempotent. False when the lease had expired and another consumer has the event."""
        return await self._queues.ack(self.event.target.agent_name, self.event.id, self.lease)

    async def nack(self) -> bool:
        """Settle the event as not done. It is delivered again after a back-off, at most `queue_attempts` times. False
        as for `ack`."""
        return await self._queues.nack(self.event.target.agent_name, self.event.id, self.lease)

    async def give_back(self) -> bool:
        """Free the event at once and do not count the attempt: no consumer received it. Completes even if the caller is
        cancelled."""
        work = self._queues.give_back(self.event.target.agent_name, self.event.id, self.lease)
        return await to_its_end(asyncio.ensure_future(work))


@dataclass(frozen=True, slots=True)
class Depth:
    """The number of events in all queues. `oldest` is the creation time of the oldest waiting event."""

    waiting: int = 0
    dead: int = 0
    oldest: datetime | None = None


class QueueFull(BrokerError):
    """`storeUnavailable`: an agent's queue has no room for the event."""

    def __init__(self, event_id: str) -> None:
        super().__init__(Code.STORE_UNAVAILABLE, note="the queue is full: no consumer")
        self.event_id = event_id


class Queues:
    """The queues of all agents. Safe for several processes."""

    def __init__(self, repository: Repository, clock: Clock, limits: Limits, metrics: Metrics) -> None:
        self._repository = repository
        self._clock = clock
        self._limits = limits
        self._metrics = metrics
        self._refused: dict[str, tuple[str, bytes]] = {}  # per agent: the last event refused as full, by which index

    async def enqueue(self, event: AgentEvent, *, wait: float = PAIR_WAIT_SECONDS) -> bool:
        """Append an event to its agent's queue. Idempotent by event id. Return whether it was new.

        Raises `QueueFull` when the queue is full, and `storeLocked` when its lock is held for longer than `wait`
        seconds. The event then stays in its outbox for the next attempt.
        """
        if await self._is_refused_still(event):
            raise QueueFull(event.id)
        async with self._changing(event.target.agent_name, wait=wait) as index:
            new = not index.knows(event.id)
            if new:
                index.waiting.append(Item(event.id, address_of(event)))
                if len(index.to_plaintext()) > MOST_BYTES:
                    raise QueueFull(event.id)
                await self._repository.keep_event(event)
        if new:
            self._metrics.add(Metric.EVENTS_QUEUED, event.type)
        return new

    async def _is_refused_still(self, event: AgentEvent) -> bool:
        """Return whether this index has already refused the event as full. Parses nothing: a full index is large."""
        agent = event.target.agent_name
        refused, by = self._refused.get(agent, ("", b""))
        if refused != event.id:
            return False
        body, _ = await readable(self._repository.queue(agent)) or (None, None)
        return body is not None and hashlib.sha256(body).digest() == by

    async def lease(self, agent: str) -> EventLease | None:
        """Lease the next event for `queue_lease_seconds`; None if none is free. The lock is taken only if one is. A
        cancelled call leaves nothing leased."""
        index = await self._read(agent)
        if index.next_free(self._clock.now()) is None:
            return None
        delivery: EventLease | None = None
        try:
            async with self._changing(agent) as index:
                delivery = await self._leased(index)
        except asyncio.CancelledError:
            if delivery is not None:  # the index may be written, but the caller never receives this lease
                with suppress(BrokerError):
                    await delivery.give_back()
            raise
        return delivery

    async def _leased(self, index: Index) -> EventLease | None:
        """Lease the next free event in `index`."""
        now = self._clock.now()
        while (item := index.next_free(now)) is not None:
            event = await self._readable(item.id)
            if event is None or item.attempts >= self._limits.queue_attempts:
                index.bury(item)
                self._metrics.add(Metric.EVENTS_DEAD)
                continue
            until = now + timedelta(seconds=self._limits.queue_lease_seconds)
            lease = random_text(self._clock, 128)
            attempts = item.attempts + 1
            index.replace(dataclasses.replace(item, attempts=attempts, due=until, lease=lease, since=now))
            return EventLease(event, attempts, lease, until, self)
        return None

    async def ack(self, agent: str, event_id: str, lease: str) -> bool:
        async with self._changing(agent) as index:
            settled, item = Settled(event_id, lease, done=True), index.find(event_id)
            if item is None or item.lease != lease:
                return settled in index.settled
            index.settled.append(settled)
            index.remove(event_id)
            index.done.append(event_id)
        return True

    async def nack(self, agent: str, event_id: str, lease: str) -> bool:
        async with self._changing(agent) as index:
            settled, item = Settled(event_id, lease, done=False), index.find(event_id)
            if item is None or item.lease != lease:
                return settled in index.settled
            index.settled.append(settled)
            if item.attempts >= self._limits.queue_attempts:
                index.bury(item)
                self._metrics.add(Metric.EVENTS_DEAD)
                return True
            pause = BACKOFF_SECONDS[min(item.attempts, len(BACKOFF_SECONDS)) - 1]
            now = self._clock.now()
            due = now + timedelta(seconds=pause * self._clock.jitter(0.8, 1.2))
            index.replace(dataclasses.replace(item, due=due, lease=None, since=now))
        return True

    async def give_back(self, agent: str, event_id: str, lease: str) -> bool:
        """Free a leased event without counting the attempt. False when the lease had ended."""
        async with self._changing(agent) as index:
            item = index.find(event_id)
            if item is None or item.lease != lease:
                return False
            index.replace(dataclasses.replace(item, attempts=item.attempts - 1, due=None, lease=None, since=None))
        return True

    async def unsettled(self, agent: str, leases: Collection[str]) -> set[str]:
        """Return the leases that are still valid."""
        index = await self._read(agent)
        now = self._clock.now()
        held = {item.lease for item in index.waiting if not item.is_free(now)}
        return {lease for lease in leases if lease in held}

    async def settled(self, agent: str, leases: Collection[str]) -> set[str]:
        """Return the leases that were recently settled, by `ack` or `nack`."""
        index = await self._read(agent)
        known = {each.lease for each in index.settled}
        return {lease for lease in leases if lease in known}

    async def dead(self, agent: str) -> list[AgentEvent]:
        """Return the agent's dead letters, oldest first: events that no consumer could settle."""
        index = await self._read(agent)
        found = [await self._readable(item.id) for item in index.dead]
        return [event for event in found if event is not None]

    async def is_dead(self, agent: str, event_id: str) -> bool:
        """Return whether the agent has a dead letter with this id."""
        index = await self._read(agent)
        return any(item.id == event_id for item in index.dead)

    async def revive(self, agent: str, event_id: str) -> bool:
        """Move a dead letter to the end of the queue with all its attempts. False if the id is unknown."""
        async with self._changing(agent) as index:
            item = index.exhume(event_id)
            if item is not None:
                index.waiting.append(dataclasses.replace(item, attempts=0))
        return item is not None

    async def drop(self, agent: str, event_id: str) -> bool:
        """Delete a dead letter. False if the id is unknown."""
        async with self._changing(agent) as index:
            item = index.exhume(event_id)
            if item is not None:
                index.done.append(event_id)
        return item is not None

    async def erase(self, agent: str, event_ids: Collection[str]) -> None:
        """Remove events for good, in any state. Idempotent."""
        async with self._changing(agent) as index:
            index.erase(event_ids)
        for event_id in event_ids:
            await self._repository.drop_event(event_id)

    async def depth(self) -> Depth:
        """Return the depth of all queues together. Reads every index, and the head event of each queue."""
        waiting, dead, made = 0, 0, list[datetime]()
        async for body in self._repository.queues():
            with suppress(BrokerError, LookupError, TypeError, ValueError):  # repaired at its next use
                index = Index.from_plaintext(body)
                waiting, dead = waiting + len(index.waiting), dead + len(index.dead)
                head = await self._readable(index.waiting[0].id) if index.waiting else None
                made += [head.created_at] if head is not None else []
        return Depth(waiting, dead, min(made, default=None))

    async def tidy(self) -> int:
        """Delete the bodies that no queue needs, such as after a crash; return how many. Reads every event. A queue
        that cannot be read or is locked keeps its bodies; the store code is raised at the end."""
        kept: dict[str, list[str]] = {}
        async for event in self._repository.events():
            kept.setdefault(event.target.agent_name, []).append(event.id)
        dropped, patience, failed = 0, Patience(), None
        for agent, event_ids in kept.items():
            try:
                dropped += await self._tidy(agent, event_ids, patience.seconds)
            except BrokerError as error:
                patience.note(error)
                failed = error
        if failed is not None:
            raise failed
        return dropped

    async def _tidy(self, agent: str, event_ids: Iterable[str], wait: float) -> int:
        needed = (await self._read(agent, wait=wait)).needed()
        left = [event_id for event_id in event_ids if event_id not in needed]
        if not left:
            return 0
        async with self._changing(agent, wait=wait) as index:  # bodies are stored under this lock
            gone = [event_id for event_id in left if not index.needs(event_id)]
            for event_id in gone:
                await self._repository.drop_event(event_id)
        return len(gone)

    async def _readable(self, event_id: str) -> AgentEvent | None:
        """Return the event; None if it is deleted or damaged. A failing store raises."""
        return await readable(self._repository.event(event_id))

    @asynccontextmanager
    async def _changing(self, agent: str, *, wait: float = PAIR_WAIT_SECONDS) -> AsyncIterator[Index]:
        """Open the index under the queue's lock. Write it back if it changed, and delete the bodies that it no longer
        needs."""
        async with self._repository.queue_lock(agent, wait=wait):
            found, generation = await self._found(agent)
            index = await self._made_anew(agent) if found is None else found
            before, needed = index.to_plaintext() if found is not None else None, index.needed()
            try:
                yield index
            except QueueFull as full:
                self._refused[agent] = full.event_id, hashlib.sha256(before or b"").digest()
                raise
            after = index.to_plaintext()
            if after == before:
                await self._repository.sync("queues")
                return
            write = self._write(agent, after, generation, needed - index.needed())
            await to_its_end(asyncio.ensure_future(write))

    async def _write(self, agent: str, index: bytes, generation: int, gone: Collection[str]) -> None:
        """Save the index, then delete the bodies of events that have left it. A caller that is cancelled between the
        two would leave them until the next start, so it waits for both."""
        try:
            await self._repository.save_queue(agent, index, expect=generation)
        except Conflict:
            lost = True
        else:
            lost = False
        if lost:
            raise BrokerError(Code.STORE_LOCKED, note="the queue was changed without its lock")
        for event_id in gone:
            await self._repository.drop_event(event_id)

    async def _read(self, agent: str, *, wait: float = PAIR_WAIT_SECONDS) -> Index:
        """Return the current index. A damaged one is rebuilt and saved, so that the next read needs no scan."""
        found, _ = await self._found(agent)
        if found is None:
            async with self._changing(agent, wait=wait) as found:
                pass
        return found

    async def _found(self, agent: str) -> tuple[Index | None, int]:
        """Return the index and its generation; (None, 0) if it is damaged on disk. A newer version's index raises."""
        try:
            _, entry = await self._repository.queue(agent)
        except BrokerError as error:
            if error.code not in UNREADABLE:
                raise
            return None, 0
        return (Index(), 0) if entry is None else (opened(Index.from_plaintext, entry), entry.generation)

    async def _made_anew(self, agent: str) -> Index:
        """Rebuild the index from the stored events, by creation time. Leases and counts are lost, so an event may be
        delivered again. No event is lost."""
        kept = [event async for event in self._repository.events() if event.target.agent_name == agent]
        kept.sort(key=lambda event: event.created_at)
        return Index([Item(event.id, address_of(event)) for event in kept])
