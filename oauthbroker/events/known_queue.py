"""Remember what this process knows of a stored queue, and find events, conversations and leases in it without a walk.

Other processes change the queue, too. A segment only loses events, except the last one: so a segment that was read
before the last change still names all that it has, and is compared with the store when it is used (`queue_storage`).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from operator import attrgetter
from typing import NamedTuple

from oauthbroker.records.event_queue import Head, Item, Segment
from oauthbroker.repository.queue_parts import HEAD
from oauthbroker.repository.repository import Entry

Numbers = tuple[int, ...]
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


class _Places:
    """The numbers of the segments that name a text, in order."""

    __slots__ = ("_numbers",)

    def __init__(self) -> None:
        self._numbers = dict[str, Numbers]()

    def get(self, text: str) -> Numbers:
        return self._numbers.get(text, ())

    def add(self, text: str, alone: Numbers) -> None:
        """Add the one number of `alone`, which all texts of a segment share."""
        there = self._numbers.get(text)
        self._numbers[text] = alone if there is None else tuple(sorted(there + alone))

    def remove(self, text: str, alone: Numbers) -> None:
        left = tuple(number for number in self._numbers[text] if number != alone[0])
        if left:
            self._numbers[text] = left
        else:
            del self._numbers[text]


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
        self.ids, self.addresses, self.leases = _Places(), _Places(), _Places()
        self.owners = list[int]()  # segments that have the first event of a conversation, in order
        self.blocked = dict[int, Blocked]()  # those of them in which no such event was free
        self.order = 0
        self._owned = Counter[int]()
        self._alone = dict[int, Numbers]()
        self.count = self.item_weight = 0  # of all waiting items
        self._head_weight = self._beside = 0  # `_beside`: of the segments beside their items

    @property
    def weight(self) -> int:
        """Return about half of the bytes that the queue takes in memory."""
        return _QUEUE + self._head_weight + self.item_weight + self._beside

    def put_head(self, head: Head, version: Entry) -> None:
        """Note another head. Segments that it does not list are forgotten."""
        if head is not self.head:
            listed = set(head.segments)
            for number in [number for number in self.segments if number not in listed]:
                self._replace(number, None)
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

    def _replace(self, number: int, new: Segment | None) -> None:
        old = self.segments.pop(number, None)
        if new is not None:
            self.segments[number] = new
        alone = self._alone[number]
        _move(_ids(old), _ids(new), alone, add=self.ids.add, remove=self.ids.remove)
        _move(_leases(old), _leases(new), alone, add=self.leases.add, remove=self.leases.remove)
        _move(_addresses(old), _addresses(new), alone, add=self._come, remove=self._go)
        self.blocked.pop(number, None)
        for each, sign in ((old, -1), (new, 1)):
            if each is not None:
                self.count += sign * len(each.items)
                self.item_weight += sign * each.weight
                self._beside += sign * (_SEGMENT + _SETTLED * len(each.settled))

    def _come(self, address: str, alone: Numbers) -> None:
        before = self.addresses.get(address)[:1]
        self.addresses.add(address, alone)
        self._own(before, self.addresses.get(address)[:1])

    def _go(self, address: str, alone: Numbers) -> None:
        before = self.addresses.get(address)[:1]
        self.addresses.remove(address, alone)
        self._own(before, self.addresses.get(address)[:1])

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


def _move(
    old: set[str],
    new: set[str],
    alone: Numbers,
    *,
    add: Callable[[str, Numbers], None],
    remove: Callable[[str, Numbers], None],
) -> None:
    for text in old - new:
        remove(text, alone)
    for text in new - old:
        add(text, alone)


_id: Callable[[Item], str] = attrgetter("id")
_address: Callable[[Item], str] = attrgetter("address")


def _ids(segment: Segment | None) -> set[str]:
    return set() if segment is None else {*map(_id, segment.items), *(each.id for each in segment.settled)}


def _addresses(segment: Segment | None) -> set[str]:
    return set() if segment is None else set(map(_address, segment.heads))


def _leases(segment: Segment | None) -> set[str]:
    if segment is None:
        return set()
    held: Iterable[str | None] = (*(item.lease for item in segment.items), *(each.lease for each in segment.settled))
    return {lease for lease in held if lease is not None}
