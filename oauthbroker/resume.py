"""What goes on after consent: outbox -> queue, and the ways an agent hears of it.

The event is durable with the state change that caused it; the relay only moves it. It may move it twice, and the
queue then sees the same id.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime

from oauthbroker.clock import Clock
from oauthbroker.errors import BrokerError, Code
from oauthbroker.lifecycle import Life
from oauthbroker.queue_index import address_of
from oauthbroker.queues import Delivery, Queues
from oauthbroker.records import AgentEvent, AuthSession, Grant
from oauthbroker.records.grant import LONG_AGO
from oauthbroker.repository import Conflict, Due, Entry, Held, Key, Repository
from oauthbroker.results import SessionOutcome
from oauthbroker.revocations import Revocations
from oauthbroker.tracing import Span, span
from oauthbroker.turn import Turn

POLL_SECONDS = 0.2
SETTLE_WAIT_SECONDS = 0.5  # a record that another process holds is settled in a later round
SESSION_ID = re.compile(r"as-([A-Za-z0-9_-]{22})")


class Bell:
    """Wakes everybody in this process who waits for something to move; others find out by polling."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def ring(self) -> None:
        self._rung.set()
        self._rung = asyncio.Event()

    def listen(self) -> asyncio.Event:
        """Call this before looking, and hand it to `wait` after: a ring in between is heard then."""
        return self._rung

    async def wait(self, seconds: float, rung: asyncio.Event | None = None) -> None:
        """Returns when the bell rings, or has rung since `rung` was got from `listen`, or after `seconds`."""
        try:
            async with asyncio.timeout(max(seconds, 0)):
                await (rung or self._rung).wait()
        except TimeoutError:
            return


@dataclass(frozen=True, slots=True)
class _Work:
    """A record that is due, and which of its events were queued."""

    due: Due
    grant: Held[Grant] | None
    session: Held[AuthSession] | None
    queued: set[str] = field(default_factory=set)

    @property
    def events(self) -> tuple[AgentEvent, ...]:
        if self.grant is not None:
            return self.grant.record.outbox
        outbox = self.session.record.outbox if self.session is not None else None
        return (outbox,) if outbox is not None else ()


def _in_order(found: Iterable[_Work]) -> list[tuple[AgentEvent | None, _Work]]:
    """Every event with its record, the oldest first; records without events before them. The events of one record stay
    in its order, also where the clock was set back meanwhile."""
    placed = list[tuple[datetime, AgentEvent | None, _Work]]()
    for work in found:
        at = LONG_AGO
        if not work.events:
            placed.append((at, None, work))
        for event in work.events:
            at = max(at, event.created_at)
            placed.append((at, event, work))
    return [(event, work) for _, event, work in sorted(placed, key=lambda each: each[0])]


