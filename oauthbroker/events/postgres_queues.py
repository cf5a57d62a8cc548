"""Queues as rows of a PostgreSQL database: one statement, and so one transaction, for each change. Times are the
database's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from oauthbroker.core.clock import Clock, SystemClock, random_text
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import Notifier, to_its_end
from oauthbroker.events import queue_index
from oauthbroker.events.entry_queues import EntryQueues, State
from oauthbroker.events.port import BACKOFF_SECONDS, DeadEvent, EventLease, QueueDepth, QueueFull
from oauthbroker.model.settings import Limits
from oauthbroker.observability.metrics import Metric, Metrics
from oauthbroker.records import AgentEvent
from oauthbroker.records.event_queue import Item
from oauthbroker.repository.queue_rows import DAMAGED, QueueRows
from oauthbroker.repository.repository import Repository

POLL_SECONDS: Final = 0.2  # how often a waiting consumer looks while the feed is late
SLOW_POLL_SECONDS: Final = 1.0  # and while it is live: leases and back-offs end without a notification
EVENT_WEIGHT: Final = 200  # of the bytes that a queue may have
REMEMBERED: Final = 1024  # settled events of an agent
_TRIES: Final = 8  # to add a row while seeds change
_EVERY: Final = 64  # settlements between two deletions of older ones


class PostgresQueues:
    """`Queues` in a `PostgresStore`, for any number of processes and hosts."""

    def __init__(
        self,
        *,
        repository: Repository,
        clock: Clock,
        limits: Limits,
        metrics: Metrics,
        notifier: Notifier | None = None,
    ) -> None:
        """`notifier` notifies when a queue has changed, in this process or another one. A `clock` other than the
        system's gives the time in place of the database."""
        self._rows, self._clock, self._limits, self._metrics = QueueRows(repository), clock, limits, metrics
        self._notifier, self._entries = notifier or Notifier(), EntryQueues(repository)
        self._took_over = False
        self._capacity: dict[str, int] = {}  # events that an agent's queue certainly took when it was last counted
        self._settlements = 0

    async def enqueue(self, event: AgentEvent) -> bool:
        agent = event.target.agent_name
        await self._take_over()
        if self._capacity.get(agent, 0) <= 0:
            await self._count_capacity(event)
        if not await self._added("enqueue", self._rows.place(agent, event.id), partial(self._rows.sealed, event)):
            return False
        self._capacity[agent] -= 1
        self._metrics.add(Metric.EVENTS_QUEUED, event.metric_type)
        return True

    async def _added(self, statement: str, place: dict[str, Any], values: Callable[[], dict[str, Any]]) -> bool:
        """Add a row. False for an event that the queue knows. A statement that adds nothing says no more than that: so
        the queue is asked, and the next try seals with the seed that is active now."""
        await self._rows.follow_keyring()
        for _ in range(_TRIES):
            if await self._changed(statement, {**place, **values()}):
                return True
            if await self._rows.read("known", place):
                return False
            await self._rows.adopt_newest()
        raise BrokerError(Code.STORE_UNAVAILABLE, note="the keyring in the database changes again and again")

    async def _count_capacity(self, event: AgentEvent) -> None:
        """Count the queue, and count on an eighth of the space: other processes take some, too."""
        agent = event.target.agent_name
        place = self._rows.place(agent, event.id)
        left = queue_index.MOST_BYTES // EVENT_WEIGHT - (await self._rows.read("waiting", place))[0][0]
        if left <= 0 and not await self._rows.read("known", place):
            raise QueueFull(agent)
        self._capacity[agent] = max(1, left // 8)

    async def lease(self, agent: str) -> EventLease | None:
        attempt = asyncio.ensure_future(self._lease(agent))
        try:
            return await to_its_end(attempt)
        except asyncio.CancelledError:
            delivery = None if attempt.cancelled() or attempt.exception() is not None else attempt.result()
            if delivery is not None:
                with suppress(BrokerError):
                    await delivery.give_back()
            raise

    async def _lease(self, agent: str) -> EventLease | None:
        await self._take_over()
        while True:
            lease = random_text(self._clock, 128)
            values = {"agent": self._rows.agent(agent), "lease": self._rows.mac(lease), **self._until()}
            rows = await self._changed("lease", values)
            if not rows:
                return None
            for name, record, attempts, due in rows:
                event = await self._rows.opened(name, record)
                if event is not None and attempts <= self._limits.queue_attempts:
                    return EventLease(
                        event=event, attempt=attempts, lease=lease, until=due.astimezone(UTC), _queues=self
                    )
                await self._changed("dead", {**values, "id": name, "most": self._limits.queue_attempts})
                await self._note_dead(agent)

    async def ack(self, agent: str, event_id: str, lease: str) -> bool:
        values = self._rows.place(agent, event_id, lease)
        if not await self._changed("ack", values):
            return bool(await self._rows.read("was acked", values))
        self._settlements += 1
        if self._settlements % _EVERY == 1:
            await self._changed("forget", {**values, "state": "done", "kept": REMEMBERED})
        return True

    async def nack(self, agent: str, event_id: str, lease: str) -> bool:
        pauses = [pause * self._clock.jitter(0.8, 1.2) for pause in BACKOFF_SECONDS]
        values = {**self._rows.place(agent, event_id, lease), "pauses": pauses, "last": len(pauses), **self._until()}
        rows = await self._changed("nack", {**values, "most": self._limits.queue_attempts})
        if not rows:
            return bool(await self._rows.read("was refused", values))
        if rows[0][1] == "dead":
            await self._note_dead(agent)
        return True

    async def _note_dead(self, agent: str) -> None:
        self._metrics.add(Metric.EVENTS_DEAD)
        values = {"agent": self._rows.agent(agent), "state": "dead", "kept": queue_index.MOST_DEAD - 1}
        await self._changed("forget", values)

    async def extend(self, agent: str, event_id: str, lease: str) -> bool:
        return bool(await self._changed("extend", {**self._rows.place(agent, event_id, lease), **self._until()}))

    async def give_back(self, agent: str, event_id: str, lease: str) -> bool:
        return bool(await self._changed("give back", self._rows.place(agent, event_id, lease)))

    async def unsettled(self, agent: str, leases: Collection[str]) -> set[str]:
        return await self._among("unsettled", agent, leases)

    async def settled(self, agent: str, leases: Collection[str]) -> set[str]:
        return await self._among("settled", agent, leases)

    async def _among(self, statement: str, agent: str, leases: Collection[str]) -> set[str]:
        known = {self._rows.mac(lease): lease for lease in leases}
        values = {"agent": self._rows.agent(agent), "leases": list(known), **self._until()}
        return {known[lease] for (lease,) in await self._rows.read(statement, values) if lease in known}

    async def dead(self, agent: str | None = None, most: int | None = None) -> list[DeadEvent]:
        """Return them as the port says. A damaged one has no address but its agent, as far as the asker or another
        event of the queue tells it: the row has the agent's keyed name."""
        values = {"agent": None if agent is None else self._rows.agent(agent), "most": most}
        rows = await self._rows.read("letters", values)
        opened = [await self._rows.opened(name, record) for _, name, record, _ in rows]
        agents = {} if agent is None else {self._rows.agent(agent): agent}
        if agent is None and None in opened:
            readable = {event.target.agent_name for event in opened if event is not None}
            readable |= {depth.agent for depth in await self.depths()}
            agents = {self._rows.agent(each): each for each in readable}
        return [
            DeadEvent(id=event.id, address=event.target.address, attempts=attempts, event=event)
            if event is not None
            else DeadEvent(id=DAMAGED + name.hex(), address=("", agents.get(queue, ""), ""), attempts=attempts)
            for (queue, name, _, attempts), event in zip(rows, opened, strict=True)
        ]

    async def is_dead(self, agent: str, event_id: str) -> bool:
        return bool(await self._rows.read("is dead", self._rows.place(agent, event_id)))

    async def revive(self, agent: str, event_id: str) -> bool:
        return bool(await self._changed("revive", self._rows.place(agent, event_id)))

    async def drop(self, agent: str, event_id: str) -> bool:
        return bool(await self._changed("drop", self._rows.place(agent, event_id)))

    async def erase(self, agent: str, event_ids: Collection[str]) -> None:
        await self._take_over()
        if event_ids:
            ids = [self._rows.name(event_id) for event_id in sorted(event_ids)]
            await self._changed("erase", {"agent": self._rows.agent(agent), "ids": ids})

    async def events(self) -> AsyncIterator[AgentEvent]:
        await self._take_over()
        last = b"", b""
        while rows := await self._rows.read("records", dict(zip(("agent", "after"), last, strict=True))):
            last = rows[-1][:2]
            for _, name, record in rows:
                if (event := await self._rows.opened(name, record)) is not None:
                    yield event

    async def depths(self) -> list[QueueDepth]:
        found = list[QueueDepth]()
        for waiting, leased, dead, name, record in await self._rows.read("depths", self._until()):
            event = await self._rows.opened(name, record)
            if event is not None:
                oldest = event.created_at if waiting or leased else None
                agent = event.target.agent_name
                found.append(QueueDepth(agent=agent, waiting=waiting, leased=leased, dead=dead, oldest=oldest))
        return sorted(found, key=lambda depth: depth.agent)

    async def tidy(self) -> int:
        """Take over what a move has brought. A crash leaves nothing."""
        await self._take_over()
        return 0

    def listen(self) -> asyncio.Event:
        self._rows.feed.begin(self._notifier.notify)
        return self._notifier.listen()

    async def wait(self, signal: asyncio.Event, seconds: float) -> None:
        pause = SLOW_POLL_SECONDS if self._rows.feed.state == "live" else POLL_SECONDS
        await self._notifier.wait(min(seconds, pause), signal)

    async def _changed(self, statement: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        return await self._rows.change(statement, {"now": self._now(), **values})

    async def _take_over(self) -> None:
        """Make rows of the events that a move has brought as entries. They come before any broker opens the store: so
        each process looks once, before its first change. A body that cannot be read is set aside."""
        if self._took_over:
            return
        newest = (await self._rows.read("entries", {}))[0][0]
        if newest is not None:
            await self._entries.move(self._take_over_one)
            await self._changed("unread entries", {"version": newest})
        self._took_over = True

    async def _take_over_one(self, agent: str, state: State, item: Item, event: AgentEvent | None) -> None:
        place = self._rows.place(agent, item.id, item.lease)
        place |= {"state": state, "attempts": item.attempts, "due": item.due}

        def values() -> dict[str, Any]:
            without_body = {"address": place["agent"], "record": None, "epoch": self._rows.epoch}
            return without_body if event is None else self._rows.sealed(event)

        await self._added("take over", place, values)

    def _now(self) -> datetime | None:
        return None if isinstance(self._clock, SystemClock) else self._clock.now()

    def _until(self) -> dict[str, Any]:
        return {"now": self._now(), "seconds": self._limits.queue_lease_seconds}
