"""Tool calls, their results, and the messages of a conversation, as JSON at the edges (specification 002, sections 8.2
and 10). The members of messages are ours: neither document prints them. Each limit of what goes into a tool and comes
out of it stands here: a record, a message between processes and a conversation take a value of these limits together
with their own members."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final, Literal

from oauthbroker.plugins import JsonLimits

TRUNCATED: Final = "... (truncated)"
Role = Literal["system", "user", "assistant", "tool"]
VALUE: Final = JsonLimits(256 * 1024, 64, 100_000)  # the arguments or the output of a call, or a model's answer
STATE: Final = JsonLimits(1_000_000, 64, 100_000)  # the value of an extension, or the blocks of a step
IN_EVENT: Final = JsonLimits(48 * 1024, 32, 10_000)  # the end of work that goes on; a larger output is kept beside it
INPUT: Final = JsonLimits(60 * 1024, 1, 1)  # the text of a request or message; the rest of 64 KiB is for its event
MESSAGE: Final = 1000  # characters of an error's message, where a tool has no limit of its own
SUGGESTION: Final = 8000  # characters: it may have a link
NAME: Final = 200  # characters of an error's name or code, of a call's id, and of a handle
READ: Final = 100_000  # characters of a foreign text
READ_BESIDE: Final = 16_000  # characters of a text beside a message, so that an error fits what a process may answer


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model asks for: `{id, name, args}`. `name` is the full name, `resource__export`. `refused`: why
    the turn does not perform it."""

    id: str
    name: str
    args: Mapping[str, Any] = field(default_factory=dict)
    _: KW_ONLY
    refused: ToolError | None = None

    def to_json(self) -> dict[str, Any]:
        """Return `{id, name, args, refused?}`."""
        members = {"id": self.id, "name": self.name, "args": dict(self.args)}
        return members if self.refused is None else members | {"refused": self.refused.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ToolCall:
        """Parse the form of `to_json`. Raises KeyError."""
        refused = ToolError.from_json(data["refused"]) if "refused" in data else None
        return cls(data["id"], data["name"], data["args"], refused=refused)


@dataclass(frozen=True, slots=True)
class Submitted:
    """A handler returns it when its work goes on elsewhere after the call. The handle names the work (004 section
    12.3); the program that does the work queues its end."""

    handle: str


@dataclass(frozen=True, slots=True)
class GoesOn:
    """A handler returns it when its work goes on in this process after the call. The model gets a handle at once, and
    the agent an event when `work` ends."""

    work: Coroutine[Any, Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolError:
    """Why a call failed, in words that the model can act on."""

    message: str
    name: str = "Error"
    code: str = "E_TOOL"
    suggestion: str | None = None
    help_url: str | None = None

    def to_json(self) -> dict[str, Any]:
        members = {"message": self.message, "name": self.name, "code": self.code}
        optional = {"suggestion": self.suggestion, "helpUrl": self.help_url}
        return members | {member: text for member, text in optional.items() if text is not None}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ToolError:
        return cls(**{"help_url" if member == "helpUrl" else member: text for member, text in data.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallResult:
    """The end of a call. Exactly one of `output`, `handle` and `error` is meant: `handle` where the work goes on after
    the call (004 section 12.3), `error` where `status` is `error`."""

    tool_call_id: str
    tool_name: str
    status: Literal["ok", "error"] = "ok"
    output: Any = None
    handle: str | None = None
    error: ToolError | None = None

    @classmethod
    def failed(cls, call: ToolCall, error: ToolError) -> ToolCallResult:
        """Return the result of a call that ended with an error."""
        return cls(tool_call_id=call.id, tool_name=call.name, status="error", error=error)

    def to_json(self) -> dict[str, Any]:
        """Return `{toolCallId, toolName, status}` with `output`, `handle` or `error`."""
        members: dict[str, Any] = {"toolCallId": self.tool_call_id, "toolName": self.tool_name, "status": self.status}
        if self.error is not None:
            return members | {"error": self.error.to_json()}
        return members | ({"output": self.output} if self.handle is None else {"handle": self.handle})

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ToolCallResult:
        """Parse the form of `to_json`. Raises KeyError."""
        error = ToolError.from_json(data["error"]) if "error" in data else None
        ids = {"tool_call_id": data["toolCallId"], "tool_name": data["toolName"], "status": data["status"]}
        return cls(**ids, output=data.get("output"), handle=data.get("handle"), error=error)


def truncated(message: str, limit: int) -> str:
    """Cut a message to `limit` characters, `... (truncated)` included (002 section 10.4)."""
    if len(message) <= limit:
        return message
    return (message[: max(0, limit - len(TRUNCATED))] + TRUNCATED)[:limit]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message. `calls` belong to an assistant's message, `result` to a tool's."""

    id: str
    role: Role
    text: str = ""
    calls: Sequence[ToolCall] = ()
    result: ToolCallResult | None = None

    def to_json(self) -> dict[str, Any]:
        """Return `{id, role}` with `result`, or with `text` and `toolCalls`."""
        members: dict[str, Any] = {"id": self.id, "role": self.role}
        if self.result is not None:
            return members | {"result": self.result.to_json()}
        calls = {"toolCalls": [call.to_json() for call in self.calls]} if self.calls else {}
        return members | {"text": self.text} | calls

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Message:
        """Parse the form of `to_json`. Raises KeyError."""
        calls = [ToolCall.from_json(call) for call in data.get("toolCalls", ())]
        result = ToolCallResult.from_json(data["result"]) if "result" in data else None
        return cls(id=data["id"], role=data["role"], text=data.get("text", ""), calls=calls, result=result)
