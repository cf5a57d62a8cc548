"""Events of agents in the one form in which they reach each other: `AgentEvent` of the unified event model
(specification 002, sections 2.6 and 11). The queue's own events are brought into it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from oauthbroker import Turn

CHAT: Final = "chat.message"  # of a channel
MESSAGE: Final = "agent.message"  # `agents__send`: no `replyTo`
REQUEST: Final = "agent.request"  # `agents__request`: `replyTo` says where the answer goes
ANSWER: Final = "agent.answer"
FAILED: Final = "turn.failed"  # a turn of this agent, or one that its message began, is not tried again


@dataclass(frozen=True, slots=True)
class ReplyTo:
    """Where an answer goes. `correlation_id` begins with the id of the tool call, which leads back to the turn."""

    target: str
    correlation_id: str

    def to_json(self) -> dict[str, str]:
        return {"target": self.target, "correlationId": self.correlation_id}


@dataclass(frozen=True, slots=True, kw_only=True)
class UnifiedEvent:
    """The input of one turn, `AgentEvent` in the specification. `turn` holds `auth` and origin, which are handed on
    unchanged."""

    id: str
    type: str
    input: str | None
    source: Mapping[str, Any]
    turn: Turn
    trace_id: str
    reply_to: ReplyTo | None = None
    payload: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the event's JSON, as the IPC carries it."""
        members: dict[str, Any] = {"id": self.id, "type": self.type, "input": self.input, "source": dict(self.source)}
        members |= {"turn": self.turn.resume_target.to_json(), "auth": self.auth, "traceId": self.trace_id}
        if self.reply_to is not None:
            members["replyTo"] = self.reply_to.to_json()
        return members | {"payload": dict(self.payload)}

    @property
    def auth(self) -> dict[str, Any] | None:
        return None if self.turn.auth is None else self.turn.auth.to_json()

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> UnifiedEvent:
        turn = {name: value for name, value in data["turn"].items() if name != "auth"}
        turn |= {} if data["auth"] is None else {"auth": data["auth"]}
        same = {name: data[name] for name in ("id", "type", "input", "source", "payload")}
        reply_to = _reply_to(data.get("replyTo"))
        return cls(**same, turn=Turn.from_json(turn), trace_id=data["traceId"], reply_to=reply_to)


def normalised(queued: Mapping[str, Any]) -> UnifiedEvent:
    """Return an event of the broker's queue as a UnifiedEvent (002 section 11.2). An event of our own has `input`,
    `source`, `traceId` and `replyTo` in its payload; that of another one tells the model what happened."""
    payload = queued["payload"]
    turn = {name: queued[name] for name in ("agentName", "instanceKey", "swarmRef", "origin", "auth")}
    if "locale" in queued:
        turn["locale"] = queued["locale"]
    trace = payload.get("traceId")
    return UnifiedEvent(
        id=queued["eventId"],
        type=queued["type"],
        input=payload.get("input") if isinstance(payload.get("input"), str) else None,
        source=payload["source"] if isinstance(payload.get("source"), Mapping) else {"kind": "queue"},
        turn=Turn.from_json(turn),
        trace_id=trace if isinstance(trace, str) else f"trace-{queued['eventId']}",
        reply_to=_reply_to(payload.get("replyTo")),
        payload=payload,
    )


def _reply_to(given: object) -> ReplyTo | None:
    match given:
        case {"target": str(target), "correlationId": str(correlation)}:
            return ReplyTo(target, correlation)
    return None
