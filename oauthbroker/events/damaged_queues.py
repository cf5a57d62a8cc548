"""Rebuild the index of a queue in which a part is damaged or missing."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from oauthbroker.core.dataclasses import replace
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.events.port import address_of
from oauthbroker.events.queue_index import Index
from oauthbroker.records import AgentEvent
from oauthbroker.records.event_queue import Head, Item, Segment
from oauthbroker.repository.queue_parts import HEAD, QueueParts
from oauthbroker.repository.repository import Entry, Repository
from oauthbroker.repository.versioned import UNREADABLE, in_place, opened

P = TypeVar("P", Head, Segment)


class Damaged(BrokerError):
    """A part cannot be opened, or is missing. The queue is rebuilt under its lock."""

    def __init__(self, fault: Code | None) -> None:
        """`fault` is None if the part is missing."""
        super().__init__(Code.STORE_LOCKED, note="a part of the queue was damaged a moment ago")
        self.fault = fault


async def opened_part(parts: QueueParts, agent: str, number: int, read: Callable[[bytes], P]) -> tuple[P, Entry] | None:
    """Return a part and its version, None if it is missing. Raises `Damaged` if it cannot be opened."""
    try:
        entry = await parts.get(agent, number)
    except BrokerError as error:
        if error.code not in UNREADABLE:
            raise
        raise Damaged(error.code) from None
    if entry is None:
        return None
    part = opened(read, entry)
    in_place(entry, parts.key(part.agent or agent, part.number if isinstance(part, Segment) else HEAD))
    return part, entry.without_body()


async def rebuilt(repository: Repository, agent: str) -> Index:
    """Rebuild the index from the stored events. An event whose segment or head still opens keeps its place and
    state. Others lose their leases and counts, so they may be delivered again. No event is lost."""
    head, segments, bad = await _left(repository, agent)
    found = [each for each in segments.values() if each is not None]
    settled = (*head.settled, *(each for segment in found for each in segment.settled))
    known = {item.id for segment in found for item in segment.items}
    known |= {item.id for item in head.dead} | {each.id for each in settled if each.done}
    kept = {event.id: event async for event in repository.events.all() if event.target.agent_name == agent}
    lost = sorted((event for event in kept.values() if event.id not in known), key=lambda event: event.order)
    begun = HEAD if not segments else max(segments) if len(lost) <= 1 else None
    for number, code in bad.items():
        if code is not None or number != begun:  # a crash leaves a part without its first version
            repository.queue_parts.report(agent, number, code or Code.RECORD_CORRUPT)
    items = _in_order([*segments.values(), None], kept, lost)
    return Index.rebuilt(agent, replace(head, settled=settled), segments, items)


async def _left(repository: Repository, agent: str) -> tuple[Head, dict[int, Segment | None], dict[int, Code | None]]:
    """Return the head, empty if it cannot be read, the segments that it lists, or all, and the fault of each
    bad part: its code, or None for a missing one. A segment that cannot be read is None."""
    head, bad, segments = None, dict[int, Code | None](), dict[int, Segment | None]()
    try:
        found = await opened_part(repository.queue_parts, agent, HEAD, Head.from_plaintext)
        head = found[0] if found is not None else None
    except Damaged as damaged:
        bad[HEAD] = damaged.fault
    if head is None:
        return Head(agent), {each.number: each for each in await _segments(repository, agent)}, {HEAD: None, **bad}
    for number in head.segments:
        try:
            part = await opened_part(repository.queue_parts, agent, number, Segment.from_plaintext)
            segments[number] = part[0] if part is not None else None
            bad |= {number: None} if part is None else {}
        except Damaged as damaged:
            segments[number], bad[number] = None, damaged.fault
    return head, segments, bad


async def _segments(repository: Repository, agent: str) -> list[Segment]:
    """Return the readable segments of an agent, also those in no list. Parses only what names the agent."""
    found, name = list[Segment](), json.dumps(agent, ensure_ascii=False).encode()
    async for entry in repository.queue_parts.scan():
        if name in entry.body:
            with suppress(BrokerError):
                found.append(opened(Segment.from_plaintext, entry))
    return sorted((each for each in found if each.agent == agent), key=lambda each: each.number)


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
