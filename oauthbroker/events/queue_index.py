"""Order the events of a queue. Pure; `queue` reads and writes the index under the queue's lock."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime

from oauthbroker.core.clock import from_iso, has_passed, to_iso
from oauthbroker.records import AgentEvent, codec

REMEMBERED = 256
MOST_DEAD = 1000  # older dead letters are deleted


@dataclass(frozen=True, slots=True)
class Item:
    """An event's place in the queue. `due` is the end of its lease or back-off, which began at `since`."""

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
    """A settled lease with its outcome. A consumer that lost the answer settles again and gets the same one."""

    id: str
    lease: str
    done: bool


@dataclass(slots=True)
class Index:
    """A queue's state: waiting items in order, dead letters, recently acknowledged ids, and recently settled leases."""

    waiting: list[Item] = field(default_factory=list)
    dead: list[Item] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    settled: list[Settled] = field(default_factory=list)

    def find(self, event_id: str) -> Item | None:
        return next((item for item in self.waiting if item.id == event_id), None)

    def knows(self, event_id: str) -> bool:
        return event_id in self.done or self.needs(event_id)

    def needs(self, event_id: str) -> bool:
        """Return whether the event's body is still needed."""
        return any(item.id == event_id for item in (*self.waiting, *self.dead))

    def needed(self) -> set[str]:
        """Return the ids of all events whose bodies are still needed."""
        return {item.id for item in (*self.waiting, *self.dead)}

    def replace(self, item: Item) -> None:
        self.waiting = [item if each.id == item.id else each for each in self.waiting]

    def remove(self, event_id: str) -> None:
        self.waiting = [each for each in self.waiting if each.id != event_id]

    def bury(self, item: Item) -> None:
        self.remove(item.id)
        self.dead = [*self.dead, dataclasses.replace(item, lease=None, due=None, since=None)][-MOST_DEAD:]

    def erase(self, event_ids: Collection[str]) -> None:
        """Remove these events, leased and dead ones too. Their ids are put first in `done`, where they displace no
        other id, so that a relay which has already read one does not queue it again."""
        self.done = [*sorted(set(event_ids).difference(self.done)), *self.done]
        self.waiting = [item for item in self.waiting if item.id not in event_ids]
        self.dead = [item for item in self.dead if item.id not in event_ids]

    def exhume(self, event_id: str) -> Item | None:
        """Remove a dead letter and return it; None if the id is unknown."""
        found = next((item for item in self.dead if item.id == event_id), None)
        self.dead = [item for item in self.dead if item.id != event_id]
        return found

    def next_free(self, now: datetime) -> Item | None:
        """Return the oldest item that is at the head of its address and is neither leased nor backing off."""
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
    """Return the key of an event's conversation: (swarm, agent, instance)."""
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
