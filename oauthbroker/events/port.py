"""The queue port: durable events for agents, in order. Every backend must pass the contract suite in
`tests/contract/queue_contract.py`.

An event is delivered at least once. FIFO holds within one address (swarm, agent, instance): only the head of an address
can be leased, so a poisoned event delays its own conversation and no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Coroutine
from contextlib import suppress
from datetime import datetime
from typing import Any, Protocol

from oauthbroker.core.clock import printed
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import to_its_end
from oauthbroker.records import AgentEvent
from oauthbroker.records.event import DeliveredEvent

BACKOFF_SECONDS = (1, 5, 25, 125, 600)  # after each refusal, with a jitter of a fifth
SEPARATOR = "\x1f"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLease(DeliveredEvent):
    """A leased event. Settle it with `ack` or `nack`; an unsettled one is delivered again when the lease expires."""

    lease: str
    until: datetime
    _queues: Queues

    async def ack(self) -> bool:
        """Settle the event as done. Idempotent. False when the lease had expired and another consumer has the event."""
        return await self._queues.ack(self.event.target.agent_name, self.event.id, self.lease)

    async def nack(self) -> bool:
        """Settle the event as not done. It is delivered again after a back-off, at most `queue_attempts` times. False
        as for `ack`."""
        return await self._queues.nack(self.event.target.agent_name, self.event.id, self.lease)

    async def extend(self) -> bool:
        """Begin the lease's time anew, for work that takes longer. False as for `ack`: then stop the work."""
        return await self._queues.extend(self.event.target.agent_name, self.event.id, self.lease)

    async def give_back(self) -> bool:
        """Free the event at once and do not count the attempt: no consumer received it. Completes even if the caller is
        cancelled."""
        work = self._queues.give_back(self.event.target.agent_name, self.event.id, self.lease)
        return await to_its_end(asyncio.ensure_future(work))

    async def extended_during(self, work: Coroutine[Any, Any, None], every: float) -> bool:
        """Do the work, and extend the lease once in `every` seconds. Raises what the work raises. False when the lease
        was lost before its end: then the work has been cancelled, and another consumer has the event."""
        task = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait({task}, timeout=every))[0]:
                with suppress(BrokerError):
                    if not await self.extend():
                        return False
            task.result()
            return True
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDepth:
    """The number of events in one agent's queue. `leased` ones do not count as waiting. `oldest` is the creation time
    of the oldest that waits or is leased."""

    agent: str
    waiting: int
    leased: int
    dead: int
    oldest: datetime | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that the API and the command line print."""
        oldest = {"oldestAt": printed(self.oldest)} if self.oldest is not None else {}
        return {
            "agentName": self.agent, "waiting": self.waiting, "leased": self.leased, "dead": self.dead, **oldest,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Depth:
    """The same of all queues together. `leased` events count as waiting."""

    waiting: int = 0
    dead: int = 0
    oldest: datetime | None = None

    @classmethod
    def of(cls, depths: Collection[QueueDepth]) -> Depth:
        oldest = min((each.oldest for each in depths if each.oldest is not None), default=None)
        return cls(sum(each.waiting + each.leased for each in depths), sum(each.dead for each in depths), oldest)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadEvent:
    """An event that no consumer settled, and its address (swarm, agent, instance). `event` is None if its body is
    damaged; then a part of the address that the queue does not know is empty."""

    id: str
    address: tuple[str, str, str]
    attempts: int
    event: AgentEvent | None = None


class QueueFull(BrokerError):
    """`storeUnavailable`: an agent's queue has no space for the event."""

    def __init__(self, agent: str) -> None:
        note = f"the queue of {agent} is full: start its consumer, and look at `oauthbroker queues list`"
        super().__init__(Code.STORE_UNAVAILABLE, note=note)


class Queues(Protocol):
    """The queues of all agents. Safe for several processes. Every method may raise `BrokerError` with a store code.

    What a method answers is durable: it holds after a loss of power.
    """

    async def enqueue(self, event: AgentEvent) -> bool:
        """Append an event to its agent's queue. Idempotent by event id, also while the id of an event that is gone is
        remembered. Return whether it was new.

        Raises `QueueFull` when the queue is full, and `storeLocked` when its lock stays held.
        """
        ...

    async def lease(self, agent: str) -> EventLease | None:
        """Lease the oldest free event for `queue_lease_seconds`; None if none is free. An event is free if it is the
        head of its address, not leased and not backing off. One that was leased `queue_attempts` times is a dead letter
        instead. A cancelled call leaves nothing leased."""
        ...

    async def ack(self, agent: str, event_id: str, lease: str) -> bool:
        """Remove a leased event. Idempotent by lease. False if the lease is not the event's and did not ack it."""
        ...

    async def nack(self, agent: str, event_id: str, lease: str) -> bool:
        """End a lease and start a back-off; after the last attempt the event is a dead letter. Idempotent by lease.
        False as for `ack`."""
        ...

    async def extend(self, agent: str, event_id: str, lease: str) -> bool:
        """Begin the time of a lease anew. False when the event was settled, or another consumer has it."""
        ...

    async def give_back(self, agent: str, event_id: str, lease: str) -> bool:
        """Free a leased event without counting the attempt. False when the lease had ended."""
        ...

    async def unsettled(self, agent: str, leases: Collection[str]) -> set[str]:
        """Return the leases that are still valid."""
        ...

    async def settled(self, agent: str, leases: Collection[str]) -> set[str]:
        """Return the leases that were recently settled, by `ack` or `nack`."""
        ...

    async def dead(self, agent: str | None = None, most: int | None = None) -> list[DeadEvent]:
        """Return the dead letters of an agent or of all, at most `most` of each, the newest first."""
        ...

    async def is_dead(self, agent: str, event_id: str) -> bool:
        """Return whether the agent has a dead letter with this id."""
        ...

    async def revive(self, agent: str, event_id: str) -> bool:
        """Move a dead letter to the end of the queue with all its attempts. False if the id is unknown."""
        ...

    async def drop(self, agent: str, event_id: str) -> bool:
        """Delete a dead letter. False if the id is unknown."""
        ...

    async def erase(self, agent: str, event_ids: Collection[str]) -> None:
        """Remove events for good, in any state. Idempotent."""
        ...

    def events(self) -> AsyncIterator[AgentEvent]:
        """Yield every readable event that waits, is leased, or is a dead letter; in no order."""
        ...

    async def depths(self) -> list[QueueDepth]:
        """Return the depth of every queue that has an event, by agent. Changes nothing and takes no lock."""
        ...

    async def tidy(self) -> int:
        """Delete what a crash has left and no queue needs; return how many events. A queue that cannot be read or is
        locked delays no other one; the store code is raised at the end."""
        ...

    def listen(self) -> asyncio.Event:
        """Return a signal for `wait`. Call it before `lease`, so that a change in between is not missed."""
        ...

    async def wait(self, signal: asyncio.Event, seconds: float) -> None:
        """Return when a queue may have changed since `listen` gave `signal`, and at the latest after
        `seconds`. It may return early."""
        ...


def address_of(event: AgentEvent) -> str:
    """Return the key of an event's conversation: (swarm, agent, instance)."""
    return SEPARATOR.join(event.target.address)


def address_parts(address: str) -> tuple[str, str, str]:
    """Return (swarm, agent, instance) of such a key. Swarm and agent hold no separator."""
    parts = address.split(SEPARATOR, 2)
    return (parts[0], parts[1], parts[2]) if len(parts) == 3 else ("", "", "")
