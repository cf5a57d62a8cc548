"""A minimal HTTP/1.1 server that can also send invalid answers. h11 parses, this module writes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from http import HTTPStatus
from typing import Any, Literal, Protocol
from urllib.parse import parse_qsl, urlencode

import h11

_BODY_LIMIT = 1 << 20
_CHUNK = 1 << 16
_FAREWELL_SECONDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One complete request."""

    method: str
    path: str
    query: str
    headers: tuple[tuple[str, str], ...]
    body: bytes = field(default=b"", repr=False)

    def header(self, name: str) -> str:
        """Return the first header of that name (any case), or an empty text."""
        return next((value for key, value in self.headers if key == name.lower()), "")

    @property
    def query_fields(self) -> list[tuple[str, str]]:
        """Return the fields of the query, in order, blank ones included."""
        return parse_qsl(self.query, keep_blank_values=True)

    @property
    def form_fields(self) -> list[tuple[str, str]]:
        """Return the fields of a form body, in order; none for another content type."""
        if not self.header("content-type").startswith("application/x-www-form-urlencoded"):
            return []
        return parse_qsl(self.body.decode("utf-8", "replace"), keep_blank_values=True)

    @property
    def cookies(self) -> dict[str, str]:
        """Return the cookies, by name."""
        pairs = (part.strip().partition("=") for part in self.header("cookie").split(";") if "=" in part)
        return {name: value for name, _, value in pairs}


