"""One durable queue per agent: an index of event ids in order, and the events' bodies beside it.

The index is rewritten under the queue's lock, so that order, leases and counts change together. FIFO holds within one
address (swarm, instance): only the head of an address can be leased, so a poisoned event delays its own conversation
and no other.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from oauthbroker.clock import Clock, random_text
from oauthbroker.errors import BrokerError, Code
from oauthbroker.lifecycle import to_its_end
from oauthbroker.metrics import Metric, Metrics
from oauthbroker.queue_index import Index, Item, Settled, address_of
from oauthbroker.records import AgentEvent
from oauthbroker.repository import Conflict, Repository
from oauthbroker.settings import Limits

MOST_BYTES = 2 * 1024 * 1024  # some ten thousand events that nobody has consumed
BACKOFF_SECONDS = (1, 5, 25, 125, 600)


@dataclass(frozen=True, slots=True)
class Delivery:
    """A leased event. Settle it with `ack` or `nack`; an unsettled one comes again when the lease ends."""

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
        """Done; also when it was said before. False when the lease had ended and somebody else has the event now."""
        return await self._queues.ack(self.event.target.agent_name, self.event.id, self.lease)

    async def nack(self) -> bool:
        """Not done: it comes again after a back-off, at most `queue_attempts` times."""
        return await self._queues.nack(self.event.target.agent_name, self.event.id, self.lease)

    async def give_back(self) -> bool:
        """Nobody has seen it: it is free again at once, as if it had not been leased."""
        return await self._queues.give_back(self.event.target.agent_name, self.event.id, self.lease)


@dataclass(frozen=True, slots=True)
class Depth:
    """How much lies in all queues together. `oldest` is when the longest waiting event was made."""

    waiting: int = 0
    dead: int = 0
    oldest: datetime | None = None


class Queues:
    """The queues of all agents. Several processes may use them at once."""

    def __init__(self, repository: Repository, clock: Clock, limits: Limits, metrics: Metrics) -> None:
        self._repository = repository
        self._clock = clock
        self._limits = limits
        self._metrics = metrics

    async def enqueue(self, event: AgentEvent) -> bool:
        """Puts an event at the end of its agent's queue; the same event twice is one. True when it was new.

        Raises `storeUnavailable` when the queue is full: the event stays where it came from, to be tried again.
        """
        async with self._changing(event.target.agent_name) as index:
            new = not index.knows(event.id)
            if new:
                index.waiting.append(Item(event.id, address_of(event)))
                if len(index.to_plaintext()) > MOST_BYTES:
                    raise BrokerError(Code.STORE_UNAVAILABLE, note="the queue is full: nobody consumes it")
                await self._repository.keep_event(event)
        if new:
            self._metrics.add(Metric.EVENTS_QUEUED, event.type)
        return new

    async def lease(self, agent: str) -> Delivery | None:
        """The next event for `queue_lease_seconds`, or None when nothing is free. Takes the lock only if there is. A
        caller that is cancelled leaves nothing leased."""
        index, _ = await self._read(agent)
        if index.next_free(self._clock.now()) is None:
            return None
        delivery: Delivery | None = None
        try:
            async with self._changing(agent) as index:
                delivery = await self._leased(index)
        except asyncio.CancelledError:
            if delivery is not None:  # the index may have been written: the caller will never hear of this lease
                with suppress(BrokerError):
                    await to_its_end(asyncio.ensure_future(delivery.give_back()))
            raise
        return delivery

    async def _leased(self, index: Index) -> Delivery | None:
        """The next free event, leased in `index`."""
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
            return Delivery(event, attempts, lease, until, self)
        return None

    async def ack(self, agent: str, event_id: str, lease: str) -> bool:
        async with self._changing(agent) as index:
            settled, item = Settled(event_id, lease, done=True), index.find(event_id)
            if item is None or item.lease != lease:
                return settled in index.settled
            index.settled.append(settled)
            index.remove(event_id)
            index.done.append(event_id)
        await self._repository.drop_event(event_id)
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
        """A lease that led nowhere is not counted. False when it had ended."""
        async with self._changing(agent) as index:
            item = index.find(event_id)
            if item is None or item.lease != lease:
                return False
            index.replace(dataclasses.replace(item, attempts=item.attempts - 1, due=None, lease=None, since=None))
        return True

    async def unsettled(self, agent: str, leases: Collection[str]) -> set[str]:
        """Those of the leases that still hold."""
        index, _ = await self._read(agent)
        now = self._clock.now()
        held = {item.lease for item in index.waiting if not item.is_free(now)}
        return {lease for lease in leases if lease in held}

    async def settled(self, agent: str, leases: Collection[str]) -> set[str]:
        """Those of the leases that were settled lately, by `ack` or by `nack`."""
        index, _ = await self._read(agent)
        known = {each.lease for each in index.settled}
        return {lease for lease in leases if lease in known}

    async def dead(self, agent: str) -> list[AgentEvent]:
        """Dead letters, oldest first: events that no consumer could settle."""
        index, _ = await self._read(agent)
        found = [await self._readable(item.id) for item in index.dead]
        return [event for event in found if event is not None]

    async def is_dead(self, agent: str, event_id: str) -> bool:
        """Whether a dead letter of the agent has that id."""
        index, _ = await self._read(agent)
        return any(item.id == event_id for item in index.dead)

    async def revive(self, agent: str, event_id: str) -> bool:
        """A dead letter gets all its attempts anew, at the end of the queue. False when there is none of that id."""
        async with self._changing(agent) as index:
            item = index.exhume(event_id)
            if item is not None:
                index.waiting.append(dataclasses.replace(item, attempts=0))
        return item is not None

    async def drop(self, agent: str, event_id: str) -> bool:
        """A dead letter goes for good. False when there is none of that id."""
        async with self._changing(agent) as index:
            item = index.exhume(event_id)
            if item is not None:
                index.done.append(event_id)
        if item is not None:
            await self._repository.drop_event(event_id)
        return item is not None

    async def erase(self, agent: str, event_ids: Collection[str]) -> None:
        """Remove events for good, in any state. Idempotent."""
        async with self._changing(agent) as index:
            index.erase(event_ids)
        for event_id in event_ids:
            await self._repository.drop_event(event_id)

    async def depth(self) -> Depth:
        """Of all agents together. Reads every index, and of each queue the event at its head."""
        waiting, dead, made = 0, 0, list[datetime]()
        async for body in self._repository.queues():
            with suppress(BrokerError, LookupError, TypeError, ValueError):  # whoever uses it mends it
                index = Index.from_plaintext(body)
                waiting, dead = waiting + len(index.waiting), dead + len(index.dead)
                head = await self._readable(index.waiting[0].id) if index.waiting else None
                made += [head.created_at] if head is not None else []
        return Depth(waiting, dead, min(made, default=None))

    async def tidy(self) -> int:
        """Removes bodies that no queue needs any more, which a crash may have left; how many. Reads every event."""
        dropped, needed = 0, dict[str, set[str]]()
        async for event in self._repository.events():
            agent = event.target.agent_name
            if agent not in needed:
                index, _ = await self._read(agent)
                needed[agent] = {item.id for item in (*index.waiting, *index.dead)}
            if event.id in needed[agent]:
                continue
            async with self._changing(agent) as index:  # where bodies are kept, so none is on its way in
                if not index.needs(event.id):
                    await self._repository.drop_event(event.id)
                    dropped += 1
        return dropped

    async def _readable(self, event_id: str) -> AgentEvent | None:
        """The event, or None when it is gone or damaged. A store that does not work right now is neither."""
        try:
            return await self._repository.event(event_id)
        except BrokerError as error:
            if error.retryable:
                raise
        return None

    @asynccontextmanager
    async def _changing(self, agent: str) -> AsyncIterator[Index]:
        """The index under the queue's lock, written back when it changed."""
        async with self._repository.queue_lock(agent):
            index, generation = await self._read(agent)
            before = index.to_plaintext()
            yield index
            after = index.to_plaintext()
            if after == before:
                await self._repository.sync("queues")
                return
            try:
                await self._repository.save_queue(agent, after, expect=generation)
            except Conflict:
                lost = True
            else:
                lost = False
        if lost:
            raise BrokerError(Code.STORE_LOCKED, note="somebody changed the queue without its lock")

    async def _read(self, agent: str) -> tuple[Index, int]:
        """The index and its generation.

        One that is damaged on disk is made anew from the events that are kept, in the order of their making: leases
        and counts are forgotten, so that an event may come again, and none is lost.
        """
        try:
            body, entry = await self._repository.queue(agent)
        except BrokerError as error:
            if error.code is not Code.RECORD_CORRUPT:
                raise
        else:
            return Index.from_plaintext(body), entry.generation if entry is not None else 0
        kept = [event async for event in self._repository.events() if event.target.agent_name == agent]
        kept.sort(key=lambda event: event.created_at)
        return Index([Item(event.id, address_of(event)) for event in kept]), 0
