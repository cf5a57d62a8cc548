"""AgentEvent: wakes up an agent. It never holds a secret."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, get_args

from oauthbroker.core.clock import LONG_AGO, from_iso, printed, to_iso
from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.model.turn import ResumeTarget, Turn
from oauthbroker.records import codec

EventType = Literal["auth.granted", "auth.denied", "auth.failed", "auth.revoked", "auth.expired", "auth.expiring"]
"""The broker's own types. Others may queue events with types of other namespaces."""


def microseconds(at: datetime) -> int:
    """Return the time since 1970, the smallest number of an event that happened then."""
    return (at - LONG_AGO) // timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEvent:
    """One event for one agent instance. The same `id` twice is the same event delivered twice. `order` is its number
    among all events of the store, given when it is first stored. Events leave in this order, also if the clock
    was set back."""

    id: str
    type: str
    target: ResumeTarget
    payload: Mapping[str, Any]
    created_at: datetime
    order: int = field(default=0, compare=False)

    @classmethod
    def about(
        cls,
        session_id: str,
        kind: EventType,
        target: ResumeTarget,
        payload: Mapping[str, Any],
        at: datetime,
    ) -> AgentEvent:
        """Return the event of one kind about an auth session; its id is always the same."""
        return cls(id=f"evt-{session_id}-{kind}", type=kind, target=target, payload=payload, created_at=at)

    @staticmethod
    def ids_about(session_id: str) -> set[str]:
        """Return the ids that the broker's own events about a session can have."""
        return {f"evt-{session_id}-{kind}" for kind in get_args(EventType)}

    @property
    def turn(self) -> Turn:
        """Return the turn that this event starts: the conversation, origin and auth of the requesting turn."""
        return self.target.turn

    def to_json(self) -> dict[str, Any]:
        """Return the event for consumers: the resume target's fields beside type and payload."""
        said = self.to_record() | {"createdAt": printed(self.created_at)}
        del said["order"]
        return said

    def to_record(self) -> dict[str, Any]:
        """Return the event for the store: as `to_json`, with the exact time and the order."""
        return {
            "eventId": self.id,
            "type": self.type,
            **self.target.to_json(),
            "payload": dict(self.payload),
            "createdAt": to_iso(self.created_at),
            "order": self.order,
        }

    @property
    def metric_type(self) -> str:
        """Return the type as a metric's label: the types of others are one, because they are unbounded."""
        return self.type if self.type in get_args(EventType) else "other"

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> AgentEvent:
        """Read an event, as stored or as a broker sends it. Without a number, its time counts."""
        at = from_iso(data["createdAt"])
        order = data.get("order") or microseconds(at)
        return cls(
            id=data["eventId"],
            type=data["type"],
            target=ResumeTarget.from_json(data),
            payload=data["payload"],
            created_at=at,
            order=order,
        )

    def to_plaintext(self) -> bytes:
        """Return the bytes that the store seals."""
        return codec.encode("AgentEvent", {"spec": self.to_record()})

    @classmethod
    def from_plaintext(cls, body: bytes) -> AgentEvent:
        """Parse the form of `to_plaintext`. Raises `recordCorrupt`."""
        return cls.from_json(codec.decode("AgentEvent", body)["spec"])


@dataclass(frozen=True, slots=True)
class DeliveredEvent:
    """An event in the hands of a consumer, for the `attempt`-th time."""

    event: AgentEvent
    attempt: int

    @property
    def id(self) -> str:
        """Return the id of the event, the same at each delivery."""
        return self.event.id

    @property
    def type(self) -> str:
        """Return the type of the event, such as `auth.granted`."""
        return self.event.type

    def to_json(self) -> dict[str, Any]:
        """Return the event for consumers, as `AgentEvent.to_json` does."""
        return self.event.to_json()
