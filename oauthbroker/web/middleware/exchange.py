"""One request under way: its notes, and its two ends."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from starlette.datastructures import MutableHeaders
from starlette.types import Message, Receive, Send

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.web.middleware.deadlines import Deadlines

RawHeaders = Sequence[tuple[bytes, bytes]]
EXCHANGE = "oauthbroker.exchange"  # in the scope: the request that the gate has begun
_NOT: Mapping[str, str] = {}


class HttpExchange:
    """Counts what comes in, and adds `headers` and the request's id to what goes out. `most` bytes may come in."""

    __slots__ = (
        "_deadlines",
        "_headers",
        "_receive",
        "_received",
        "_send",
        "_task",
        "_tries",
        "id",
        "is_known",
        "is_late",
        "is_relayed",
        "most",
        "received_all",
        "refused",
        "status",
    )  # fmt: skip

    def __init__(
        self, receive: Receive, send: Send, *, request_id: str, headers: RawHeaders, deadlines: Deadlines
    ) -> None:
        self._receive, self._send, self._headers, self._deadlines = receive, send, headers, deadlines
        self.id = request_id
        self.status = 0  # of the answer, once it has begun
        self.refused = _NOT  # the code of a refusal, and a note for the operator
        self.is_known = False  # it has good credentials
        self.is_relayed = True  # by a proxy, until it was looked at
        self.most = self._received = 0
        self.received_all = False
        self.is_late = False  # it had no answer in time, and was ended
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  (a server calls applications in tasks)
        self._task, self._tries = task, task.cancelling()

    def end_late(self) -> None:
        self.is_late = True
        self._task.cancel()

    def end_time(self) -> bool:
        """Lift the time limit. Return whether the task was cancelled for it, and for nothing else."""
        self._deadlines.lift(self)
        return self.is_late and self._task.uncancel() <= self._tries

    async def receive(self) -> Message:
        message = await self._receive()
        self._received += len(message.get("body", b""))
        self.received_all = not message.get("more_body", False)
        if self._received > self.most:
            raise BrokerError(Code.REQUEST_TOO_LARGE)
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._deadlines.lift(self)
            said = {name.lower() for name, _ in message["headers"]}
            ours = [pair for pair in self._headers if pair[0] not in said]
            headers = [*message["headers"], *ours, (b"x-request-id", self.id.encode())]
            message = {**message, "headers": headers}
            if self._received > self.most:
                MutableHeaders(scope=message)["connection"] = "close"
        await self._send(message)

    def take_time(self) -> None:
        """Lift the time limit."""
        self._deadlines.lift(self)


def only_value(headers: RawHeaders, name: bytes) -> bytes | None:
    """Return the value of a header that came once. None for one that is missing or came twice."""
    found = [value for each, value in headers if each == name]
    return found[0] if len(found) == 1 else None
