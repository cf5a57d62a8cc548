"""The requests and answers of the test servers. `server` carries them."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, Protocol
from urllib.parse import parse_qsl, urlencode

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from oauthbroker.core.dataclasses import KW_ONLY, dataclass, field, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
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
        pairs = (part.strip().partition("=") for part in self.header("cookie").split(";") if "=" in part)
        return {name: value for name, _, value in pairs}


class Wire:
    """Answers one request: through uvicorn, or with bytes on its transport."""

    def __init__(self, connection: H11Protocol, send: Callable[[Any], Awaitable[None]], *, is_head: bool) -> None:
        self._connection = connection
        self._send = send
        self.is_head = is_head
        self.is_answered = False

    async def answer(self, answer: Answer) -> None:
        """Answer by the rules of HTTP. The connection may serve another request."""
        pairs = [*answer.headers, ("content-length", str(len(answer.body)))]
        headers = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in pairs]
        await self._send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await self._send({"type": "http.response.body", "body": answer.body})
        self.is_answered = True

    async def write(self, data: bytes) -> None:
        """Write bytes that need not be HTTP. The connection ends after the last ones. Raises ConnectionError."""
        if self._connection.transport.is_closing():
            raise ConnectionResetError
        self._connection.transport.write(data)
        await self._connection.flow.drain()

    def reset(self) -> None:
        """Cut the connection with a reset instead of an orderly end."""
        raw = self._connection.transport.get_extra_info("socket")
        with contextlib.suppress(OSError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self._connection.transport.abort()


class Reply(Protocol):
    """An answer: an ordinary `Answer` or one of `faults`."""

    async def send(self, wire: Wire) -> None: ...


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
        if self.encoding == "query":
            location = ("location", with_query(self.target, document))
            others = (pair for pair in self.headers if pair[0] != "location")
            return replace(self, document=dict(document), headers=(location, *others))
        return replace(self, document=dict(document), body=_encoded(document, form=self.encoding == "form"))

    def with_headers(self, *headers: tuple[str, str]) -> Answer:
        return replace(self, headers=(*self.headers, *headers))

    def head(self) -> bytes:
        """Return the bytes before the body, unchecked: a test may want them invalid. The connection ends with it."""
        headers = (*self.headers, ("connection", "close"))
        lines = [f"HTTP/1.1 {self.status} Status", *(f"{name}: {value}" for name, value in headers)]
        if not self._is_framed:
            lines.append(f"content-length: {len(self.body)}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")

    async def send(self, wire: Wire) -> None:
        if not self._is_framed and 200 <= self.status <= 599:  # a script's own framing may be wrong on purpose
            with contextlib.suppress(h11.LocalProtocolError):  # and so may its headers
                await wire.answer(self)
                return
        await wire.write(self.head() + (b"" if wire.is_head else self.body))

    @property
    def _is_framed(self) -> bool:
        return any(name.lower() in {"content-length", "transfer-encoding"} for name, _ in self.headers)


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
