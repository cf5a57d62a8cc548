"""Order the events of a queue. Pure; `queue` reads and writes its parts under the queue's lock.

An operation changes the index in memory. `plan` then says which parts have to be written, in an order in which a crash
loses nothing and doubles nothing: a segment is listed before it is written, an event is a dead letter before it leaves
its segment, and a dead letter waits again before it leaves the dead ones. An event that is both therefore waits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from datetime import datetime

from oauthbroker.core.dataclasses import dataclass, replace
from oauthbroker.records import AgentEvent
from oauthbroker.records.event_queue import SEGMENT_ITEMS, Head, Item, Segment, Settled, newest, segments_of

MOST_BYTES = 2 * 1024 * 1024  # some ten thousand unconsumed events
MOST_DEAD = 1000  # older dead letters are deleted
SPARSE = 16  # segments beyond four times as many as are needed, before they are joined


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Parts to write, in this order: `first`, the segments, `last`. The segments `before` are deleted first, if any
    head is written, and those `after` at the end."""

    first: Head | None
    segments: tuple[Segment, ...]
    last: Head | None
    before: tuple[int, ...]
    after: tuple[int, ...]


class Index:
    """A queue's state: waiting items in order, dead letters, and leases that were settled lately. `gone` collects the
    ids of events that have left it, whose bodies nothing needs; `bodies` collects new events."""

    def __init__(self, agent: str, head: Head, segments: Iterable[Segment]) -> None:
        self._before, self._found = head, {each.number: each for each in segments}
        self.head = replace(head, agent=agent)
        self.segments = dict(self._found)
        self.gone: set[str] = set()
        self.bodies: list[AgentEvent] = []
        self._added: set[int] = set()
        self._moved = False

    @classmethod
    def rebuilt(cls, agent: str, head: Head, numbers: Iterable[int], items: Iterable[Item]) -> Index:
        """Return an index of these items, in segments with new numbers. `numbers` are those of the old ones."""
        old = {*head.segments, *head.retired, *numbers}
        index, first = cls(agent, head, ()), max([head.next, *(number + 1 for number in old)])
        index.segments = {each.number: each for each in segments_of(agent, items, first)}
        index.head = replace(
            index.head,
            segments=tuple(index.segments),
            next=first + len(index.segments),
            retired=tuple(sorted(old)),
        )
        index._added, index._moved = set(index.segments), True
        return index

    # reading

    @property
    def waiting(self) -> Iterator[Item]:
        for number in self.head.segments:
            yield from self.segments[number].items

    def __len__(self) -> int:
        return sum(len(segment.items) for segment in self.segments.values())

    @property
    def dead(self) -> list[Item]:
        """The dead letters, oldest first. After a crash one of them may wait as well: then it waits."""
        return [item for item in self.head.dead if self.find(item.id) is None]

    @property
    def settled(self) -> Iterator[Settled]:
        yield from self.head.settled
        for segment in self.segments.values():
            yield from segment.settled

    def find(self, event_id: str) -> Item | None:
        segment = self._holding(event_id)
        return None if segment is None else segment.by_id[event_id]

    def leased(self, event_id: str, lease: str) -> Item | None:
        """Return the item if this lease is its newest one."""
        item = self.find(event_id)
        return item if item is not None and item.lease == lease else None

    def _holding(self, event_id: str) -> Segment | None:
        for segment in self.segments.values():
            if event_id in segment.by_id:
                return segment
        return None

    def knows(self, event_id: str) -> bool:
        """Return whether the event is in the queue, or has left it lately."""
        for segment in self.segments.values():
            if event_id in segment.by_id or event_id in segment.done:
                return True
        if any(item.id == event_id for item in self.head.dead):
            return True
        return any(each.id == event_id and each.done for each in self.head.settled)

    def needs(self, event_id: str) -> bool:
        """Return whether the event's body is still needed."""
        return self._holding(event_id) is not None or any(item.id == event_id for item in self.head.dead)

    def needed(self) -> set[str]:
        """Return the ids of all events whose bodies are still needed."""
        return {item.id for item in (*self.waiting, *self.head.dead)}

    def has_space_for(self, item: Item) -> bool:
        return sum(each.weight for each in self.segments.values()) + item.weight <= MOST_BYTES

    def next_free(self, now: datetime) -> Item | None:
        """Return the oldest item that is at the head of its address and is neither leased nor backing off."""
        blocked: set[str] = set()
        for number in self.head.segments:
            for item in self.segments[number].heads:
                if item.address not in blocked and item.is_free(now):
                    return item
                blocked.add(item.address)
        return None

    def has_settled(self, event_id: str, lease: str, *, done: bool) -> bool:
        return any((each.id, each.lease, each.done) == (event_id, lease, done) for each in self.settled)

    # changing

    def append(self, item: Item) -> None:
        """Add an item at the end, in a new segment if the last one is full."""
        number = self.head.segments[-1] if self.head.segments else 0
        if not number or not self.segments[number].has_space_for(item):
            number = self.head.next
            self.head = replace(self.head, segments=(*self.head.segments, number), next=number + 1)
            self.segments[number] = Segment(agent=self.head.agent, number=number)
            self._added.add(number)
        self.segments[number] = replace(self.segments[number], items=(*self.segments[number].items, item))

    def replace(self, item: Item) -> None:
        segment = self._holding(item.id)
        if segment is not None:
            items = tuple(item if each.id == item.id else each for each in segment.items)
            self.segments[segment.number] = replace(segment, items=items)

    def remove(self, event_id: str) -> None:
        segment = self._holding(event_id)
        if segment is not None:
            self.segments[segment.number] = replace(
                segment, items=tuple(each for each in segment.items if each.id != event_id)
            )

    def settle(self, event_id: str, lease: str, *, done: bool) -> None:
        """Remember a lease that is being settled, in the segment of its event. An event that is done leaves."""
        segment = self._holding(event_id)
        if segment is not None:
            settled = Settled(id=event_id, lease=lease, done=done, order=self._order())
            items = tuple(each for each in segment.items if not done or each.id != event_id)
            self.segments[segment.number] = replace(segment, items=items, settled=newest((*segment.settled, settled)))
        if done:
            self.take_dead_letter(event_id)
            self.gone.add(event_id)

    def finish(self, event_id: str) -> None:
        """Remove an event that is done without a lease."""
        self.remove(event_id)
        self.take_dead_letter(event_id)
        self.gone.add(event_id)

    def make_dead_letter(self, item: Item) -> None:
        """Make a waiting item a dead letter. The oldest dead letters leave if all are too many or too large."""
        self.remove(item.id)
        left = (each for each in self.head.dead if each.id != item.id)
        dead = (*left, replace(item, lease=None, due=None, since=None))
        kept = _newest_within(dead, MOST_DEAD, MOST_BYTES)
        self.gone.update(each.id for each in dead[: len(dead) - len(kept)])
        self.head = replace(self.head, dead=kept)

    def take_dead_letter(self, event_id: str) -> Item | None:
        """Remove a dead letter and return it; None if the id is unknown."""
        found = next((item for item in self.head.dead if item.id == event_id), None)
        if found is None:
            return None
        self.head = replace(self.head, dead=tuple(item for item in self.head.dead if item.id != event_id))
        return found if self.find(event_id) is None else None

    def drop(self, event_id: str) -> bool:
        """Remove a dead letter for good. False if the id is unknown."""
        if self.take_dead_letter(event_id) is None:
            return False
        settled = Settled(id=event_id, lease=None, done=True, order=self._order())
        self.head = replace(self.head, settled=newest((*self.head.settled, settled)))
        self.gone.add(event_id)
        return True

    def erase(self, event_ids: Collection[str]) -> None:
        """Remove these events, leased and dead ones too. Their ids are remembered as the oldest, where they displace no
        other id, so that a relay which has already read one does not queue it again."""
        known = {each.id for each in self.settled if each.done}
        erased = [Settled(id=event_id, lease=None, done=True) for event_id in sorted(set(event_ids) - known)]
        dead = tuple(item for item in self.head.dead if item.id not in event_ids)
        self.head = replace(self.head, dead=dead, settled=newest((*erased, *self.head.settled)))
        for segment in list(self.segments.values()):
            left = tuple(item for item in segment.items if item.id not in event_ids)
            if left != segment.items:
                self.segments[segment.number] = replace(segment, items=left)
        self.gone.update(event_ids)

    def _order(self) -> int:
        """Return the number of the next settlement."""
        last = max((each.order for each in self.head.settled), default=0)
        return 1 + max([last, *(segment.order for segment in self.segments.values())])

    # writing

    def plan(self) -> Plan | None:
        """Return the parts that have to be written; None if nothing has changed."""
        spare = len(self.head.segments) - SPARSE
        if spare > 0 and spare > 4 * len(self) // SEGMENT_ITEMS:
            self._join()
        self._hand_over()
        changed = tuple(each for each in self.segments.values() if each is not self._found.get(each.number))
        if not changed and not self._moved and self.head == self._before:
            return None
        final = self._with_retired()
        if self._moved:  # the items lie in listed segments until the new ones are listed
            first, last = None, final
        elif changed and final != self._before:
            first, last = self._with_both(final), final
        else:
            first, last = final, None
        return Plan(
            first=first if first != self._before else None,
            segments=changed,
            last=last if last not in {first, self._before} else None,
            before=(*self._before.retired, *sorted(self._added)),
            after=tuple(each for each in final.retired if each not in self._before.retired),
        )

    def _join(self) -> None:
        """Move the items to as few segments as hold them. Each old segment has kept an item at least, so this happens
        after more events than it moves."""
        head = replace(self.head, settled=newest(self.settled))
        index = Index.rebuilt(head.agent, head, (), self.waiting)
        self.head, self.segments, self._moved = index.head, index.segments, True
        self._added = set(index.segments)

    def _hand_over(self) -> None:
        """Move what segments remember to the head: of empty segments, which then leave the list, and of those that
        remember much. The last segment stays."""
        for number in self.head.segments:
            segment = self.segments[number]
            leaves = not segment.items and number != self.head.segments[-1]
            if segment.settled and (leaves or len(segment.settled) > SEGMENT_ITEMS):
                self.head = replace(self.head, settled=newest((*self.head.settled, *segment.settled)))
                self.segments[segment.number] = replace(segment, settled=())
            if leaves:
                del self.segments[number]
                left = tuple(each for each in self.head.segments if each != number)
                self.head = replace(self.head, segments=left)

    def _with_retired(self) -> Head:
        """Return the head with the segments that this change retires. Those of an earlier change are deleted by now."""
        if self.head == self._before:
            return self.head
        left = {number for number in self._found if number not in self.segments}
        return replace(self.head, retired=tuple(sorted(left | set(self.head.retired) - set(self._before.retired))))

    def _with_both(self, final: Head) -> Head:
        """Return the head with all gains and no loss: it is written before the segments."""
        gained = {item.id for item in final.dead}
        return replace(
            final,
            segments=tuple(sorted({*self._before.segments, *final.segments})),
            retired=self._before.retired,
            dead=(*(item for item in self._before.dead if item.id not in gained), *final.dead),
        )


def _newest_within(items: tuple[Item, ...], most: int, most_bytes: int) -> tuple[Item, ...]:
    """Return the last items that are within both limits."""
    weight = 0
    for number, item in enumerate(reversed(items)):
        weight += item.weight
        if number == most or weight > most_bytes:
            return items[len(items) - number :]
    return items
