"""The reader of heads and bodies, beside another one: what ours accepts, h11 reads the same way."""

from __future__ import annotations

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oauthbroker.serving.body import Chunks, Malformed, Sized
from oauthbroker.serving.wire import HEAD_LIMIT, Head, read_head

PLAIN = b"POST /v1/tokens?a=b HTTP/1.1\r\nHost: broker.example\r\nContent-Length: 4\r\nX-One:\t a b \r\n\r\nbody"
CHUNKED = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4;a=b\r\nbody\r\n0\r\nX-Two: c\r\n\r\nGET"
OLD = b"GET /%41 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
LENIENT = [
    b"\r",
    b"\n",
    b"\r\n",
    b"\0",
    b" ",
    b"\t",
    b":",
    b",",
    b";",
    b"\x0b",
    b"\x85",
    b"\xff",
    b"-",
    b"0",
    b"1",
    b"f",
]
PARTS = st.sampled_from(
    [*LENIENT, b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n", b"Host: b\r\n", b"chunked", b"HTTP/1.0"]
)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """A sound request with a few bytes replaced, put in or taken out."""
    data = draw(st.sampled_from([PLAIN, CHUNKED, OLD]))
    for _ in range(draw(st.integers(0, 2))):
        at, end = draw(st.integers(0, len(data))), draw(st.integers(0, 3))
        data = data[:at] + draw(PARTS) + data[at + end :]
    return data


def by_h11(data: bytes) -> tuple[h11.Request, bytes | None, bytes]:
    """The request, its body if all of it is there, and what comes after it."""
    reader = h11.Connection(h11.SERVER, max_incomplete_event_size=2 * HEAD_LIMIT)
    reader.receive_data(data)
    request, parts = reader.next_event(), bytearray()
    assert isinstance(request, h11.Request)
    while isinstance(event := reader.next_event(), h11.Data):
        parts += event.data
    return request, bytes(parts) if isinstance(event, h11.EndOfMessage) else None, reader.trailing_data[0]


def by_us(data: bytes) -> tuple[Head, bytes | None, bytes] | None:
    found = read_head(data)
    if found is None:
        return None
    head, length = found
    rest = data[length:]
    if head.body is None:
        return head, b"", rest
    part, rest = head.body.take(rest)
    return head, part if head.body.over else None, rest


@pytest.mark.case("84")
@given(requests())
@example(PLAIN)
@example(CHUNKED)
@example(OLD)
def test_what_is_accepted_is_read_the_same_by_another_reader(data: bytes) -> None:
    try:
        ours = by_us(data)
    except Malformed:
        return
    if ours is None:
        return
    head, body, rest = ours
    request, its_body, its_rest = by_h11(data)
    assert (head.method, head.target) == (request.method, request.target)
    assert head.headers == list(request.headers)
    assert head.version.encode() == request.http_version
    assert body == its_body
    if body is not None:
        assert rest == its_rest


SOUND = [PLAIN, CHUNKED, OLD]


@pytest.mark.parametrize("data", SOUND)
def test_the_sound_ones_are_accepted(data: bytes) -> None:
    ours = by_us(data)
    assert ours is not None
    assert ours[1] in {b"body", b""}


@pytest.mark.parametrize("data", SOUND)
def test_a_head_that_comes_byte_by_byte_is_the_same_head(data: bytes) -> None:
    whole = read_head(data)
    assert whole is not None
    for end in range(1, whole[1]):
        assert read_head(data[:end], end - 1) is None
    late = read_head(data[: whole[1]], whole[1] - 1)
    assert late is not None
    assert (late[1], late[0].headers) == (whole[1], whole[0].headers)


@pytest.mark.case("84")
@pytest.mark.parametrize("step", [1, 2, 3, 5, 100])
def test_chunks_are_the_same_body_however_they_are_cut(step: int) -> None:
    framed = b'3\r\nabc\r\n00A;x="y"\r\n0123456789\r\n1\r\n\r\r\n0\r\nX-A: b\r\nX-C:\r\n\r\nGET / HTTP'
    reader, body, at = Chunks(100), b"", 0
    while not reader.over:
        part, rest = reader.take(framed[at : at + step])
        body, at = body + part, at + step
    assert body == b"abc0123456789\r"
    assert rest + framed[at:] == b"GET / HTTP"


BAD_CHUNKS = {
    "no size": b"\r\nab",
    "a sign": b"+1\r\na\r\n",
    "a prefix": b"0x1\r\na\r\n",
    "a space first": b" 1\r\na\r\n",
    "a space after the size": b"1 \r\na\r\n",
    "a size without end": b"1" * 9 + b"\r\n",
    "a bare line feed after the size": b"1\na\r\n0\r\n\r\n",
    "a bare return after the size": b"1\ra\r\n0\r\n\r\n",
    "a bare line feed after the chunk": b"1\r\na\n0\r\n\r\n",
    "something after the chunk": b"1\r\nab\r\n0\r\n\r\n",
    "a bare line feed at the end": b"0\r\n\n",
    "a folded trailer": b"0\r\nX: a\r\n b\r\n\r\n",
    "a trailer that is none": b"0\r\nX\r\n\r\n",
    "a line feed in an extension": b"1;a\nb\r\na\r\n0\r\n\r\n",
}


@pytest.mark.case("84")
@pytest.mark.parametrize("framed", BAD_CHUNKS.values(), ids=BAD_CHUNKS)
def test_chunks_that_two_readers_may_read_differently_are_refused(framed: bytes) -> None:
    for step in (1, 2, len(framed)):
        reader = Chunks(100)
        with pytest.raises(Malformed) as refused:
            for at in range(0, len(framed), step):
                reader.take(framed[at : at + step])
        assert refused.value.status == 400


@pytest.mark.case("82")
@pytest.mark.parametrize(
    "framed",
    [b"1;" + b"a" * 101, b"1;aaaaaaaaa\r\na\r\n" * 11, b"0\r\n" + b"X: a\r\n" * 20, b"0\r\nX:" + b"a" * 101],
    ids=["one extension", "many extensions", "many trailers", "one trailer"],
)
def test_what_chunks_bring_along_has_a_bound(framed: bytes) -> None:
    with pytest.raises(Malformed) as refused:
        Chunks(100).take(framed)
    assert refused.value.status == 431


@given(st.lists(st.binary(max_size=5)), st.integers(0, 20))
def test_a_body_of_a_length_ends_where_it_ends(parts: list[bytes], length: int) -> None:
    reader, body, rest = Sized(length), b"", b""
    for part in parts:
        if reader.over:
            rest += part
            continue
        mine, rest = reader.take(part)
        body += mine
    sent = b"".join(parts)
    assert (body, rest) == (sent[:length], sent[length:])