class Relay:
    """Moves events from the records that caused them to their queues. Reads only what is marked due."""

    def __init__(self, repository: Repository, queues: Queues, revocations: Revocations, bell: Bell) -> None:
        self._repository = repository
        self._queues = queues
        self._revocations = revocations
        self._bell = bell
        self._one_at_a_time = asyncio.Lock()
        self._idle: dict[Key, Entry] = {}

    async def once(self) -> int:
        """Queues every event that is due; how many records it settled. Never waits for a provider.

        Events leave in the order in which they happened, across all records. A record that cannot be read or
        is being changed keeps no other one back; then the store code is raised last. An event that cannot be queued
        keeps back only what follows it in its conversation.
        """
        settled, stuck = 0, set[str]()
        async with self._one_at_a_time:
            found, failed = await self._found()
            for event, work in _in_order(found):
                if event is not None and address_of(event) in stuck:
                    continue
                try:
                    with span(Span.RELAY, app=work.due.app):
                        settled += await self._move(event, work)
                except Conflict:
                    continue
                except BrokerError as error:
                    failed = error
                    stuck |= {address_of(event)} if event is not None and event.id not in work.queued else set()
        self._bell.ring()
        if failed is not None:
            raise failed
        return settled

    async def tidy(self) -> None:
        """After a crash: removes what acknowledged events may have left."""
        await self._queues.tidy()

    async def revocations(self) -> None:
        """Tells providers of what has ended and they have not heard of yet."""
        await self._revocations.round()

    async def _found(self) -> tuple[list[_Work], BrokerError | None]:
        """What is due, without the records that waited for their provider alone when they were read last and have not
        changed since; and the store code that was met last."""
        found, idle, failed = list[_Work](), dict[Key, Entry](), None
        for due in await self._repository.due():
            seen = self._idle.get(due.key)
            if seen is not None and self._repository.unchanged(seen):
                idle[due.key] = seen
                continue
            try:
                grant = await self._repository.due_grant(due)
                session = await self._repository.due_session(due) if grant is None else None
            except BrokerError as error:
                failed = error
                continue
            if grant is not None and grant.record.unfinished and not grant.record.outbox:
                idle[due.key] = grant.entry.without_body()
            else:
                found.append(_Work(due, grant, session))
        self._idle = idle
        return found, failed

    async def _move(self, event: AgentEvent | None, work: _Work) -> bool:
        """Queues one event of a record, and settles the record after its last one."""
        if event is not None:
            await self._queues.enqueue(event)
            work.queued.add(event.id)
        if len(work.queued) < len(work.events):
            return False
        if work.grant is not None:
            return await self._settle_grant(work.due, work.grant.record, work.queued)
        if work.session is not None:
            return await self._settle_session(work.due, work.session.record)
        return await self._work_nothing(work.due)

    async def _work_nothing(self, due: Due) -> bool:
        """The marker comes before its record: only under the pair's lease is a missing record surely not coming."""
        async with self._repository.pair(due.app, due.subject, wait=SETTLE_WAIT_SECONDS):
            if await self._repository.due_grant(due) is None and await self._repository.due_session(due) is None:
                await self._repository.settle(due)
                return True
        return False

    async def _settle_grant(self, due: Due, grant: Grant, queued: set[str]) -> bool:
        async with self._repository.pair(grant.app, grant.subject, wait=SETTLE_WAIT_SECONDS):
            now_there = await self._repository.grant(grant.app, grant.subject)
            if now_there is None:
                await self._repository.settle(due)
                return True
            return await self._clear_outbox(due, now_there, queued)

    async def _clear_outbox(self, due: Due, held: Held[Grant], queued: set[str]) -> bool:
        """An entry goes once its session is terminal: until then it is the proof that the session succeeded."""
        grant = held.record
        for event in grant.outbox:
            if event.id in queued and await self._is_over(event.payload.get("authSessionId", "")):
                grant = grant.sent(event.id)
        if grant is not held.record:
            held = await self._repository.save_grant(grant, expect=held.generation)
        if held.record.unfinished:
            return False
        await self._repository.settle(due)
        return True

    async def _is_over(self, session_id: str) -> bool:
        held = await self._repository.session(session_id.removeprefix("as-"))
        return held is None or not held.record.open

    async def _settle_session(self, due: Due, session: AuthSession) -> bool:
        async with self._repository.pair(session.app, session.subject, wait=SETTLE_WAIT_SECONDS):
            now_there = await self._repository.session(session.locator)
            left = now_there.record.outbox if now_there is not None else None
            if now_there is not None and left is not None:
                if left != session.outbox:  # it came after we looked: the next round queues it
                    return False
                await self._repository.save_session(now_there.record.sent(), expect=now_there.generation)
            await self._repository.settle(due)
        return True


