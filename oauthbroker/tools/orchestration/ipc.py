"""The IPC between an orchestrator and an agent process: JSON lines over a socket, in order. A message has `type`,
`from`, `to` and `payload`; its type is `event`, `shutdown` or `shutdown_ack`. A question is an event with `replyTo`;
its answer, and the event that takes it back, have its correlation id as `metadata.inReplyTo`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from oauthbroker.plugins import type_name
from oauthbroker.tools.calling.call_life import cancelled
from oauthbroker.tools.types.agent_event import ANSWER

MOST_LINE: Final = 8 * 1024 * 1024  # of a message, for its writer and its reader
TAKEN_BACK: Final = "ipc.takenBack"
OUTDATED: Final = "outdated"  # the status of a turn that goes on in a process with the newest configuration
Serve = Callable[[str, dict[str, Any]], Awaitable[Any]]


class PeerGone(Exception):
    """The other process has ended, or wrote something that is no message."""


class IpcRefused(Exception):
    """The other side refused a question. `code` and `message` are for the model."""

    def __init__(self, code: str, message: str, suggestion: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.suggestion = code, message, suggestion

    def to_json(self) -> dict[str, Any]:
        return {"code": self.code, "message": self.message, "suggestion": self.suggestion}


class Peer:
    """One end of the IPC. `serve` answers the questions of the other end."""

    def __init__(self, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], own: str, other: str) -> None:
        self._reader, self._writer = streams
        self._own, self._other = own, other
        self._waiting: dict[str, asyncio.Future[Any]] = {}
        self._serving: dict[asyncio.Task[None], str] = {}  # the correlation ids of the other end's questions
        self._asked = 0
        self._gone = False
        self.shutdown_asked = asyncio.Event()
        self.shutdown_acknowledged = asyncio.Event()

    async def ask(self, kind: str, payload: Mapping[str, Any]) -> Any:
        """Send a question and return its answer; a cancelled one is taken back. Raises PeerGone and IpcRefused."""
        if self._gone:
            raise PeerGone
        self._asked += 1
        correlation = f"{self._own}#{self._asked}"
        answer = self._waiting[correlation] = asyncio.get_running_loop().create_future()
        reply_to = {"target": self._own, "correlationId": correlation}
        try:
            await self._send("event", {"type": kind, "replyTo": reply_to, "payload": dict(payload)})
            return await answer
        except asyncio.CancelledError:
            with suppress(OSError, RuntimeError):
                self._write("event", {"type": TAKEN_BACK, "metadata": {"inReplyTo": correlation}})
            raise
        finally:
            del self._waiting[correlation]

    async def shut_down(self) -> None:
        """Ask the other end to end after the work under way."""
        await self._send("shutdown", {})

    async def acknowledge_shutdown(self) -> None:
        """Answer the questions under way, then acknowledge the shutdown."""
        await asyncio.gather(*self._serving, return_exceptions=True)
        with suppress(PeerGone):
            await self._send("shutdown_ack", {})

    async def run(self, serve: Serve) -> None:
        """Read messages until the other end is gone. Then all waiting questions fail with PeerGone."""
        try:
            while (message := await self._read()) is not None:
                self._take(message, serve)
        finally:
            self._gone = True
            self._writer.close()  # first, because a second cancel may end what follows
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(PeerGone())
            await cancelled(self._serving)

    def _take(self, message: dict[str, Any], serve: Serve) -> None:
        match message:
            case {"type": "shutdown"}:
                self.shutdown_asked.set()
            case {"type": "shutdown_ack"}:
                self.shutdown_acknowledged.set()
            case {"type": "event", "payload": {"metadata": {"inReplyTo": str(correlation)}, "payload": dict(answer)}}:
                self._answered(correlation, answer)
            case {"type": "event", "payload": {"type": str(kind), "metadata": {"inReplyTo": str(correlation)}}} if (
                kind == TAKEN_BACK
            ):
                for task in [task for task, asked in self._serving.items() if asked == correlation]:
                    task.cancel()
            case {
                "type": "event",
                "payload": {
                    "type": str(kind),
                    "replyTo": {"correlationId": str(correlation)},
                    "payload": dict(payload),
                },
            }:
                task = asyncio.create_task(self._answer(kind, correlation, payload, serve))
                self._serving[task] = correlation
                task.add_done_callback(self._serving.pop)

    def _answered(self, correlation: str, answer: dict[str, Any]) -> None:
        waiting = self._waiting.get(correlation)
        if waiting is None or waiting.done():
            return  # the question was cancelled
        match answer:
            case {"error": {"code": str(code), "message": str(text), "suggestion": str() | None as suggestion}}:
                waiting.set_exception(IpcRefused(code, text, suggestion))
            case _:
                waiting.set_result(answer.get("value"))

    async def _answer(self, kind: str, correlation: str, payload: dict[str, Any], serve: Serve) -> None:
        try:
            answer = {"value": await serve(kind, payload)}
        except IpcRefused as refused:
            answer = {"error": refused.to_json()}
        except Exception as error:  # noqa: BLE001  (the other end must not wait for ever)
            answer = {"error": IpcRefused("E_IPC", f"the answer failed with {type(error).__name__}").to_json()}
        with suppress(PeerGone):
            members = {"type": ANSWER, "metadata": {"inReplyTo": correlation}}
            try:
                await self._send("event", members | {"payload": answer})
            except IpcRefused as refused:
                await self._send("event", members | {"payload": {"error": refused.to_json()}})

    async def _read(self) -> dict[str, Any] | None:
        """Return the next message; None when the other end is gone or writes something else."""
        try:
            message = json.loads(await self._reader.readline())
        except (OSError, ValueError, RecursionError):  # ValueError: also a line that is too long, and the empty end
            return None
        return message if isinstance(message, dict) else None

    async def _send(self, kind: str, payload: Mapping[str, Any]) -> None:
        try:
            self._write(kind, payload)
            await self._writer.drain()
        except (OSError, RuntimeError):
            raise PeerGone from None

    def _write(self, kind: str, payload: Mapping[str, Any]) -> None:
        message = {"type": kind, "from": self._own, "to": self._other, "payload": payload}
        self._writer.write(_line(message))  # one write: lines never mix


def _line(message: Mapping[str, Any]) -> bytes:
    """Return a message as its reader takes it. Raises IpcRefused: the question fails, and not the connection."""
    problem = ""
    try:
        line = json.dumps(message, allow_nan=False).encode() + b"\n"
        if len(line) < MOST_LINE:
            return line
        problem = f"a message between processes has {len(line)} bytes, and {MOST_LINE} are allowed: use less"
    except Exception as error:  # noqa: BLE001  (code of a tool may have made the value)
        problem = f"a message between processes is not JSON: {type_name(error)}"
    raise IpcRefused("E_IPC", problem)
