"""Order the events of a queue. Pure; `queue` reads and writes its parts under the queue's lock.

An operation changes the index in memory. `plan` then says which parts have to be written, in an order in which a crash
loses nothing and doubles nothing: a segment is listed before it is written, an event is a dead letter before it leaves
its segment, and a dead letter waits again before it leaves the dead ones. An event that is both therefore waits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime

from oauthbroker.core.dataclasses import dataclass, replace
from oauthbroker.events.known_queue import KnownQueue
from oauthbroker.events.queue_view import QueueView
from oauthbroker.records import AgentEvent
from oauthbroker.records.event import microseconds
from oauthbroker.records.event_queue import (
    SEGMENT_ITEMS,
    SEGMENT_WEIGHT,
    Head,
    Item,
    Segment,
    Settled,
    newest,
    segments_of,
)

MOST_BYTES = 20 * 1024 * 1024  # a hundred thousand unconsumed events
MOST_DEAD = 1000  # older dead letters are deleted
MOST_DEAD_BYTES = 2 * 1024 * 1024  # the head holds them all
SPARSE = 16  # segments beyond four times as many as are needed, by number and weight, before they are joined


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Parts to write, in this order: `first`, the segments, `last`. The segments `before` are deleted first, if any
    head is written, and those `after` at the end."""

    first: Head | None
    segments: tuple[Segment, ...]
    last: Head | None
    before: tuple[int, ...]
    after: tuple[int, ...]


