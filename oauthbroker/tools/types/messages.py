"""Messages of a conversation. Their members are ours: neither document prints them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from oauthbroker.tools.types.results import ToolCall, ToolCallResult

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message. `calls` belong to an assistant's message, `result` to a tool's."""

    id: str
    role: Role
    text: str = ""
    calls: Sequence[ToolCall] = ()
    result: ToolCallResult | None = None

    def to_json(self) -> dict[str, Any]:
        members: dict[str, Any] = {"id": self.id, "role": self.role}
        if self.result is not None:
            return members | {"result": self.result.to_json()}
        calls = {"toolCalls": [call.to_json() for call in self.calls]} if self.calls else {}
        return members | {"text": self.text} | calls

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Message:
        calls = [ToolCall.from_json(call) for call in data.get("toolCalls", ())]
        result = ToolCallResult.from_json(data["result"]) if "result" in data else None
        return cls(id=data["id"], role=data["role"], text=data.get("text", ""), calls=calls, result=result)