class Events:
    """`broker.events`: the agents' side of the queues."""

    def __init__(self, queues: Queues, clock: Clock, bell: Bell, life: Life) -> None:
        self._queues = queues
        self._clock = clock
        self._bell = bell
        self._life = life

    async def lease(self, agent: str, *, wait: float = 0, gone: asyncio.Event | None = None) -> Delivery | None:
        """The agent's next event, for at most `wait` seconds of waiting; none at once when the broker is ending, or
        when `gone` is set: whoever asked does not wait any more, and gets no lease.

        Settle it with `.ack()` or `.nack()`.
        """
        deadline = self._clock.monotonic() + wait
        while gone is None or not gone.is_set():
            rung = self._bell.listen()
            delivery = await self._queues.lease(agent)
            left = deadline - self._clock.monotonic()
            if delivery is not None or left <= 0 or self._life.stopping:
                return delivery
            await self._bell.wait(min(left, POLL_SECONDS), rung)
        return None

    async def settle(self, agent: str, event_id: str, lease: str, *, done: bool) -> bool:
        """`ack` (done) or `nack` by what a delivery is known by elsewhere. False when the lease does not hold."""
        settled = await (self._queues.ack if done else self._queues.nack)(agent, event_id, lease)
        self._bell.ring()  # the conversation's next event may be free now
        return settled

    async def unsettled(self, agent: str, leases: Collection[str]) -> set[str]:
        """Those of the leases that still hold."""
        return await self._queues.unsettled(agent, leases)

    async def settled(self, agent: str, leases: Collection[str]) -> set[str]:
        """Those of the leases that were settled lately, by `ack` or by `nack`."""
        return await self._queues.settled(agent, leases)

    async def dead(self, agent: str) -> list[dict[str, object]]:
        """Dead letters of an agent, oldest first, as their JSON."""
        return [event.to_json() for event in await self._queues.dead(agent)]

    @asynccontextmanager
    async def on_granted(self, agent: str, callback: Callable[[Delivery], Awaitable[None]]) -> AsyncIterator[None]:
        """Calls back for every event of an agent while the block runs: ack when it returns, nack when it raises."""
        task = asyncio.create_task(self._consume(agent, callback))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _consume(self, agent: str, callback: Callable[[Delivery], Awaitable[None]]) -> None:
        while not self._life.stopping:
            try:
                delivery = await self.lease(agent, wait=30)
                if delivery is not None:
                    await _hand_over(delivery, callback)
            except (BrokerError, Conflict):  # a store that does not work now: what was leased comes again by itself
                await self._clock.sleep(1)


async def _hand_over(delivery: Delivery, callback: Callable[[Delivery], Awaitable[None]]) -> None:
    try:
        await callback(delivery)
    except Exception:  # noqa: BLE001  (whatever their code raises, the event must come again)
        done = False
    else:
        done = True
    await (delivery.ack() if done else delivery.nack())


class Outcomes:
    """`broker.wait`: how a session ended, for loops without the queue."""

    def __init__(self, repository: Repository, clock: Clock, bell: Bell, life: Life) -> None:
        self._repository = repository
        self._clock = clock
        self._bell = bell
        self._life = life

    async def wait(self, auth_session_id: str, timeout: float) -> SessionOutcome:
        """`completed`, `failed` or `expired`; `pending` when `timeout` seconds have passed, or the broker is ending.

        A session that is not known, or not any more, has expired. Raises `requestInvalid` for what is not an id.
        """
        deadline = self._clock.monotonic() + timeout
        while True:
            rung = self._bell.listen()
            outcome = await self.now(auth_session_id)
            left = deadline - self._clock.monotonic()
            if outcome.status != "pending" or left <= 0 or self._life.stopping:
                return outcome
            await self._bell.wait(min(left, POLL_SECONDS), rung)

    async def concern(self, auth_session_id: str, turn: Turn, may_ask: Callable[[str], bool]) -> bool:
        """Whether a turn's own conversation asked for this, for a subject of this very turn, with an app that
        `may_ask`. Raises `requestInvalid` for what is not a session's id."""
        held = await self._repository.session(locator_of(auth_session_id))
        if held is None or not may_ask(held.record.app):
            return False
        session, subjects = held.record, turn.resume_target.auth.subjects
        return session.resume.address == turn.resume_target.address and session.subject == subjects.get(
            session.subject_mode
        )

    async def now(self, auth_session_id: str) -> SessionOutcome:
        held = await self._repository.session(locator_of(auth_session_id))
        if held is None:
            return SessionOutcome("expired", auth_session_id=auth_session_id)
        session = held.record
        if session.open and session.claim is None and session.is_past(self._clock.now()):
            if session.parked is not None:  # as the sweeper will write it
                return SessionOutcome("failed", Code.OWNER_BINDING_FAILED, auth_session_id)
            return SessionOutcome("expired", auth_session_id=auth_session_id)
        return SessionOutcome(session.status, session.failure, auth_session_id)


def locator_of(auth_session_id: str) -> str:
    """The locator in `as-<locator>`. Raises `requestInvalid`."""
    match = SESSION_ID.fullmatch(auth_session_id) if isinstance(auth_session_id, str) else None
    if match is None:
        raise BrokerError(Code.REQUEST_INVALID, note="authSessionId")
    return match[1]
