"""One request and its answer on a connection, as ASGI sees them (ASGI HTTP 2.3)."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import unquote

from starlette.types import Message, Scope

from oauthbroker.serving.wire import Head

HIGH_WATER = 64 * 1024  # bytes of a body that nobody has asked for yet
_BODILESS = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})
_STATUS_LINES = {each.value: f"HTTP/1.1 {each.value} {each.phrase}\r\n".encode() for each in HTTPStatus}


class Line(Protocol):
    """What an exchange needs of its connection."""

    @property
    def held_up(self) -> bool:
        """Whether the client leaves what we wrote unread."""
        ...

    @property
    def own_headers(self) -> list[tuple[bytes, bytes]]:
        """What every answer of the server carries, in front of its own."""
        ...

    async def drained(self) -> None: ...
    def write(self, data: bytes) -> None: ...
    def hold(self) -> None:
        """Nothing more is read for now."""
        ...

    def read_on(self) -> None: ...
    def answered(self) -> None:
        """The answer is whole."""
        ...


class Exchange:
    """`receive` and `send` of one request. `begun`: something of its answer was written; `complete`: all of it."""

    __slots__ = (
        "_chunked",
        "_expects_continue",
        "_head",
        "_left",
        "_line",
        "_method",
        "_more",
        "_news",
        "_parts",
        "_told_all",
        "_version",
        "begun",
        "complete",
        "gone",
        "keeps_alive",
    )

    def __init__(self, line: Line, head: Head) -> None:
        self.begun = self.complete = self.gone = False
        self.keeps_alive = head.keeps_alive
        self._line, self._method, self._version = line, head.method, head.version
        self._expects_continue = head.expects_continue
        self._parts = b""
        self._more, self._told_all = head.body is not None, False
        self._news: asyncio.Future[None] | None = None
        self._head: bytes | None = None
        self._left, self._chunked = 0, False

    def take(self, part: bytes, *, more: bool) -> None:
        """A part of the body has come."""
        self._expects_continue, self._more = False, more
        if not self.complete:
            self._parts = self._parts + part if self._parts else part
            if len(self._parts) > HIGH_WATER:
                self._line.hold()
        self._wake()

    def leave(self) -> None:
        """The client is not there any more, or must not be answered."""
        self.gone = True
        self._wake()

    async def receive(self) -> Message:
        """The body as far as it has come; after all of it, that the client has gone or was answered."""
        if self._expects_continue:
            self._expects_continue = False
            self._line.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        while not (self.gone or self.complete):
            if self._parts or not (self._more or self._told_all):
                part, self._parts, self._told_all = self._parts, b"", not self._more
                return {"type": "http.request", "body": part, "more_body": self._more}
            self._line.read_on()
            self._news = asyncio.get_running_loop().create_future()
            await self._news
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """The head is kept until something of the body is there. Raises RuntimeError for what is no answer."""
        if self._line.held_up and not self.gone:
            await self._line.drained()
        if self.gone:
            return
        kind = message["type"]
        if self._head is None and not self.begun and kind == "http.response.start":
            self._begin(message)
        elif (self._head is not None or self.begun) and not self.complete and kind == "http.response.body":
            self._write(message.get("body", b""), more=message.get("more_body", False))
        else:
            raise RuntimeError(f"{kind} is out of place")

    def _begin(self, message: Message) -> None:
        headers = [*self._line.own_headers, *message["headers"]]
        named, status = dict(headers), message["status"]
        lines = [name + b": " + value + b"\r\n" for name, value in headers]
        if self._expects_continue or b"close" in named.get(b"connection", b"").lower():
            self.keeps_alive = False  # who waits to be asked for its body sends it now, or the next request: who knows
        self._left = int(named.get(b"content-length", 0))
        if self._method == b"HEAD" or status in _BODILESS:
            self._left = 0
        elif b"content-length" not in named:
            self._chunked = self._version == "1.1"
            self._left = -1
        if self._chunked:
            lines.append(b"transfer-encoding: chunked\r\n")
        elif self._left < 0:
            self.keeps_alive = False
        if not self.keeps_alive and b"connection" not in named:
            lines.append(b"connection: close\r\n")
        block = b"".join(lines)
        if not len(lines) == block.count(b"\n") == block.count(b"\r") or b"\0" in block:
            raise RuntimeError("a header with a line end in it")
        self._head = _STATUS_LINES[status] + block + b"\r\n"

    def _write(self, body: bytes, *, more: bool) -> None:
        if self._method == b"HEAD":
            body = b""
        if self._chunked:
            data = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            data += b"" if more else b"0\r\n\r\n"
        else:
            data = body
            if self._left >= 0:
                self._left -= len(body)
                if self._left < 0 or (self._left and not more):
                    raise RuntimeError("a body of another length than its head says")
        if self._head is not None:
            data, self._head = self._head + data, None
        self.begun = True
        if data:
            self._line.write(data)
        if not more:
            self.complete = True
            self._wake()
            self._line.answered()

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)


def scope_of(head: Head, **rest: Any) -> Scope:
    """What ASGI wants to know of a request; `rest` is what does not depend on it."""
    raw_path, _, query = head.target.partition(b"?")
    path = raw_path.decode("ascii")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": head.version,
        "method": head.method.decode("ascii"),
        "path": unquote(path) if "%" in path else path,
        "raw_path": raw_path,
        "query_string": query,
        "root_path": "",
        "headers": head.headers,
        "state": {},
        **rest,
    }
