"""What a queue says: the places of events, in order. Pure; `queues` reads and writes it under the queue's lock."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime

from oauthbroker.clock import from_iso, has_passed, to_iso
from oauthbroker.records import AgentEvent, codec

REMEMBERED = 256
MOST_DEAD = 1000  # older dead letters go


@dataclass(frozen=True, slots=True)
class Item:
    """One event's place in the queue. `due` is when it may be leased (again): after a lease or a back-off, which began
    at `since`."""

    id: str
    address: str
    attempts: int = 0
    due: datetime | None = None
    lease: str | None = None
    since: datetime | None = None

    def is_free(self, now: datetime) -> bool:
        return self.due is None or has_passed(self.due, self.since or now, now)


@dataclass(frozen=True, slots=True)
class Settled:
    """A lease that somebody settled, and how: who did not hear the answer asks again and gets the same one."""

    id: str
    lease: str
    done: bool


@dataclass(slots=True)
class Index:
    """What the queue of an agent says: waiting items in order, dead ones, ids that were acknowledged lately, and the
    leases that were settled last."""

    waiting: list[Item] = field(default_factory=list)
    dead: list[Item] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    settled: list[Settled] = field(default_factory=list)

    def find(self, event_id: str) -> Item | None:
        return next((item for item in self.waiting if item.id == event_id), None)

    def knows(self, event_id: str) -> bool:
        return event_id in self.done or self.needs(event_id)

    def needs(self, event_id: str) -> bool:
        """Whether the event's body is still wanted."""
        return any(item.id == event_id for item in (*self.waiting, *self.dead))

    def replace(self, item: Item) -> None:
        self.waiting = [item if each.id == item.id else each for each in self.waiting]

    def remove(self, event_id: str) -> None:
        self.waiting = [each for each in self.waiting if each.id != event_id]

    def bury(self, item: Item) -> None:
        self.remove(item.id)
        self.dead = [*self.dead, dataclasses.replace(item, lease=None, due=None, since=None)][-MOST_DEAD:]

    def erase(self, event_ids: Collection[str]) -> None:
        """Remove these, leased and dead ones too. Their ids come first in `done`, where they displace no other one, so
        that a relay which has read one of them before does not queue it again."""
        self.done = [*sorted(set(event_ids).difference(self.done)), *self.done]
        self.waiting = [item for item in self.waiting if item.id not in event_ids]
        self.dead = [item for item in self.dead if item.id not in event_ids]

    def exhume(self, event_id: str) -> Item | None:
        """Takes a dead letter out; None when there is none of that id."""
        found = next((item for item in self.dead if item.id == event_id), None)
        self.dead = [item for item in self.dead if item.id != event_id]
        return found

    def next_free(self, now: datetime) -> Item | None:
        """The oldest item that heads its address and is not leased or backing off."""
        blocked: set[str] = set()
        for item in self.waiting:
            if item.address not in blocked and item.is_free(now):
                return item
            blocked.add(item.address)
        return None

    def to_plaintext(self) -> bytes:
        spec = {
            "waiting": [_item_json(item) for item in self.waiting],
            "dead": [_item_json(item) for item in self.dead],
            "done": self.done[-REMEMBERED:],
            "settled": [{"id": each.id, "lease": each.lease, "done": each.done} for each in self.settled[-REMEMBERED:]],
        }
        return codec.encode("EventQueue", {"spec": spec})

    @classmethod
    def from_plaintext(cls, body: bytes | None) -> Index:
        if body is None:
            return cls()
        spec = codec.decode("EventQueue", body)["spec"]
        return cls(
            [_item(each) for each in spec["waiting"]],
            [_item(each) for each in spec["dead"]],
            spec["done"],
            [Settled(each["id"], each["lease"], each["done"]) for each in spec.get("settled", ())],
        )


def address_of(event: AgentEvent) -> str:
    """What makes two events one conversation: (swarm, agent, instance)."""
    return "\x1f".join(event.target.address)


def _item_json(item: Item) -> dict[str, object]:
    due = to_iso(item.due) if item.due is not None else None
    since = {"since": to_iso(item.since)} if item.since is not None else {}
    return {"id": item.id, "address": item.address, "attempts": item.attempts, "due": due, "lease": item.lease, **since}


def _item(data: dict[str, str | int | None]) -> Item:
    due = data["due"]
    lease, since = data["lease"], data.get("since")
    return Item(
        str(data["id"]),
        str(data["address"]),
        int(data["attempts"] or 0),
        from_iso(str(due)) if due is not None else None,
        str(lease) if lease is not None else None,
        from_iso(str(since)) if since is not None else None,
    )
