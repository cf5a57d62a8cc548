"""Read the state of a queue, with the changes that are being made to it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import chain

from oauthbroker.core.clock import has_passed
from oauthbroker.events.known_queue import Blocked, KnownQueue
from oauthbroker.records.event_queue import Item, Segment, Settled


class QueueView:
    """A queue's state: waiting items in order, dead letters, and leases that were settled lately. What this change has
    not touched stands in `known`, and is as new as the caller has looked at it."""

    def __init__(self, known: KnownQueue) -> None:
        self.known, self.head = known, known.head
        self._changed = dict[int, Segment]()
        self._filled = list[int]()  # segments that got an item

    @property
    def segments(self) -> Iterator[Segment]:
        return map(self._segment, self.head.segments)

    @property
    def waiting(self) -> Iterator[Item]:
        for segment in self.segments:
            yield from segment.items

    def __len__(self) -> int:
        return self.known.count + sum(len(new.items) - len(old.items) for old, new in self._changes())

    @property
    def dead(self) -> list[Item]:
        """The dead letters, oldest first. After a crash one of them may wait as well: then it waits."""
        return [item for item in self.head.dead if self.find(item.id) is None]

    @property
    def settled(self) -> Iterator[Settled]:
        yield from self.head.settled
        for segment in self.segments:
            yield from segment.settled

    def find(self, event_id: str) -> Item | None:
        segment = self._holding(event_id)
        return None if segment is None else segment.find(event_id)

    def leased(self, event_id: str, lease: str) -> Item | None:
        """Return the item if this lease is its newest one."""
        item = self.find(event_id)
        return item if item is not None and item.lease == lease else None

    def naming(self, event_id: str) -> list[int]:
        """Return the numbers of the segments that may have the event, or remember it."""
        return sorted({*self.known.ids.get(event_id, ()), *self._filled})

    def knows(self, event_id: str) -> bool:
        """Return whether the event is in the queue, or has left it lately."""
        return self.needs(event_id) or self.is_done(event_id)

    def is_done(self, event_id: str) -> bool:
        segments = map(self._segment, self.naming(event_id))
        return any(event_id in segment.done for segment in segments) or any(
            each.id == event_id and each.done for each in self.head.settled
        )

    def needs(self, event_id: str) -> bool:
        """Return whether the event's body is still needed."""
        return self._holding(event_id) is not None or any(item.id == event_id for item in self.head.dead)

    def needed(self) -> set[str]:
        """Return the ids of all events whose bodies are still needed."""
        return {item.id for item in (*self.waiting, *self.head.dead)}

    def next_free(self, now: datetime) -> tuple[Item | None, set[int]]:
        """Return the oldest item that is at the head of its address and is neither leased nor backing off; and the
        segments whose newest versions can tell otherwise, its own and those of leased items before it."""
        doubtful, heirs = set[int](), self._heirs() if self._changed else set[int]()
        for number in sorted({*self.known.owners, *heirs, *self._changed}) if self._changed else self.known.owners:
            as_known = number not in self._changed and number not in heirs
            blocked = self.known.blocked.get(number) if as_known else None
            if blocked is None or has_passed(blocked.due, blocked.since, now):
                heads = [item for item in self._segment(number).heads if self._is_first(item.address, number)]
                free = next((item for item in heads if item.is_free(now)), None)
                if free is not None:
                    return free, {*doubtful, number}
                blocked = Blocked.of(heads)
                if as_known and blocked is not None:
                    self.known.blocked[number] = blocked
            if blocked is not None and blocked.is_leased:
                doubtful.add(number)
        return None, doubtful

    def _heirs(self) -> set[int]:
        """Return the segments that may have got the first item of an address, because a changed one has lost it."""
        found = set[int]()
        for changed in self._changed.keys() & self.known.segments.keys():
            for item in self.known.segments[changed].heads:
                places = self.known.addresses.get(item.address, ())
                found.update(next(([each] for each in places if each not in self._changed), ()))
        return found

    def _is_first(self, address: str, number: int) -> bool:
        """Return whether no segment before this one has an item of the address."""
        for each in chain(self.known.addresses.get(address, ()), self._filled):
            changed = self._changed.get(each)
            if each < number and (changed is None or any(item.address == address for item in changed.heads)):
                return False
        return True

    def has_settled(self, event_id: str, lease: str, *, done: bool) -> bool:
        sought = (event_id, lease, done)
        remembered = (each for number in self.naming(event_id) for each in self._segment(number).settled)
        return any((each.id, each.lease, each.done) == sought for each in (*self.head.settled, *remembered))

    def is_held(self, lease: str, now: datetime) -> bool:
        """Return whether an item is leased by this lease. For a queue that is not being changed."""
        segments = [self.known.segments[number] for number in self.known.leases.get(lease, ())]
        return any(item.lease == lease and not item.is_free(now) for each in segments for item in each.items)

    def is_settled(self, lease: str) -> bool:
        segments = [self.known.segments[number] for number in self.known.leases.get(lease, ())]
        remembered = chain(self.head.settled, *(segment.settled for segment in segments))
        return any(each.lease == lease for each in remembered)

    def _segment(self, number: int) -> Segment:
        return self._changed.get(number) or self.known.segments[number]

    def _changes(self) -> Iterator[tuple[Segment, Segment]]:
        """Yield what each changed segment was, and is."""
        for number, new in self._changed.items():
            yield self.known.segments.get(number) or Segment(agent=new.agent, number=number), new

    def _holding(self, event_id: str) -> Segment | None:
        segments = map(self._segment, self.naming(event_id))
        return next((segment for segment in segments if segment.find(event_id) is not None), None)
