"""The stored parts of a queue: a head, and segments with at most some 64 events each. Pure.

An operation on one event rewrites the segment of that event. The head changes when a segment comes or goes, when an
event becomes a dead letter or stops being one, and when a segment hands over the leases that it remembers.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import cached_property
from operator import attrgetter

from oauthbroker.core.clock import has_passed
from oauthbroker.core.dataclasses import KW_ONLY, dataclass, field
from oauthbroker.records import codec
from oauthbroker.records.codec import OPTIONAL, named

SEGMENT_ITEMS = 64
SEGMENT_WEIGHT = 64 * 1024
REMEMBERED = 256
ITEM_WEIGHT = 100  # bytes of an item beside its id and address


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """An event's place in the queue. `due` is the end of its lease or back-off, which began at `since`."""

    id: str
    address: str
    attempts: int = 0
    due: datetime | None = None
    lease: str | None = None
    since: datetime | None = field(default=None, metadata=OPTIONAL)

    @property
    def weight(self) -> int:
        """Return about how many bytes the item takes."""
        return len(self.id) + len(self.address) + ITEM_WEIGHT

    def is_free(self, now: datetime) -> bool:
        return self.due is None or has_passed(self.due, self.since or now, now)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """A settled lease with its outcome: a consumer that lost the answer settles again and gets the same one. `lease` is
    None for an event that an operator dropped or an erasure removed. `order` grows with each settlement of the queue.
    """

    id: str
    lease: str | None
    done: bool
    order: int = 0


def newest(settled: Iterable[Settled]) -> tuple[Settled, ...]:
    """Return the last 256 settlements that removed an event, and the last 256 others."""
    ordered = sorted(settled, key=attrgetter("order"))
    done = [each for each in ordered if each.done][-REMEMBERED:]
    refused = [each for each in ordered if not each.done][-REMEMBERED:]
    return (*done, *refused)


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A run of a queue's events, in order, and the leases of such events that were settled lately."""

    agent: str
    number: int
    items: tuple[Item, ...] = field(default=(), metadata=named("waiting"))
    settled: tuple[Settled, ...] = ()

    @cached_property
    def heads(self) -> tuple[Item, ...]:
        """The first item of each address."""
        first = dict[str, Item]()
        for item in self.items:
            first.setdefault(item.address, item)
        return tuple(first.values())

    @cached_property
    def done(self) -> frozenset[str]:
        return frozenset(each.id for each in self.settled if each.done)

    @cached_property
    def weight(self) -> int:
        return sum(item.weight for item in self.items)

    @cached_property
    def order(self) -> int:
        """The number of the last settlement."""
        return max((each.order for each in self.settled), default=0)

    def find(self, event_id: str) -> Item | None:
        return next((item for item in self.items if item.id == event_id), None)

    def has_space_for(self, item: Item) -> bool:
        if not self.items:
            return True
        return len(self.items) < SEGMENT_ITEMS and self.weight + item.weight <= SEGMENT_WEIGHT

    def to_plaintext(self) -> bytes:
        return codec.encode_listing("EventQueueSegment", self)

    @classmethod
    def from_plaintext(cls, body: bytes) -> Segment:
        return codec.made(cls, codec.decode("EventQueueSegment", body)["spec"])


def segments_of(agent: str, items: Iterable[Item], number: int) -> list[Segment]:
    """Return items in as few segments as hold them, the first one with this number."""
    runs: list[list[Item]] = []
    weight = 0
    for item in items:
        weight += item.weight
        if not runs or len(runs[-1]) >= SEGMENT_ITEMS or weight > SEGMENT_WEIGHT:
            runs.append([])
            weight = item.weight
        runs[-1].append(item)
    return [Segment(agent=agent, number=number + each, items=tuple(run)) for each, run in enumerate(runs)]


@dataclass(frozen=True, slots=True)
class Head:
    """The list of a queue's parts. `segments` are listed before they are first written: a missing one is empty.
    `retired` ones have left the list and may still have to be deleted. Numbers below `next` are not used again."""

    agent: str = ""
    segments: tuple[int, ...] = ()
    next: int = 1
    _: KW_ONLY
    retired: tuple[int, ...] = ()
    dead: tuple[Item, ...] = ()
    settled: tuple[Settled, ...] = ()

    def to_plaintext(self) -> bytes:
        return codec.encode_listing("EventQueueHead", self)

    @classmethod
    def from_plaintext(cls, body: bytes) -> Head:
        return codec.made(cls, codec.decode("EventQueueHead", body)["spec"])