class Wire:
    """Writes raw bytes to the client."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def send(self, data: bytes) -> None:
        """Write and wait until the kernel has accepted most of it. Raises ConnectionError."""
        self._writer.write(data)
        await self._writer.drain()

    async def end(self, reader: asyncio.StreamReader) -> None:
        """End the answers, and read what the client still sends, for a moment: closing with bytes unread would reset
        the connection, and the answer could be lost."""
        with contextlib.suppress(TimeoutError, OSError):  # the client may have left
            if self._writer.can_write_eof():
                self._writer.write_eof()
                async with asyncio.timeout(_FAREWELL_SECONDS):
                    while await reader.read(_CHUNK):
                        pass

    def reset(self) -> None:
        """Cut the connection with a reset instead of an orderly end."""
        raw = self._writer.get_extra_info("socket")
        with contextlib.suppress(OSError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self._writer.transport.abort()


class Reply(Protocol):
    """An answer: an ordinary `Answer` or one of `faults`."""

    async def send(self, wire: Wire, *, head: bool) -> bool:
        """Write the answer; `head` omits the body. True if the connection may serve another request."""
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """An ordinary answer. `document` is the source of its body (or, for `query`, its Location).

    A script alters the document; `with_document` encodes it again.
    """

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = field(default=b"", repr=False)
    _: KW_ONLY
    document: dict[str, Any] | None = field(default=None, repr=False)
    encoding: Literal["json", "form", "query"] = "json"
    target: str = ""

    def with_document(self, document: Mapping[str, Any]) -> Answer:
        """Return the same answer with another document."""
        if self.encoding == "query":
            location = ("location", with_query(self.target, document))
            others = (pair for pair in self.headers if pair[0] != "location")
            return replace(self, document=dict(document), headers=(location, *others))
        return replace(self, document=dict(document), body=_encoded(document, form=self.encoding == "form"))

    def with_headers(self, *headers: tuple[str, str]) -> Answer:
        """Return the same answer with more headers."""
        return replace(self, headers=(*self.headers, *headers))

    def encode(self, *, head: bool = False) -> bytes:
        """Return the bytes of the answer, unchecked: a test may want them invalid."""
        phrase = HTTPStatus(self.status).phrase if self.status in {s.value for s in HTTPStatus} else "Unheard Of"
        lines = [f"HTTP/1.1 {self.status} {phrase}", *(f"{name}: {value}" for name, value in self.headers)]
        if not any(name.lower() in {"content-length", "transfer-encoding"} for name, _ in self.headers):
            lines.append(f"content-length: {len(self.body)}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + (b"" if head else self.body)

    async def send(self, wire: Wire, *, head: bool) -> bool:
        await wire.send(self.encode(head=head))
        return True


def with_query(url: str, fields: Mapping[str, Any]) -> str:
    """Return a URL with these fields added to its query; None is omitted, a list repeats its name."""
    present = {name: value for name, value in fields.items() if value is not None}
    return url + ("&" if "?" in url else "?") + urlencode(present, doseq=True)


def _encoded(document: Mapping[str, Any], *, form: bool) -> bytes:
    if form:
        return urlencode({key: value for key, value in document.items() if value is not None}).encode()
    return json.dumps(document).encode()


def json_answer(document: Mapping[str, Any], status: int = 200, *, form: bool = False) -> Answer:
    """Build a JSON (or form-encoded) answer with Cache-Control: no-store."""
    kind = "application/x-www-form-urlencoded; charset=utf-8" if form else "application/json"
    answer = Answer(
        status, (("content-type", kind), ("cache-control", "no-store")), encoding="form" if form else "json"
    )
    return answer.with_document(document)


def redirect(to: str, fields: Mapping[str, Any] | None = None) -> Answer:
    """Build a redirect; `fields` are added to the query and can be altered by a script."""
    headers = (("location", to), ("cache-control", "no-store"), ("referrer-policy", "no-referrer"))
    answer = Answer(303, headers, encoding="query", target=to)
    return answer if fields is None else answer.with_document(fields)


Handler = Callable[[Request], Awaitable[Reply]]


class HttpServer:
    """Listens on 127.0.0.1 and passes every request to one handler; with a context, over TLS."""

    def __init__(self, handler: Handler, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self._handler = handler
        self._tls = tls
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", port))
        self.port: int = self._socket.getsockname()[1]
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()
        self.fault: Exception | None = None

    async def start(self) -> None:
        """Listen, in the running loop."""
        self._server = await asyncio.start_server(self._serve, sock=self._socket, backlog=1024, ssl=self._tls)

    async def stop(self) -> None:
        """Stop listening and drop every connection, hanging ones included."""
        if self._server:
            self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        self._socket.close()
        await asyncio.sleep(0)  # let the transports close their sockets

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await self._converse(reader, Wire(writer))
        finally:
            self._open.discard(task)
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, wire: Wire) -> None:
        left_over = b""
        while True:
            inbox = _Inbox(left_over)
            try:
                request = await inbox.read(reader, wire)
            except h11.RemoteProtocolError as exc:
                await Answer(exc.error_status_hint, (("connection", "close"),)).send(wire, head=False)
                await wire.end(reader)
                return
            if request is None:
                return
            reply = await self._reply(request)
            again = await reply.send(wire, head=request.method == "HEAD")
            if not again or not inbox.may_go_on:
                return
            left_over = inbox.left_over

    async def _reply(self, request: Request) -> Reply:
        try:
            return await self._handler(request)
        except Exception as exc:  # noqa: BLE001 - a test's own script may fail in any way; the test must hear of it
            self.fault = self.fault or exc
            return Answer(500, (("connection", "close"),))


class _Inbox:
    """Reads one request."""

    def __init__(self, left_over: bytes) -> None:
        self._h11 = h11.Connection(h11.SERVER)
        self._h11.receive_data(left_over) if left_over else None

    @property
    def may_go_on(self) -> bool:
        return self._h11.their_state is h11.DONE

    @property
    def left_over(self) -> bytes:
        return self._h11.trailing_data[0]

    async def read(self, reader: asyncio.StreamReader, wire: Wire) -> Request | None:
        """Return the request, or None if the client has left. Raises h11.RemoteProtocolError."""
        head: h11.Request | None = None
        body = bytearray()
        while True:
            event = self._h11.next_event()
            if event is h11.NEED_DATA:
                if self._h11.they_are_waiting_for_100_continue:
                    await wire.send(b"HTTP/1.1 100 Continue\r\n\r\n")
                self._h11.receive_data(await reader.read(_CHUNK))
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > _BODY_LIMIT:
                    raise h11.RemoteProtocolError("too large", error_status_hint=413)
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                return _request(head, bytes(body))
            else:
                return None


def _request(head: h11.Request, body: bytes) -> Request:
    path, _, query = head.target.decode("latin-1").partition("?")
    headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in head.headers)
    return Request(method=head.method.decode("latin-1"), path=path, query=query, headers=headers, body=body)
