"""Queues in a store: what happens to events. `queue_storage` reads and writes the parts."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from functools import partial

from oauthbroker.core.clock import Clock, random_text
from oauthbroker.core.errors import BrokerError
from oauthbroker.core.lifecycle import Notifier, Pass
from oauthbroker.events.damaged_queues import Damaged
from oauthbroker.events.port import (
    BACKOFF_SECONDS,
    DeadEvent,
    EventLease,
    QueueDepth,
    QueueFull,
    address_of,
    address_parts,
)
from oauthbroker.events.queue_index import Index
from oauthbroker.events.queue_storage import QueueStorage
from oauthbroker.model.settings import Limits
from oauthbroker.observability.metrics import Metric, Metrics
from oauthbroker.records import AgentEvent
from oauthbroker.records.event_queue import Item
from oauthbroker.repository.repository import Repository
from oauthbroker.repository.versioned import readable

POLL_SECONDS = 0.2  # how often a waiting consumer looks for events of other processes
_DEAD_AT_ONCE = 64  # events that one change makes dead letters: others wait for the lock, and the loop runs on


class StoreQueues:
    """`Queues` in a `Store`. Safe for several processes."""

    def __init__(
        self,
        *,
        repository: Repository,
        clock: Clock,
        limits: Limits,
        metrics: Metrics,
        notifier: Notifier | None = None,
    ) -> None:
        """`notifier` notifies when anything has changed in this process; others are polled."""
        self._repository = repository
        self._storage = QueueStorage(repository)
        self._clock = clock
        self._limits = limits
        self._metrics = metrics
        self._notifier = notifier or Notifier()
        self._full: set[str] = set()  # agents whose queue has refused an event

    @asynccontextmanager
    async def _changing(self, agent: str, *event_ids: str) -> AsyncIterator[Index]:
        """Change the index, which is as new as the store for these events."""
        looked = False
        try:
            async with self._storage.changing(agent) as index:
                await self._storage.look(index, event_ids)
                looked = True
                yield index
        except Damaged:
            if looked:
                raise
        if not looked:
            async with self._storage.changing(agent) as index:  # which rebuilds the queue
                await self._storage.look(index, event_ids)
                yield index

    async def enqueue(self, event: AgentEvent) -> bool:
        """Add an event. The event of a full queue stays in its outbox for the next attempt."""
        agent, item = event.target.agent_name, Item(id=event.id, address=address_of(event))
        if agent in self._full:
            index = await self._storage.read(agent, self._storage.look_at_all)
            if not index.knows(event.id) and not index.has_space_for(item):
                raise QueueFull(agent)
        async with self._changing(agent, event.id) as index:
            new = not index.knows(event.id)
            if new:
                if not index.has_space_for(item):
                    await self._storage.look_at_all(index)
                self._full.add(agent)
                if not index.has_space_for(item):
                    raise QueueFull(agent)
                self._full.discard(agent)
                index.append(item)
                index.bodies.append(event)
        if new:
            self._metrics.add(Metric.EVENTS_QUEUED, event.metric_type)
        return new

    async def lease(self, agent: str) -> EventLease | None:
        """Lease the next event. The lock is taken only if an event is free, as far as this process knows."""
        delivery: EventLease | None = None
        if self._storage.seems_free(agent, self._clock.now()):
            with suppress(Damaged):  # the next look rebuilds the queue
                delivery = await self._leased_under_lock(agent)
        while delivery is None and await self._has_free(agent):
            delivery = await self._leased_under_lock(agent)
        return delivery

    async def _has_free(self, agent: str) -> bool:
        free: Item | None = None

        async def look(index: Index) -> None:
            nonlocal free
            free = await self._storage.next_free(index, self._clock.now())

        await self._storage.read(agent, look)
        return free is not None

    async def _leased_under_lock(self, agent: str) -> EventLease | None:
        delivery: EventLease | None = None
        try:
            async with self._storage.changing(agent) as index:
                delivery = await self._leased(index)
        except asyncio.CancelledError:
            if delivery is not None:  # the segment may be written, but the caller never receives this lease
                with suppress(BrokerError):
                    await delivery.give_back()
            raise
        return delivery

    async def _leased(self, index: Index) -> EventLease | None:
        """Lease the next free event in `index`. None if there is none, or if those before it are many dead letters."""
        now = self._clock.now()
        for _ in range(_DEAD_AT_ONCE):
            item = await self._storage.next_free(index, now)
            if item is None:
                break
            event = await readable(self._repository.events.get(item.id))  # a failing store raises
            if event is None or item.attempts >= self._limits.queue_attempts:
                index.make_dead_letter(item)
                self._metrics.add(Metric.EVENTS_DEAD)
                continue
            until = now + timedelta(seconds=self._limits.queue_lease_seconds)
            lease = random_text(self._clock, 128)
            attempts = item.attempts + 1
            index.replace(dataclasses.replace(item, attempts=attempts, due=until, lease=lease, since=now))
            return EventLease(event=event, attempt=attempts, lease=lease, until=until, _queues=self)
        return None

    async def ack(self, agent: str, event_id: str, lease: str) -> bool:
        async with self._changing(agent, event_id) as index:
            item = index.leased(event_id, lease)
            if item is None:
                return index.has_settled(event_id, lease, done=True)
            index.settle(event_id, lease, done=True, at=self._clock.now())
        return True

    async def nack(self, agent: str, event_id: str, lease: str) -> bool:
        async with self._changing(agent, event_id) as index:
            item = index.leased(event_id, lease)
            if item is None:
                return index.has_settled(event_id, lease, done=False)
            index.settle(event_id, lease, done=False, at=self._clock.now())
            if item.attempts >= self._limits.queue_attempts:
                index.make_dead_letter(item)
                self._metrics.add(Metric.EVENTS_DEAD)
                return True
            pause = BACKOFF_SECONDS[min(item.attempts, len(BACKOFF_SECONDS)) - 1]
            now = self._clock.now()
            due = now + timedelta(seconds=pause * self._clock.jitter(0.8, 1.2))
            index.replace(dataclasses.replace(item, due=due, lease=None, since=now))
        return True

    async def extend(self, agent: str, event_id: str, lease: str) -> bool:
        async with self._changing(agent, event_id) as index:
            item = index.leased(event_id, lease)
            if item is None:
                return False
            now = self._clock.now()
            until = now + timedelta(seconds=self._limits.queue_lease_seconds)
            index.replace(dataclasses.replace(item, due=until, since=now))
        return True

    async def give_back(self, agent: str, event_id: str, lease: str) -> bool:
        async with self._changing(agent, event_id) as index:
            item = index.leased(event_id, lease)
            if item is None:
                return False
            index.replace(dataclasses.replace(item, attempts=item.attempts - 1, due=None, lease=None, since=None))
        return True

    async def unsettled(self, agent: str, leases: Collection[str]) -> set[str]:
        index = await self._storage.read(agent, partial(self._storage.look_at_leases, leases=leases))
        return {lease for lease in leases if index.is_held(lease, self._clock.now())}

    async def settled(self, agent: str, leases: Collection[str]) -> set[str]:
        index = await self._storage.read(agent, partial(self._storage.look_at_leases, leases=leases))
        return {lease for lease in leases if index.is_settled(lease)}

    async def dead(self, agent: str | None = None, most: int | None = None) -> list[DeadEvent]:
        if agent is not None:
            indexes = [await self._storage.read(agent, self._storage.look_at_all)]
        else:
            indexes = [index async for index in self._storage.all()]
        return [await self._dead(item) for index in indexes for item in index.dead[::-1][:most]]

    async def _dead(self, item: Item) -> DeadEvent:
        event: AgentEvent | None = None
        with suppress(BrokerError):
            event = await self._repository.events.get(item.id)
        return DeadEvent(id=item.id, address=address_parts(item.address), attempts=item.attempts, event=event)

    async def is_dead(self, agent: str, event_id: str) -> bool:
        index = await self._storage.read(agent, partial(self._storage.look, event_ids=[event_id]))
        if any(item.id == event_id for item in index.dead):
            return True
        await self._repository.queue_parts.sync()
        return False

    async def revive(self, agent: str, event_id: str) -> bool:
        async with self._changing(agent, event_id) as index:
            item = index.take_dead_letter(event_id)
            if item is not None:
                index.append(dataclasses.replace(item, attempts=0))
        return item is not None

    async def drop(self, agent: str, event_id: str) -> bool:
        async with self._changing(agent, event_id) as index:
            return index.drop(event_id, self._clock.now())

    async def erase(self, agent: str, event_ids: Collection[str]) -> None:
        async with self._changing(agent, *event_ids) as index:
            index.erase(event_ids)
        for event_id in event_ids:
            await self._repository.events.drop(event_id)

    def events(self) -> AsyncIterator[AgentEvent]:
        return self._repository.events.all()

    async def depths(self) -> list[QueueDepth]:
        found, now = list[QueueDepth](), self._clock.now()
        async for index in self._storage.all():
            waiting, oldest = len(index), next(index.waiting, None)
            leased = sum(item.lease is not None and item.due is not None and item.due > now for item in index.waiting)
            head = await readable(self._repository.events.get(oldest.id)) if oldest is not None else None
            depth = QueueDepth(
                agent=index.head.agent,
                waiting=waiting - leased,
                leased=leased,
                dead=len(index.dead),
                oldest=head.created_at if head else None,
            )
            found += [depth] if waiting or depth.dead else []
        return sorted(found, key=lambda depth: depth.agent)

    async def tidy(self) -> int:
        """Delete events that no queue needs. Reads every event."""
        kept: dict[str, list[str]] = {}
        async for event in self._repository.events.all():
            kept.setdefault(event.target.agent_name, []).append(event.id)
        dropped, this_pass = 0, Pass()
        for agent, event_ids in kept.items():
            with this_pass.entry():
                dropped += await self._tidy(agent, event_ids)
        this_pass.over()
        return dropped

    async def _tidy(self, agent: str, event_ids: Iterable[str]) -> int:
        await self._storage.repair(agent)
        needed = (await self._storage.read(agent, self._storage.look_at_all)).needed()
        left = [event_id for event_id in event_ids if event_id not in needed]
        if not left:
            return 0
        async with self._changing(agent, *left) as index:  # bodies are stored under this lock
            gone = [event_id for event_id in left if not index.needs(event_id)]
            for event_id in gone:
                await self._repository.events.drop(event_id)
        return len(gone)

    def listen(self) -> asyncio.Event:
        return self._notifier.listen()

    async def wait(self, signal: asyncio.Event, seconds: float) -> None:
        await self._notifier.wait(min(seconds, POLL_SECONDS), signal)
