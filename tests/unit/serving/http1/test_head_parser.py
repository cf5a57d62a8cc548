"""The server's parser against another one: h11 reads every accepted head the same way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from starlette.types import Receive, Scope, Send

from oauthbroker.serving.http1.head_parser import HEAD_LIMIT, validate
from tests.kit.wire import Line, Wire

Read = tuple[bytes, bytes, str, list[tuple[bytes, bytes]], bytes | None]
PLAIN = b"POST /v1/tokens?a=b HTTP/1.1\r\nHost: broker.example\r\nContent-Length: 4\r\nX-One:\t a b \r\n\r\nbody"
CHUNKED = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4;a=b\r\nbody\r\n0\r\nX-Two: c\r\n\r\n"
OLD = b"GET /%41 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
SOUND = [PLAIN, CHUNKED, OLD]
BYTES = [bytes([byte]) for byte in b"\r\n\0 \t:,;\x0b\x85\xff-01f"]
WORDS = [b"\r\n", b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n", b"Host: b\r\n", b"chunked", b"HTTP/1.0"]


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """Draw a sound request with a few bytes replaced, inserted or removed."""
    data = draw(st.sampled_from(SOUND))
    for _ in range(draw(st.integers(0, 2))):
        at, end = draw(st.integers(0, len(data))), draw(st.integers(0, 3))
        data = data[:at] + draw(st.sampled_from([*BYTES, *WORDS])) + data[at + end :]
    return data


def by_h11(data: bytes) -> Read:
    """Return the first request as h11 reads it, and its body if it is complete and sound."""
    reader = h11.Connection(h11.SERVER, max_incomplete_event_size=2 * HEAD_LIMIT)
    reader.receive_data(data)
    request, parts = reader.next_event(), bytearray()
    assert isinstance(request, h11.Request)
    event: object = None
    with suppress(h11.RemoteProtocolError):
        while isinstance(event := reader.next_event(), h11.Data):
            parts += event.data
    body = bytes(parts) if isinstance(event, h11.EndOfMessage) else None
    return request.method, request.target, request.http_version.decode(), list(request.headers), body


async def taken_in(*parts: bytes) -> tuple[list[Read], Wire]:
    """Return the requests that reach the application, and the connection's wire."""
    found: list[Read] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            more = message.get("more_body", False)
            body = body + message["body"] if message["type"] == "http.request" else b""
        whole = body if message["type"] == "http.request" else None
        target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        found.append((scope["method"].encode(), target, scope["http_version"], scope["headers"], whole))
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    line = Line(app)
    for part in parts:
        line.connection.data_received(part)
        for _ in range(6):
            await asyncio.sleep(0)
    await line.close()
    return found, line.wire


@pytest.mark.case("84")
@given(requests())
@example(PLAIN)
@example(CHUNKED)
@example(OLD)
def test_what_reaches_the_application_is_read_the_same_by_another_reader(data: bytes) -> None:
    """Bytes between chunks may be read differently. Then they are the last bytes that are read."""
    found, wire = asyncio.run(taken_in(data))
    for method, target, version, headers, body in found[:1]:
        request = by_h11(data)
        assert (method, version, headers) == (request[0], request[2], request[3])
        assert body == request[4] or (b"transfer-encoding", b"chunked") in headers
        assert wire.ended or (b"transfer-encoding", b"chunked") not in headers
        assert target in {request[1], request[1].partition(b"#")[0], request[1].removesuffix(b"?")}


@pytest.mark.parametrize("data", SOUND)
@pytest.mark.parametrize("cut", [lambda data: [data], lambda data: [bytes([byte]) for byte in data]])
def test_the_sound_ones_reach_it_whole_or_byte_by_byte(data: bytes, cut: Callable[[bytes], list[bytes]]) -> None:
    found, wire = asyncio.run(taken_in(*cut(data)))
    assert [by_h11(data)] == found
    assert wire.said.startswith(b"HTTP/1.1 204")


@pytest.mark.parametrize("data", SOUND)
def test_a_head_that_comes_byte_by_byte_is_the_same_head(data: bytes) -> None:
    whole = validate(data)
    assert whole is not None
    for end in range(1, whole.size):
        assert validate(data[:end], end - 1) is None
    assert whole == validate(data[: whole.size], whole.size - 1)
