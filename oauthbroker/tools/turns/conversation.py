"""A conversation of one agent instance: messages that were recorded, and the ones that this turn adds. A message is
recorded before anything follows from it, so a turn that was interrupted goes on where it was."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Final

from oauthbroker.tools.types.results import Message, ToolCall, ToolCallResult

Record = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any] | None]]
ID_CHARACTERS: Final = 24  # of a call's id after its prefix: providers take at most 40


class Conversation:
    """The messages that a turn sees. `record` takes each `MessageEvent` and returns when it is durable: the message if
    it was recorded in another form, without tokens."""

    def __init__(
        self, *, turn_id: str, earlier: Sequence[Message], recorded: Iterable[Message], record: Record
    ) -> None:
        self._turn_id, self._record = turn_id, record
        self._earlier, self._own = list(earlier), list(recorded)
        self._recording = asyncio.Lock()

    @property
    def messages(self) -> list[Message]:
        """All messages, results in the order of their calls."""
        return self._earlier + in_order(self._own)

    @property
    def is_new(self) -> bool:
        return not self._own

    @property
    def steps(self) -> int:
        """The count of steps that have asked the model."""
        return sum(message.role == "assistant" for message in self._own)

    @property
    def last(self) -> Message | None:
        """The newest message of the model in this turn."""
        return next((message for message in reversed(self._own) if message.role == "assistant"), None)

    def unanswered(self) -> Message | None:
        """Return the model's message with calls that have no result yet, after an interruption."""
        last = self.last
        return last if last is not None and any(call.id not in self.results() for call in last.calls) else None

    def results(self) -> dict[str, ToolCallResult]:
        """Return this turn's results by the ids of their calls."""
        return {message.result.tool_call_id: message.result for message in self._own if message.result is not None}

    async def say(self, role: Any, text: str, calls: Sequence[ToolCall] = ()) -> Message:
        """Append a message. The ids of its calls are made unique, and the same after a crash."""
        step = self.steps
        named = tuple(replace(call, id=_call_id(self._turn_id, step, index)) for index, call in enumerate(calls))
        return await self._append(role=role, text=text, calls=named)

    async def add_result(self, result: ToolCallResult) -> None:
        """Append the result of a call. The results of calls that run in parallel may come at the same time."""
        await self._append(role="tool", result=result)

    async def _append(self, **members: Any) -> Message:
        """Record a message, and go on with its recorded form, without tokens. One at a time, so that no two messages
        share a number, and a crash leaves no gap, at which the messages of a turn would seem to end."""
        async with self._recording:
            message = Message(id=f"{self._turn_id}.{len(self._own)}", **members)
            kept = await self._record({"type": "append", "message": message.to_json()})
            self._own.append(message if kept is None else Message.from_json(kept))
            return self._own[-1]


def in_order(messages: Sequence[Message]) -> list[Message]:
    """Return the messages with the results of each step in the order of its calls, not in that of their ends."""
    places = {call.id: index for message in messages for index, call in enumerate(message.calls)}

    def place(message: Message) -> int:
        return places.get(message.result.tool_call_id, 0) if message.result is not None else 0

    runs = groupby(messages, lambda message: message.result is not None)
    return [message for _, run in runs for message in sorted(run, key=place)]


def _call_id(turn_id: str, step: int, index: int) -> str:
    digest = hashlib.sha256(f"{turn_id}\x1f{step}\x1f{index}".encode()).hexdigest()
    return f"call-{digest[:ID_CHARACTERS]}"
