"""Deliver events and session outcomes to agents."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from inspect import iscoroutinefunction
from typing import Any

from oauthbroker.core.clock import Clock
from oauthbroker.core.errors import BrokerError, Code, check_argument
from oauthbroker.core.lifecycle import Life, Notifier
from oauthbroker.core.opened_here import OpenedHere
from oauthbroker.events.foreign_events import namespaced_event
from oauthbroker.events.port import EventLease, Queues
from oauthbroker.model.connect_links import locator_of
from oauthbroker.model.current_config import CurrentConfig
from oauthbroker.model.identities import check_agent
from oauthbroker.model.token_request import checked_wait
from oauthbroker.model.token_results import SessionOutcome
from oauthbroker.model.turn import Turn, TurnLike
from oauthbroker.observability.logging import Log
from oauthbroker.repository.repository import Conflict, Repository

POLL_SECONDS = 0.2


class Events:
    """`broker.events`: the queues as agents use them."""

    def __init__(
        self,
        *,
        queues: Queues,
        clock: Clock,
        notifier: Notifier,
        life: Life,
        config: CurrentConfig,
        log: Log,
        opened_here: OpenedHere,
    ) -> None:
        self._queues = queues
        self._log, self._opened_here = log, opened_here
        self._config = config
        self._clock = clock
        self._notifier = notifier
        self._life = life

    async def lease(self, agent: str, *, wait: float = 0, gone: asyncio.Event | None = None) -> EventLease | None:
        """Lease the agent's next event, waiting at most `wait` seconds. None if there is none, if the broker is
        shutting down, or if `gone` is set because the caller has disconnected.

        Settle it with `.ack()` or `.nack()`. Raises `agentForwarded` for an agent whose events are forwarded,
        `requestInvalid` for what names no agent, and for a wait that is negative or no number.
        """
        deadline = self._clock.monotonic() + checked_wait(wait)
        while gone is None or not gone.is_set():
            self.check_polled(agent)
            changed = self._queues.listen()
            delivery = await self._queues.lease(agent)
            if delivery is not None and self._config.bundle.forwards(agent):  # since a moment ago
                await delivery.give_back()
                continue
            left = deadline - self._clock.monotonic()
            if delivery is not None or left <= 0 or self._life.stopping:
                return delivery
            await self._queues.wait(changed, left)
        return None

    def check_polled(self, agent: str) -> None:
        """Raise `agentForwarded` if the configuration forwards the events of an agent: no other consumer may take
        one. Raise `requestInvalid` for what names no agent."""
        self._opened_here.check_open()
        check_agent(agent)
        if self._config.bundle.forwards(agent):
            raise BrokerError(Code.AGENT_FORWARDED)

    async def enqueue(
        self,
        agent: str,
        type: str,  # noqa: A002  (the event's member)
        payload: Mapping[str, Any],
        *,
        turn: TurnLike,
        instance_key: str | None = None,
        idempotency_key: str | None = None,
    ) -> str:
        """Queue an event of another program for an agent, durably, and return its id.

        `type` is `namespace.word`, such as `tool.completed`; the broker's own namespaces (`auth`) are refused. The
        event continues `turn`: it brings its swarm, origin, auth and locale, and its instance unless `instance_key` is
        given. `payload` is a JSON object of at most 64 KiB without secrets. The same `idempotency_key` for the same
        swarm, agent, instance and type is the same event. Raises `requestInvalid`, `QueueFull` or another store code.
        """
        event = namespaced_event(
            agent,
            type,
            payload,
            turn=turn,
            instance_key=instance_key,
            idempotency_key=idempotency_key,
            clock=self._clock,
        )
        await self._queues.enqueue(event)
        self._notifier.notify()
        return event.id

    async def settle(self, agent: str, event_id: str, lease: str, *, done: bool) -> bool:
        """Settle a delivery from another process by its ids: `ack` if `done`, else `nack`. False when the lease is not
        valid. Raises `requestInvalid` for what names no agent, as do the other methods."""
        check_agent(agent)
        settled = await (self._queues.ack if done else self._queues.nack)(agent, event_id, lease)
        self._notifier.notify()  # the conversation's next event may be free now
        return settled

    async def unsettled(self, agent: str, leases: Collection[str]) -> set[str]:
        """Return the leases that are still valid."""
        check_agent(agent)
        return await self._queues.unsettled(agent, leases)

    async def settled(self, agent: str, leases: Collection[str]) -> set[str]:
        """Return the leases that were recently settled, by `ack` or `nack`."""
        check_agent(agent)
        return await self._queues.settled(agent, leases)

    async def dead(self, agent: str) -> list[dict[str, object]]:
        """Return the agent's dead letters, oldest first, as JSON objects."""
        check_agent(agent)
        return [dead.event.to_json() for dead in reversed(await self._queues.dead(agent)) if dead.event is not None]

    @asynccontextmanager
    async def on_granted(self, agent: str, callback: Callable[[EventLease], Awaitable[None]]) -> AsyncIterator[None]:
        """Call `callback` with every event of an agent while the block runs: ack when it returns, nack when it
        raises, which is logged. Raises as `lease`, and `requestInvalid` unless it is an `async def`."""
        is_async = iscoroutinefunction(callback) or iscoroutinefunction(getattr(callback, "__call__", None))  # noqa: B004
        check_argument(is_async, "callback", "an `async def` function of one argument, the event's lease")
        self.check_polled(agent)
        task = asyncio.create_task(self._consume(agent, callback))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _consume(self, agent: str, callback: Callable[[EventLease], Awaitable[None]]) -> None:
        while not self._life.stopping:
            try:
                delivery = await self.lease(agent, wait=30)
                if delivery is not None:
                    await self._hand_over(agent, delivery, callback)
            except (BrokerError, Conflict):  # the store failed: leased events are delivered again after their lease
                await self._clock.sleep(1)

    async def _hand_over(
        self, agent: str, delivery: EventLease, callback: Callable[[EventLease], Awaitable[None]]
    ) -> None:
        try:
            await callback(delivery)
        except Exception as error:  # noqa: BLE001  (after any exception of the callback the event is delivered again)
            self._log.warning("the callback of on_granted failed", agent=agent, error=type(error).__name__)
            done = False
        else:
            done = True
        await (delivery.ack() if done else delivery.nack())


