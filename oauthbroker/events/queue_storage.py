"""Keep queues in the store: a head for each agent, segments with the order and state of its events, and the events'
bodies beside them.

A body is stored before its place in a segment, and deleted after it. Parts are parsed once for each version.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from operator import attrgetter
from typing import TypeVar

from oauthbroker.core.bounded_cache import Bounded
from oauthbroker.core.dataclasses import dataclass, replace
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import current_pass, to_its_end
from oauthbroker.events.port import address_of
from oauthbroker.events.queue_index import Index, Plan
from oauthbroker.events.shared_changes import SharedChanges
from oauthbroker.records import AgentEvent
from oauthbroker.records.event_queue import Head, Item, Segment
from oauthbroker.repository.queue_parts import HEAD
from oauthbroker.repository.repository import Conflict, Entry, Repository
from oauthbroker.repository.versioned import UNREADABLE, in_place, opened, readable

CACHED = 20_000  # parsed parts
CACHED_BYTES = 8 * 1024 * 1024  # as stored; parsed they take up to three times as much memory
TRIES = 4  # readings without the lock, of a queue that changes meanwhile

T = TypeVar("T")
P = TypeVar("P", Head, Segment)


@dataclass(frozen=True, slots=True)
class _ParsedPart:
    """A parsed part, and the version that it was read from."""

    part: Head | Segment
    entry: Entry
    size: int


class _Damaged(Exception):
    """A part cannot be opened, or is missing. The queue is rebuilt under its lock."""

    def __init__(self, code: Code | None) -> None:
        """`code` is None if the part is missing."""
        super().__init__(code)
        self.code = code


class QueueStorage:
    """The stored indexes of all agents' queues. Every method may raise `BrokerError` with a store code."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._parts = repository.queue_parts
        self._cache = Bounded[tuple[str, int], _ParsedPart](CACHED, most_bytes=CACHED_BYTES, size_of=attrgetter("size"))
        self._begun: set[str] = set()  # agents that have parts: no head is ever deleted, a missing one is damage
        self._looked, self._looking = False, asyncio.Lock()
        self._changes = SharedChanges[Index]()

    def changing(self, agent: str, *, has_events: bool = False) -> AbstractAsyncContextManager[Index]:
        """Change the index under the queue's lock, and write it once for all changes that wait at the same time.
        `has_events`: events of the agent are stored, so that a missing head is rebuilt."""
        key = (agent, has_events, current_pass.get())
        return self._changes.change(key, partial(self._locked, agent, has_events=has_events))

    @asynccontextmanager
    async def _locked(self, agent: str, *, has_events: bool) -> AsyncIterator[Index]:
        """Open the index under the queue's lock. Write new bodies and the changed parts, and delete unneeded bodies."""
        async with self._parts.lock(agent):
            yield (index := await self._found_or_rebuilt(agent, has_events=has_events))
            plan = index.plan()
            if plan is None:
                await self._parts.sync()
                return
            gone = [event_id for event_id in sorted(index.gone) if not index.needs(event_id)]
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
        self._cache.pop((agent, number))
        await self._parts.drop(agent, number)

    async def _put(self, agent: str, number: int, part: Head | Segment) -> None:
        cached, body = self._cache.pop((agent, number)), part.to_plaintext()
        expect = cached.entry.generation if cached is not None else await self._parts.generation(agent, number)
        entry = await self._parts.put(agent, number, body, expect=expect)
        self._cache.keep((agent, number), _ParsedPart(part, entry.without_body(), len(body)))
        self._begun.add(agent)

    async def read(self, agent: str) -> Index:
        """Return the current index. Takes the lock only for one that is damaged, which is rebuilt, or that others
        change all the time."""
        with suppress(_Damaged):
            for _ in range(TRIES):
                index = await self._found(agent)
                cached = self._cache.get((agent, HEAD))
                if cached is None or await self._parts.is_current(
                    cached.entry
                ):  # no segment was retired while it was read
                    return index
        async with self.changing(agent) as index:
            return index

    async def all(self) -> AsyncIterator[Index]:
        """Yield the index of every agent, as it is. One that cannot be read is left out: its next use repairs it."""
        agents = set[str]()
        async for entry in self._parts.scan():
            with suppress(BrokerError):
                agents.add(opened(Head.from_plaintext, entry).agent)
        for agent in agents - {""}:
            with suppress(BrokerError, _Damaged):
                yield await self._found(agent, whole=False)

    async def repair(self, agent: str) -> None:
        """Rebuild the index of an agent whose events are stored, if its head is missing."""
        if await readable(self._parts.get(agent, HEAD)) is None:
            async with self.changing(agent, has_events=True):
                """The new index is written."""

    async def _found_or_rebuilt(self, agent: str, *, has_events: bool) -> Index:
        """Return the index. Called under the queue's lock, so that each listed part must be there."""
        with suppress(_Damaged):
            index = await self._found(agent)
            if index.head == Head(agent) and not (has_events or self._looked):
                await self._look()
                index = await self._found(agent)
            if index.head != Head(agent) or not has_events:
                return index
        return await self._rebuilt(agent)

    async def _look(self) -> None:
        """Find the agents that have segments, once for all: parts that come later are noted as they are seen."""
        async with self._looking:
            if self._looked:
                return
            async for entry in self._parts.scan({self._parts.key(*each) for each in self._cache}):
                with suppress(BrokerError):
                    self._begun.add(opened(Segment.from_plaintext, entry).agent)
            self._looked = True

    async def _found(self, agent: str, *, whole: bool = True) -> Index:
        """Return the index as stored. Raises `_Damaged` if a part cannot be opened, or is missing and `whole` is true;
        a newer version's part raises."""
        head = await self._part(agent, HEAD, Head.from_plaintext) or Head(agent)
        return Index(agent, head, [await self._segment(agent, number, whole=whole) for number in head.segments])

    async def _segment(self, agent: str, number: int, *, whole: bool) -> Segment:
        """Return a listed segment. A process that crashed may have listed it and not have written it."""
        segment = await self._part(agent, number, Segment.from_plaintext)
        if segment is None and whole:
            raise _Damaged(None)
        return segment or Segment(agent=agent, number=number)

    async def _part(self, agent: str, number: int, read: Callable[[bytes], P]) -> P | None:
        cached = self._cache.get((agent, number))
        if cached is None or not self._parts.unchanged(cached.entry):
            cached = await self._opened(agent, number, read)
            if cached is None and number == HEAD and agent in self._begun:
                raise _Damaged(None)
        return cached.part if cached is not None else None  # type: ignore[return-value]

    async def _opened(self, agent: str, number: int, read: Callable[[bytes], P]) -> _ParsedPart | None:
        self._cache.pop((agent, number))
        try:
            entry = await self._parts.get(agent, number)
        except BrokerError as error:
            if error.code not in UNREADABLE:
                raise
            raise _Damaged(error.code) from None
        if entry is None:
            return None
        part = opened(read, entry)
        in_place(entry, self._parts.key(part.agent or agent, part.number if isinstance(part, Segment) else HEAD))
        cached = _ParsedPart(part, entry.without_body(), len(entry.body))
        self._cache.keep((agent, number), cached)
        self._begun.add(agent)
        return cached

    async def _rebuilt(self, agent: str) -> Index:
        """Rebuild the index from the stored events. An event whose segment or head still opens keeps its place and
        state. Others lose their leases and counts, so they may be delivered again. No event is lost."""
        head, segments, bad = await self._left(agent)
        found = [each for each in segments.values() if each is not None]
        settled = (*head.settled, *(each for segment in found for each in segment.settled))
        known = {item.id for segment in found for item in segment.items}
        known |= {item.id for item in head.dead} | {each.id for each in settled if each.done}
        kept = {event.id: event async for event in self._repository.events.all() if event.target.agent_name == agent}
        lost = sorted((event for event in kept.values() if event.id not in known), key=lambda event: event.order)
        begun = HEAD if not segments else max(segments) if len(lost) <= 1 else None
        for number, code in bad.items():
            if code is not None or number != begun:  # a crash leaves a part without its first version
                self._parts.report(agent, number, code or Code.RECORD_CORRUPT)
        items = _in_order([*segments.values(), None], kept, lost)
        return Index.rebuilt(agent, replace(head, settled=settled), segments, items)

    async def _left(self, agent: str) -> tuple[Head, dict[int, Segment | None], dict[int, Code | None]]:
        """Return the head, empty if it cannot be read, the segments that it lists, or all, and the fault of each
        bad part: its code, or None for a missing one. A segment that cannot be read is None."""
        head, bad, segments = None, dict[int, Code | None](), dict[int, Segment | None]()
        try:
            head = await self._part(agent, HEAD, Head.from_plaintext)
        except _Damaged as damaged:
            bad[HEAD] = damaged.code
        if head is None:
            return Head(agent), {each.number: each for each in await self._segments(agent)}, {HEAD: None, **bad}
        for number in head.segments:
            try:
                segments[number] = await self._segment(agent, number, whole=True)
            except _Damaged as damaged:
                segments[number], bad[number] = None, damaged.code
        return head, segments, bad

    async def _segments(self, agent: str) -> list[Segment]:
        """Return the readable segments of an agent, also those in no list. Parses only what names the agent."""
        found, name = list[Segment](), json.dumps(agent, ensure_ascii=False).encode()
        async for entry in self._parts.scan():
            if name in entry.body:
                with suppress(BrokerError):
                    found.append(opened(Segment.from_plaintext, entry))
        return sorted((each for each in found if each.agent == agent), key=lambda each: each.number)


