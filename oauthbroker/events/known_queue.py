"""Remember what this process knows of a stored queue, and find events, conversations and leases in it without a walk.

Other processes change the queue, too. A segment only loses events, except the last one: so a segment that was read
before the last change still names all that it has, and is compared with the store when it is used (`queue_storage`).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Final, NamedTuple

from oauthbroker.records.event_queue import Head, Item, Segment, Settled
from oauthbroker.repository.queue_parts import HEAD
from oauthbroker.repository.repository import Entry

Numbers = tuple[int, ...]
Places = dict[str, Numbers]  # the segments that name a text, in order
_QUEUE, _SEGMENT, _SETTLED = 3000, 1000, 130  # weights: of a queue and of a segment without their events


class Blocked(NamedTuple):
    """Why no event of a segment is free: its first pause ends at `due`, its last one began at `since`."""

    due: datetime
    since: datetime
    is_leased: bool

    @classmethod
    def of(cls, heads: Sequence[Item]) -> Blocked | None:
        dues = [item.due for item in heads if item.due is not None]
        if not dues:
            return None
        since = max((item.since for item in heads if item.since is not None), default=min(dues))
        return cls(min(dues), since, any(item.lease is not None for item in heads))


class KnownQueue:
    """The head and the segments of one agent's queue as they were last read or written here, with their versions.

    `unread` are the listed segments that have to be compared with the store, or read. `order` is the highest number of
    a settlement.
    """

    def __init__(self, agent: str, head: Head | None = None) -> None:
        self.head = head or Head(agent)
        self.segments = dict[int, Segment]()
        self.versions = dict[int, Entry]()
        self.unread = set[int]()
        self.ids, self.addresses, self.leases = Places(), Places(), Places()
        self.owners = list[int]()  # segments that have the first event of a conversation, in order
        self.blocked = dict[int, Blocked]()  # those of them in which no such event was free
        self.order = 0
        self._owned = Counter[int]()
        self._alone = dict[int, Numbers]()
        self.count = self.item_weight = 0  # of all waiting items
        self._head_weight = self._settled = 0

    @property
    def weight(self) -> int:
        """Return about half of the bytes that the queue takes in memory."""
        segments = _SEGMENT * len(self.segments) + self.item_weight + _SETTLED * self._settled
        return _QUEUE + self._head_weight + segments

    def put_head(self, head: Head, version: Entry) -> None:
        """Note another head. Segments that it does not list are forgotten."""
        if head is not self.head:
            listed = set(head.segments)
            for number in [number for number in self.segments if number not in listed]:
                self._replace(number, _NONE)
                del self._alone[number]
                self.versions.pop(number, None)
            self.unread = (self.unread & listed) | (listed - self.segments.keys())
            self.head = head
            self._head_weight = sum(item.weight for item in head.dead) + _SETTLED * len(head.settled)
            self.order = max([self.order, *(each.order for each in head.settled)])
        self.versions[HEAD] = version

    def put(self, segment: Segment, version: Entry | None) -> None:
        """Note a version of a segment. Without `version` it stays unread, as does one that is not listed."""
        number = segment.number
        if number not in self.segments and number not in self.unread:
            return
        self._alone.setdefault(number, (number,))
        self._replace(number, segment)
        self.order = max(self.order, segment.order)
        if version is not None:
            self.versions[number] = version
            self.unread.discard(number)

    def doubt(self, number: int) -> None:
        """Let a part be read anew when it is used next."""
        self.versions.pop(number, None)
        if number in self.segments:
            self.unread.add(number)

    def _replace(self, number: int, new: Segment) -> None:
        old = self.segments.pop(number, _NONE)
        if new is not _NONE:
            self.segments[number] = new
        alone, before, after = self._alone[number], _addresses(old), _addresses(new)
        _move(self.ids, _ids(old), _ids(new), alone)
        _move(self.leases, _leases(old), _leases(new), alone)
        moved = {address: self.addresses.get(address, ())[:1] for address in before ^ after}
        _move(self.addresses, before, after, alone)
        for address, first in moved.items():
            self._own(first, self.addresses.get(address, ())[:1])
        self.blocked.pop(number, None)
        self.count += len(new.items) - len(old.items)
        self.item_weight += new.weight - old.weight
        self._settled += len(new.settled) - len(old.settled)

    def _own(self, before: Numbers, after: Numbers) -> None:
        """Note that the first event of a conversation lies in another segment."""
        if before == after:
            return
        for number in after:
            self.blocked.pop(number, None)
            self._owned[number] += 1
            if self._owned[number] == 1:
                insort(self.owners, number)
        for number in before:
            self._owned[number] -= 1
            if not self._owned[number]:
                del self._owned[number]
                del self.owners[bisect_left(self.owners, number)]


def _move(places: Places, old: set[str], new: set[str], alone: Numbers) -> None:
    """Note that a segment names these texts now. `alone` is its number, one tuple for all its texts."""
    for text in old - new:
        there = places.pop(text)
        if there != alone:
            places[text] = tuple(number for number in there if number != alone[0])
    for text in new - old:
        others = places.get(text)
        places[text] = alone if others is None else tuple(sorted(others + alone))


_NONE: Final = Segment(agent="", number=0)
_id: Callable[[Item | Settled], str] = attrgetter("id")
_lease: Callable[[Item | Settled], str | None] = attrgetter("lease")
_address: Callable[[Item], str] = attrgetter("address")


def _ids(segment: Segment) -> set[str]:
    return {*map(_id, segment.items), *map(_id, segment.settled)}


def _leases(segment: Segment) -> set[str]:
    return set(filter(None, (*map(_lease, segment.items), *map(_lease, segment.settled))))


def _addresses(segment: Segment) -> set[str]:
    return set(map(_address, segment.heads))