class Outcomes:
    """`broker.wait`: the outcomes of sessions, for callers that do not use the queue."""

    def __init__(self, *, repository: Repository, clock: Clock, notifier: Notifier, life: Life) -> None:
        self._repository = repository
        self._clock = clock
        self._notifier = notifier
        self._life = life

    async def wait(self, auth_session_id: str, timeout: float) -> SessionOutcome:
        """Wait for a session to end: `completed`, `failed` or `expired`. `pending` after `timeout` seconds, or when the
        broker is shutting down.

        An unknown or deleted session counts as expired. Raises `requestInvalid` for a malformed id or time.
        """
        deadline = self._clock.monotonic() + checked_wait(timeout)
        while True:
            signal = self._notifier.listen()
            outcome = await self.now(auth_session_id)
            left = deadline - self._clock.monotonic()
            if outcome.status != "pending" or left <= 0 or self._life.stopping:
                return outcome
            await self._notifier.wait(min(left, POLL_SECONDS), signal)

    async def concern(self, auth_session_id: str, turn: Turn, may_ask: Callable[[str], bool]) -> bool:
        """Return whether the session belongs to the turn's conversation, to one of its subjects, and to an app for
        which `may_ask` is true. Raises `requestInvalid` for a malformed id."""
        versioned = await self._repository.session(locator_of(auth_session_id))
        if versioned is None or not may_ask(versioned.record.app):
            return False
        session, subjects = versioned.record, turn.resume_target.auth.subjects
        return session.resume.address == turn.resume_target.address and session.subject == subjects.get(
            session.subject_mode
        )

    async def now(self, auth_session_id: str) -> SessionOutcome:
        versioned = await self._repository.session(locator_of(auth_session_id))
        if versioned is None:
            return SessionOutcome("expired", auth_session_id=auth_session_id)
        session = versioned.record
        if session.open and session.claim is None and session.is_past(self._clock.now()):
            if session.pending_code is not None:  # the sweeper will write this outcome
                return SessionOutcome("failed", Code.OWNER_BINDING_FAILED, auth_session_id)
            return SessionOutcome("expired", auth_session_id=auth_session_id)
        return SessionOutcome(session.status, session.failure, auth_session_id)