async def _each(work: Callable[[T], Awaitable[None]], all_of: Sequence[T]) -> None:
    """Do the work on each at the same time, so that they share syncs. All end before the first error is raised."""
    if len(all_of) == 1:
        await work(all_of[0])
        return
    for error in await asyncio.gather(*map(work, all_of), return_exceptions=True):
        if error is not None:
            raise error


def _in_order(segments: Sequence[Segment | None], kept: Mapping[str, AgentEvent], lost: list[AgentEvent]) -> list[Item]:
    """Return the items of the segments whose events are kept, and the lost events, which are in the order of their
    numbers: each at the first missing segment after which no event has a lower number."""
    items, rest = dict[str, Item](), deque(lost)
    for place, segment in enumerate(segments):
        if segment is None:
            following = _first_order(segments[place:], kept)
            while rest and (following is None or rest[0].order < following):
                event = rest.popleft()
                items[event.id] = Item(id=event.id, address=address_of(event))
        for item in segment.items if segment is not None else ():
            if item.id in kept:
                items.pop(item.id, None)  # a segment that was retired may still be there: the later place counts
                items[item.id] = item
    return list(items.values())


def _first_order(segments: Iterable[Segment | None], kept: Mapping[str, AgentEvent]) -> int | None:
    orders = (kept[item.id].order for each in segments if each is not None for item in each.items if item.id in kept)
    return next(orders, None)
