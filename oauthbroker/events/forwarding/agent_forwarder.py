"""Forward the events of one agent, in the order of each of its instances, at least once and with the same id.

1. Take the agent's lease in the store: one process in the whole cluster forwards an agent.
2. Lease events from the queue, which gives only the oldest of each instance.
3. Send, and extend the event's lease meanwhile. Several instances are served at once.
4. Settle by what became of it: ack, nack (the queue backs off, and after the last attempt makes a dead letter), or give
   back and pause, if the receiver can take no event at all.

A process that is killed at any step leaves the event in the queue; its lease runs out, and the next process sends it
again.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import Life, Notifier
from oauthbroker.events.forwarding.senders import Sender
from oauthbroker.events.forwarding.sent_event import SentEvent
from oauthbroker.events.port import EventLease, Queues
from oauthbroker.model.settings import Limits
from oauthbroker.observability.held_locks import HeldLocks
from oauthbroker.observability.logging import Log
from oauthbroker.observability.metrics import Metric, Metrics
from oauthbroker.observability.repeats import Repeats
from oauthbroker.repository.repository import Lease, Repository

AT_ONCE = 8  # instances of one agent
SEND_SECONDS = 10.0
ASIDE_SECONDS = 3.0  # until a process asks again for the lease that another one has
WAIT_SECONDS = 10.0  # for an event
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # while the receiver is away


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardingParts:
    """What all forwarders of one broker use. `notifier` notifies when an event is settled."""

    queues: Queues
    repository: Repository
    clock: Clock
    limits: Limits
    metrics: Metrics
    notifier: Notifier
    log: Log


class AgentForwarder:
    """One agent's. `name` is its forwarder's, for log and metrics; `life` ends with the forwarder."""

    def __init__(self, parts: ForwardingParts, sender: Sender, *, name: str, agent: str, life: Life) -> None:
        self._sender, self._name, self._agent = sender, name, agent
        self._queues, self._repository, self._notifier, self._life = (
            parts.queues,
            parts.repository,
            parts.notifier,
            life,
        )
        self._clock, self._metrics, self._log = parts.clock, parts.metrics, parts.log.bind(forwarder=name, agent=agent)
        self._extend_seconds = parts.limits.queue_lease_seconds / 3
        self._capacity = asyncio.Semaphore(AT_ONCE)
        self._held_locks, self._repeats = HeldLocks(self._clock, self._log), Repeats(self._clock)
        self._failures, self._resume_at = 0, 0.0

    async def run(self) -> None:
        """Forward until `life` ends. A fault is logged, and the work begins anew."""
        while not self._life.stopping:
            try:
                async with self._repository.forwarding(self._agent) as lease:
                    await self._serve(lease)
            except BrokerError as error:
                is_ours = error.code is not Code.STORE_LOCKED  # else another process forwards
                if is_ours and self._repeats.is_new("failed", error.code.value):
                    self._log.error("forwarding failed", code=error.code.value)
            except Exception as error:  # noqa: BLE001  (its text may hold anything, so only its type is logged)
                if self._repeats.is_new("failed", type(error).__name__):
                    self._log.error("forwarding failed", error=type(error).__name__)
            await self._rest(self._clock.jitter(ASIDE_SECONDS / 2, ASIDE_SECONDS))

    async def _serve(self, lease: Lease) -> None:
        """Send events until the lease is lost or `life` ends. Ends when the last one is settled."""
        self._capacity = asyncio.Semaphore(AT_ONCE)
        async with asyncio.TaskGroup() as group:
            while (delivery := await self._next(lease)) is not None:
                group.create_task(self._forward(delivery))

    async def _next(self, lease: Lease) -> EventLease | None:
        """Return the next event as soon as there is space for it; None at the end."""
        await self._capacity.acquire()
        while not (lease.lost or self._life.stopping):
            left = self._resume_at - self._clock.monotonic()
            if left > 0:
                await self._rest(min(left, 1.0))
                continue
            signal = self._queues.listen()
            try:
                delivery = await self._queues.lease(self._agent)
                self._held_locks.worked("forwarding")
                if delivery is None:
                    await self._queues.wait(signal, WAIT_SECONDS)
                elif self._life.stopping:  # it may be newer than the configuration in use
                    await delivery.give_back()
                else:
                    return delivery
            except BrokerError as error:
                is_fault = not self._held_locks.met("forwarding", error)
                if is_fault and self._repeats.is_new("waits", error.code.value):
                    self._log.error("forwarding waits for the store", code=error.code.value)
                await self._rest(1.0)
        self._capacity.release()
        return None

    async def _forward(self, delivery: EventLease) -> None:
        try:
            made: list[SentEvent] = []
            if await delivery.extended_during(self._send(delivery, made), self._extend_seconds):
                await self._settle(delivery, made[0])
            else:
                self._note_unsettled(Code.LEASE_LOST)
        except BrokerError as error:
            self._note_unsettled(error.code)
        except asyncio.CancelledError:
            with suppress(BrokerError):
                await delivery.give_back()
            raise
        finally:
            self._capacity.release()

    def _note_unsettled(self, code: Code) -> None:
        if self._repeats.is_new("not settled", code.value):
            self._log.warning("a forwarded event is not settled, and will be sent again", code=code.value)

    async def _send(self, delivery: EventLease, made: list[SentEvent]) -> None:
        """Send an event and add what became of it to `made`."""
        made.append(await self._sender.send(delivery.event, seconds=SEND_SECONDS))
        self._metrics.add(Metric.EVENTS_FORWARDED, self._name, made[0].outcome)

    async def _settle(self, delivery: EventLease, made: SentEvent) -> None:
        if made.outcome == "taken":
            self._failures = 0
            await delivery.ack()
            self._notifier.notify()  # the next event of its instance is free
        elif made.outcome == "refused":
            self._log.warning("the receiver does not take an event", why=made.why, attempt=delivery.attempt)
            await delivery.nack()
        else:
            self._pause(made)
            await delivery.give_back()

    def _pause(self, made: SentEvent) -> None:
        """Leave the receiver alone for a while that doubles, or for as long as it asks. Events that were under way
        count once."""
        now = self._clock.monotonic()
        if now < self._resume_at:
            return
        if not self._failures:
            self._log.warning("the receiver is away; events wait", why=made.why)
        longest = min(FIRST_PAUSE * 2**self._failures, LONGEST_PAUSE)
        self._failures = min(self._failures + 1, 10)
        self._resume_at = now + (made.pause_seconds or longest) * self._clock.jitter(0.8, 1.2)

    async def _rest(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._life.over()
