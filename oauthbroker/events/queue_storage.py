"""Keep queues in the store: a head for each agent, segments with the order and state of its events, and the events'
bodies beside them.

A body is stored before its place in a segment, and deleted after it. An operation compares the head, the last segment
and those of its events with the store, and reads what another process has changed. All segments are compared when
another process has changed the head: then events may have left, or moved.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import TypeVar

from oauthbroker.core.bounded_cache import Bounded
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import current_pass, to_its_end
from oauthbroker.events.damaged_queues import Damaged, opened_part, rebuilt
from oauthbroker.events.known_queue import KnownQueue
from oauthbroker.events.queue_index import Index, Plan
from oauthbroker.events.shared_changes import SharedChanges
from oauthbroker.records import AgentEvent
from oauthbroker.records.event_queue import Head, Item, Segment
from oauthbroker.repository.queue_parts import HEAD
from oauthbroker.repository.repository import Conflict, Entry, Key, Repository
from oauthbroker.repository.versioned import opened, readable

CACHED = 20_000  # agents
CACHED_BYTES = 48 * 1024 * 1024  # by their weight, which takes up to three times as much memory
TRIES = 4  # readings without the lock, of a queue that changes meanwhile
_BREATH, _READ = 256, 32  # parts that are compared before other tasks may run; one that is read counts so often

T = TypeVar("T")
Look = Callable[[Index], Awaitable[object]]
"""Compares the parts of a queue that an operation uses with the store."""


class QueueStorage:
    """The stored indexes of all agents' queues. Every method may raise `BrokerError` with a store code."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._parts = repository.queue_parts
        self._known = Bounded[str, KnownQueue](CACHED, most_bytes=CACHED_BYTES, size_of=attrgetter("weight"))
        self._begun: set[str] = set()  # agents that have parts: no head is ever deleted, a missing one is damage
        self._looked, self._looking = False, asyncio.Lock()
        self._changes = SharedChanges[Index]()

    def changing(self, agent: str, *, has_events: bool = False) -> AbstractAsyncContextManager[Index]:
        """Change the index under the queue's lock, and write it once for all changes that wait at the same time. A body
        looks at the segments that it reads. `has_events`: events of the agent are stored, so that a missing head is
        rebuilt."""
        key = (agent, has_events, current_pass.get())
        return self._changes.change(key, partial(self._locked, agent, has_events=has_events))

    @asynccontextmanager
    async def _locked(self, agent: str, *, has_events: bool) -> AsyncIterator[Index]:
        """Open the index under the queue's lock. Write new bodies and the changed parts, and delete unneeded bodies."""
        async with self._parts.lock(agent):
            yield (index := await self._found_or_rebuilt(agent, has_events=has_events))
            gone = [event_id for event_id in sorted(index.gone) if not index.needs(event_id)]
            if index.is_sparse:
                await self.look_at_all(index)
                index.join()
            plan = index.plan()
            if plan is None:
                await self._parts.sync()
                return
            await to_its_end(asyncio.ensure_future(self._write(agent, plan, index.bodies, gone)))

    async def _write(self, agent: str, plan: Plan, bodies: Sequence[AgentEvent], gone: Sequence[str]) -> None:
        """Write the new bodies and the parts, then delete the events that have left. A caller that is cancelled in
        between waits for all of it: else bodies without a place would stay until the next start."""
        if bodies:
            await _each(self._repository.events.keep, bodies)
        lost = True
        with suppress(Conflict):
            if plan.first is not None or plan.last is not None:
                for number in plan.before:
                    await self._drop(agent, number)
            if plan.first is not None:
                await self._put(agent, HEAD, plan.first)
            for segment in plan.segments:
                await self._put(agent, segment.number, segment)
            if plan.last is not None:
                await self._put(agent, HEAD, plan.last)
            lost = False
        if lost:
            raise BrokerError(Code.STORE_LOCKED, note="the queue was changed without its lock")
        for number in plan.after:
            await self._drop(agent, number)
        if gone:
            await _each(self._repository.events.drop, gone)

    async def _drop(self, agent: str, number: int) -> None:
        await self._parts.drop(agent, number)

    async def _put(self, agent: str, number: int, part: Head | Segment) -> None:
        known = self._known.get(agent) or KnownQueue(agent)
        before, body = known.versions.get(number), part.to_plaintext()
        known.doubt(number)
        expect = before.generation if before is not None else await self._parts.generation(agent, number)
        version = (await self._parts.put(agent, number, body, expect=expect)).without_body()
        self._note(agent, known, part, version)

    def _note(self, agent: str, known: KnownQueue, part: Head | Segment, version: Entry | None) -> None:
        if isinstance(part, Segment):
            known.put(part, version)
        elif version is not None:
            known.put_head(part, version)
        self._begun.add(agent)
        if known is self._known.get(agent):
            self._known.keep(agent, known)

    async def read(self, agent: str, look: Look) -> Index:
        """Return the current index of what `look` looks at. Takes the lock only for one that is damaged, which is
        rebuilt, or that others change all the time."""
        with suppress(Damaged):
            for _ in range(TRIES):
                index = await self._found(agent)
                await look(index)
                version = index.known.versions.get(HEAD)
                current = version is None or await self._parts.is_current(version)
                if current and index.head is index.known.head:  # no segment was retired meanwhile
                    return index
        async with self.changing(agent) as index:
            await look(index)
            return index

    async def look(self, index: Index, event_ids: Collection[str]) -> None:
        """Look at the segments that may have these events. The last one was compared as the index was opened."""
        named = {number for event_id in event_ids for number in index.naming(event_id)}
        await self._compare(index.known, named.difference(index.head.segments[-1:]))

    async def look_at_leases(self, index: Index, leases: Collection[str]) -> None:
        """Look at the segments of the events that were leased so."""
        places = [index.known.leases.get(lease, ()) for lease in leases]
        if all(places):
            await self._compare(index.known, {number for each in places for number in each})
        else:  # another process has leased the event, or the head remembers the lease
            await self.look_at_all(index)

    async def look_at_all(self, index: Index) -> None:
        await self._compare(index.known, index.known.head.segments)

    async def next_free(self, index: Index, now: datetime) -> Item | None:
        """Return the item that is leased next, as `Index.next_free`. It also spares the last segment."""
        while True:
            item, doubtful = index.next_free(now)
            if not await self._compare(index.known, doubtful.difference(index.head.segments[-1:])):
                return item

    def seems_free(self, agent: str, now: datetime) -> bool:
        """Return whether an item was free when this process last used the queue. Reads nothing."""
        known = self._known.get(agent)
        return known is not None and Index(known).next_free(now)[0] is not None

    async def all(self) -> AsyncIterator[Index]:
        """Yield the index of every agent, as it is. One that cannot be read is left out: its next use repairs it."""
        agents = set[str]()
        async for entry in self._parts.scan(self._segment_keys()):
            with suppress(BrokerError):
                agents.add(opened(Head.from_plaintext, entry).agent)
        for agent in agents - {""}:
            with suppress(BrokerError):
                for _ in range(TRIES):
                    index = await self._found(agent, whole=False)
                    await self._compare(index.known, index.head.segments, whole=False)
                    if index.head is index.known.head:
                        yield index
                        break

    async def repair(self, agent: str) -> None:
        """Rebuild the index of an agent whose events are stored, if its head is missing."""
        if await readable(self._parts.get(agent, HEAD)) is None:
            async with self.changing(agent, has_events=True):
                """The new index is written."""

    async def _found_or_rebuilt(self, agent: str, *, has_events: bool) -> Index:
        """Return the index. Called under the queue's lock, so that each listed part must be there."""
        with suppress(Damaged):
            index = await self._found(agent)
            if index.head == Head(agent) and not (has_events or self._looked):
                await self._look()
                index = await self._found(agent)
            if index.head != Head(agent) or not has_events:
                return index
        self._known.pop(agent)
        plan = (await rebuilt(self._repository, agent)).plan()
        if plan is not None:
            await to_its_end(asyncio.ensure_future(self._write(agent, plan, (), ())))
        return await self._found(agent)

    async def _look(self) -> None:
        """Find the agents that have segments, once for all: parts that come later are noted as they are seen."""
        async with self._looking:
            if self._looked:
                return
            async for entry in self._parts.scan(self._segment_keys()):
                with suppress(BrokerError):
                    self._begun.add(opened(Segment.from_plaintext, entry).agent)
            self._looked = True

    def _segment_keys(self) -> set[Key]:
        versions = [each.versions for each in self._known.values()]
        return {entry.key for each in versions for number, entry in each.items() if number != HEAD}

    async def _found(self, agent: str, *, whole: bool = True) -> Index:
        """Return the index as stored, its head and its last segment as new as the store, and all segments if another
        process has changed the head. Raises `Damaged` if a part cannot be opened, or is missing and `whole` is true; a
        newer version's part raises."""
        known = self._known.get(agent)
        if known is None:
            self._known.keep(agent, known := KnownQueue(agent))
        else:
            self._known.touch(agent)
        before = known.versions.get(HEAD)
        if before is None or not self._parts.unchanged(before):
            known.doubt(HEAD)
            found = await opened_part(self._parts, agent, HEAD, Head.from_plaintext)
            if found is None and agent in self._begun:
                raise Damaged(None)
            if found is not None:
                self._note(agent, known, *found)
                known.unread.update(found[0].segments)
        await self._compare(known, known.head.segments[-1:], whole=whole)
        return Index(known)

    async def _compare(self, known: KnownQueue, numbers: Collection[int], *, whole: bool = True) -> bool:
        """Compare these segments with the store, and read those that have changed, or were not read. Return whether
        there was one."""
        changed, work = False, 0
        for number in (*known.unread, *numbers):
            before = known.versions.get(number)
            if before is not None and self._parts.unchanged(before):
                known.unread.discard(number)
                work += 1
            elif number in known.segments or number in known.unread:
                changed, work = True, work + _READ
                await self._read(known, number, whole=whole)
            if work >= _BREATH:
                work = 0
                await asyncio.sleep(0)
        return changed

    async def _read(self, known: KnownQueue, number: int, *, whole: bool) -> None:
        """Read a listed segment. A process that crashed may have listed it and not have written it."""
        agent = known.head.agent
        known.doubt(number)
        found = await opened_part(self._parts, agent, number, Segment.from_plaintext)
        if found is None and whole:
            raise Damaged(None)
        if number not in known.versions:  # no change of this process was faster
            self._note(agent, known, *(found or (Segment(agent=agent, number=number), None)))


async def _each(work: Callable[[T], Awaitable[None]], all_of: Sequence[T]) -> None:
    """Do the work on each at the same time, so that they share syncs. All end before the first error is raised."""
    if len(all_of) == 1:
        await work(all_of[0])
        return
    for error in await asyncio.gather(*map(work, all_of), return_exceptions=True):
        if error is not None:
            raise error