class Index(QueueView):
    """A queue's state that is being changed. `gone` collects the ids of events that have left it, whose bodies nothing
    needs; `bodies` collects new events."""

    def __init__(self, known: KnownQueue) -> None:
        super().__init__(known)
        self._before = known.head
        self.gone: set[str] = set()
        self.bodies: list[AgentEvent] = []
        self._added = list[int]()
        self._moved, self._order = False, known.order

    @classmethod
    def rebuilt(cls, agent: str, head: Head, numbers: Iterable[int], items: Iterable[Item]) -> Index:
        """Return an index of these items, in segments with new numbers. `numbers` are those of the old ones."""
        index = cls(KnownQueue(agent, replace(head, agent=agent)))
        index._order = max((each.order for each in head.settled), default=0)
        index._move_to_new(items, numbers)
        return index

    def _move_to_new(self, items: Iterable[Item], numbers: Iterable[int] = ()) -> None:
        """Put the items into new segments, the only ones."""
        old = {*self.head.segments, *self.head.retired, *numbers}
        first = max([self.head.next, *(number + 1 for number in old)])
        self._changed = {each.number: each for each in segments_of(self.head.agent, items, first)}
        self._added, self._moved = list(self._changed), True
        self.head = replace(
            self.head,
            segments=tuple(self._changed),
            next=first + len(self._changed),
            retired=tuple(sorted(old)),
        )

    def has_space_for(self, item: Item) -> bool:
        return self._weight + item.weight <= MOST_BYTES

    @property
    def _weight(self) -> int:
        return self.known.item_weight + sum(new.weight - old.weight for old, new in self._changes())

    def append(self, item: Item) -> None:
        """Add an item at the end, in a new segment if the last one is full."""
        number = self.head.segments[-1] if self.head.segments else 0
        segment = self._segment(number) if number else None
        if segment is None or not segment.has_space_for(item):
            number = self.head.next
            self.head = replace(self.head, segments=(*self.head.segments, number), next=number + 1)
            segment = Segment(agent=self.head.agent, number=number)
            self._added.append(number)
        self._filled.append(number)
        self._changed[number] = replace(segment, items=(*segment.items, item))

    def replace(self, item: Item) -> None:
        segment = self._holding(item.id)
        if segment is not None:
            items = tuple(item if each.id == item.id else each for each in segment.items)
            self._changed[segment.number] = replace(segment, items=items)

    def remove(self, event_id: str) -> None:
        segment = self._holding(event_id)
        if segment is not None:
            items = tuple(each for each in segment.items if each.id != event_id)
            self._changed[segment.number] = replace(segment, items=items)

    def settle(self, event_id: str, lease: str, *, done: bool, at: datetime) -> None:
        """Remember a lease that is being settled, in the segment of its event. An event that is done leaves."""
        segment = self._holding(event_id)
        if segment is not None:
            settled = Settled(id=event_id, lease=lease, done=done, order=self._next_order(at))
            items = tuple(each for each in segment.items if not done or each.id != event_id)
            self._changed[segment.number] = replace(segment, items=items, settled=newest((*segment.settled, settled)))
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
        kept = _newest_within(dead, MOST_DEAD, MOST_DEAD_BYTES)
        self.gone.update(each.id for each in dead[: len(dead) - len(kept)])
        self.head = replace(self.head, dead=kept)

    def take_dead_letter(self, event_id: str) -> Item | None:
        """Remove a dead letter and return it; None if the id is unknown."""
        found = next((item for item in self.head.dead if item.id == event_id), None)
        if found is None:
            return None
        self.head = replace(self.head, dead=tuple(item for item in self.head.dead if item.id != event_id))
        return found if self.find(event_id) is None else None

    def drop(self, event_id: str, at: datetime) -> bool:
        """Remove a dead letter for good. False if the id is unknown."""
        if self.take_dead_letter(event_id) is None:
            return False
        settled = Settled(id=event_id, lease=None, done=True, order=self._next_order(at))
        self.head = replace(self.head, settled=newest((*self.head.settled, settled)))
        self.gone.add(event_id)
        return True

    def erase(self, event_ids: Collection[str]) -> None:
        """Remove these events, leased and dead ones too. Their ids are remembered as the oldest, where they displace no
        other id, so that a relay which has already read one does not queue it again."""
        new = sorted(event_id for event_id in set(event_ids) if not self.is_done(event_id))
        erased = [Settled(id=event_id, lease=None, done=True) for event_id in new]
        dead = tuple(item for item in self.head.dead if item.id not in event_ids)
        self.head = replace(self.head, dead=dead, settled=newest((*erased, *self.head.settled)))
        for number in {number for event_id in event_ids for number in self.naming(event_id)}:
            segment = self._segment(number)
            left = tuple(item for item in segment.items if item.id not in event_ids)
            if left != segment.items:
                self._changed[number] = replace(segment, items=left)
        self.gone.update(event_ids)

    def _next_order(self, at: datetime) -> int:
        """Return the number of the next settlement: the time, which grows across processes, or one more than the
        last known number."""
        self._order = max(self._order + 1, microseconds(at))
        return self._order

    # writing

    def plan(self) -> Plan | None:
        """Return the parts that have to be written; None if nothing has changed."""
        self._hand_over()
        new_head, listed = self.head is not self._before and self.head != self._before, set(self._changed)
        if new_head:
            listed.intersection_update(self.head.segments)
        changed = tuple(
            self._changed[number]
            for number in sorted(listed)
            if self._changed[number] is not self.known.segments.get(number)
        )
        if not changed and not self._moved and not new_head:
            return None
        final = self._with_retired() if new_head else self._before
        if self._moved:  # the items lie in listed segments until the new ones are listed
            first, last = None, final
        elif changed and new_head:
            first, last = self._with_both(final), final
        else:
            first, last = final, None
        return Plan(
            first=first if new_head and first != self._before else None,
            segments=changed,
            last=last if last != first else None,
            before=(*self._before.retired, *sorted(self._added)),
            after=tuple(each for each in final.retired if each not in self._before.retired),
        )

    @property
    def is_sparse(self) -> bool:
        """Return whether the items are to be moved to fewer segments."""
        spare = len(self.head.segments) - SPARSE
        return spare > 0 and spare > max(4 * len(self) // SEGMENT_ITEMS, 4 * self._weight // SEGMENT_WEIGHT)

    def join(self) -> None:
        """Move the items to as few segments as hold them; all have to be as new as the store. Each old segment has kept
        an item at least, so this happens after more events than it moves."""
        self.head = replace(self.head, settled=newest(self.settled))
        self._move_to_new(self.waiting)

    def _hand_over(self) -> None:
        """Move what segments remember to the head: of empty segments, which then leave the list, and of those that
        remember much. The last segment stays."""
        numbers = {*self._changed, *self._before.segments[-1:]}
        if self.head is not self._before:
            numbers.intersection_update(self.head.segments)
        for number in sorted(numbers):
            segment = self._segment(number)
            leaves = not segment.items and number != self.head.segments[-1]
            if segment.settled and (leaves or len(segment.settled) > SEGMENT_ITEMS):
                self.head = replace(self.head, settled=newest((*self.head.settled, *segment.settled)))
                self._changed[number] = replace(segment, settled=())
            if leaves:
                left = tuple(each for each in self.head.segments if each != number)
                self.head = replace(self.head, segments=left)

    def _with_retired(self) -> Head:
        """Return the head with the segments that this change retires. Those of an earlier change are deleted by now."""
        left = set(self._before.segments).difference(self.head.segments)
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
