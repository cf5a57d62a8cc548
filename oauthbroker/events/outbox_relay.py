"""Relay events from the outboxes of records to the queues.

An event is stored in one write with the state change that caused it. The relay may queue it twice; the queue drops the
second by its id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from oauthbroker.core.dataclasses import dataclass, field, replace
from oauthbroker.core.errors import BrokerError
from oauthbroker.core.lifecycle import Notifier, Pass
from oauthbroker.events.port import QueueFull, Queues, address_of
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.observability.tracing import Span, span
from oauthbroker.records import AgentEvent, AuthSession, Grant
from oauthbroker.repository.repository import Conflict, Due, Repository, Versioned
from oauthbroker.repository.versioned import readable


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """A due record, and which of its events were queued."""

    due: Due
    grant: Versioned[Grant] | None
    session: Versioned[AuthSession] | None
    queued: set[str] = field(default_factory=set)

    @property
    def key(self) -> GrantKey:
        versioned = self.grant or self.session
        return versioned.record.key if versioned is not None else self.due.grant

    @property
    def events(self) -> tuple[AgentEvent, ...]:
        if self.grant is not None:
            return self.grant.record.outbox
        outbox = self.session.record.outbox if self.session is not None else None
        return (outbox,) if outbox is not None else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Queued:
    """An event that was queued when the store had this history, which may be lost. None: its place is lost."""

    event: AgentEvent
    app: str
    history: str | None


def _in_order(found: Iterable[_Work]) -> list[tuple[AgentEvent, _Work]]:
    """Return every event with its record, in the order in which they happened."""
    placed = [(event, work) for work in found for event in work.events]
    return sorted(placed, key=lambda each: each[0].order)


class Relay:
    """Moves events from outboxes to queues. Reads only the records marked as due."""

    def __init__(self, *, repository: Repository, queues: Queues, notifier: Notifier) -> None:
        self._repository = repository
        self._queues = queues
        self._notifier = notifier
        self._one_at_a_time = asyncio.Lock()
        self._history: str | None = None  # of the store, when it was last looked at
        self._unconfirmed: dict[str, _Queued] = {}

    async def once(self) -> int:
        """Queue every due event; return how many records were settled. Never waits for a provider.

        Events are queued by their numbers, across all records that are stored. A record that cannot be read or is
        being changed delays no other one; the store code is raised at the end. An event that cannot be queued delays
        only the later ones of its conversation, or of its agent if the queue is full.
        """
        async with self._one_at_a_time:
            this_pass = Pass()
            stuck = await self._confirm(this_pass)  # earlier events first
            found, until = await self._found(this_pass)
            if found and self._history is None:
                self._history = await self._repository.history()
            await self._queue(found, until, stuck, this_pass)
            self._notifier.notify()
            settled = await self._settle(found, this_pass)
            await self._confirm(this_pass)
        this_pass.over()
        return settled

    async def _found(self, this_pass: Pass) -> tuple[list[_Work], int]:
        """Return the due records, and the number of the last event that may be queued.

        Records change while they are read. An event that was stored after the reading began may have been found, and an
        earlier one of its conversation overlooked, so it waits for the next pass.
        """
        order = self._repository.event_order
        for _ in range(2):
            until = await order.newest()
            found = await self._read(this_pass)
            newest = max((event.order for work in found for event in work.events), default=0)
            if newest <= until or not await order.catch_up(newest):
                return found, until
        return found, newest  # the last number was lost, and cannot be stored

    async def _read(self, this_pass: Pass) -> list[_Work]:
        """Return the due records, except grants that only wait for their provider."""
        found = list[_Work]()
        for due in await self._repository.due(lambda _, pending: not pending.has_events):
            with this_pass.entry():
                grant = await self._repository.due_grant(due)
                session = await self._repository.due_session(due) if grant is None else None
                if grant is None or grant.record.outbox or not grant.record.unfinished:
                    found.append(_Work(due=due, grant=grant, session=session))
        return found

    async def _queue(self, found: Iterable[_Work], until: int, stuck: set[str], this_pass: Pass) -> None:
        """Queue every event up to that number before any record is settled, so that no locked pair delays one."""
        for event, work in _in_order(found):
            if event.order > until:
                break
            if await self._enqueue(event, work.due.grant.app, stuck, this_pass):
                work.queued.add(event.id)

    async def _enqueue(self, event: AgentEvent, app: str, stuck: set[str], this_pass: Pass) -> bool:
        """Queue an event, unless an earlier one of its conversation is stuck, or one of its agent in a full queue."""
        agent, address = event.target.agent_name, address_of(event)
        if not stuck.isdisjoint({agent, address}):
            return False
        with this_pass.entry():
            try:
                with span(Span.RELAY, app=app):
                    await self._queues.enqueue(event)
            except BrokerError as error:
                stuck.add(agent if isinstance(error, QueueFull) else address)
                raise
            self._unconfirmed[event.id] = _Queued(event=event, app=app, history=self._history)
            return True
        return False

    async def _settle(self, found: Iterable[_Work], this_pass: Pass) -> int:
        """Settle the records whose events were all queued, and return how many."""
        settled = 0
        for work in found:
            if work.queued.issuperset(event.id for event in work.events):
                with this_pass.entry(), suppress(Conflict):
                    settled += await self._settle_one(work)
        return settled

    async def _confirm(self, this_pass: Pass) -> set[str]:
        """Queue the events again if the store has lost its last writes meanwhile: a standby that took over lacks their
        places in the queue, and their outboxes were settled there. What fails is tried again by the next pass. Return
        the conversations of these events, and the agents whose queue is full: no later event may overtake one."""
        stuck = set[str]()
        while self._unconfirmed:
            is_known = False
            with this_pass.entry():
                self._history, is_known = await self._repository.history(), True
            if not is_known:
                return stuck | {address_of(each.event) for each in self._unconfirmed.values()}
            lost = [each for each in self._unconfirmed.values() if each.history != self._history]
            lost.sort(key=lambda each: each.event.order)
            self._unconfirmed = {each.event.id: replace(each, history=None) for each in lost}
            if not any([await self._enqueue(each.event, each.app, stuck, this_pass) for each in lost]):
                break
        return stuck

    async def _settle_one(self, work: _Work) -> bool:
        """Remove the queued events of a record, and its marker unless work is left. A marker is written before its
        record, so only under the pair's lease it is certain that the record is missing."""
        due = work.due
        async with self._repository.pair(work.key):
            if work.grant is not None:
                settled = await self._settle_grant(work.grant.record, work.queued)
            elif work.session is not None:
                settled = await self._settle_session(work.session.record)
            else:
                found = await self._repository.due_grant(due) or await self._repository.due_session(due)
                settled = found is None
            if settled:
                await self._repository.markers.settle(due)
            return settled

    async def _settle_grant(self, grant: Grant, queued: set[str]) -> bool:
        """Remove queued events from the outbox once their session has ended. Until then the event proves that the
        session succeeded."""
        versioned = await self._repository.grant(grant.key)
        if versioned is None:
            return True
        left = versioned.record
        for event in versioned.record.outbox:
            if event.id in queued and await self._is_over(event.payload.get("authSessionId", "")):
                left = left.sent(event.id)
        if left is not versioned.record:
            left = (await self._repository.save_grant(left, expect=versioned.generation)).record
        return not left.unfinished

    async def _is_over(self, session_id: str) -> bool:
        """Return whether the session has ended. An unreadable one counts as ended."""
        versioned = await readable(self._repository.session(session_id.removeprefix("as-")))
        return versioned is None or not versioned.record.open

    async def _settle_session(self, session: AuthSession) -> bool:
        versioned = await self._repository.session(session.locator)
        if versioned is not None and versioned.record.outbox is not None:
            if versioned.record.outbox != session.outbox:  # a newer event: the next pass queues it
                return False
            await self._repository.save_session(versioned.record.sent(), expect=versioned.generation)
        return True
