"""The proxy behind a listener of ours, with raw bytes on both sides: what two servers in a row may read differently."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from oauthbroker.audit import TokenInjected
from oauthbroker.core.clock import SystemClock
from oauthbroker.observability.logging import json_log
from oauthbroker.serving.connection_slots import Terms
from oauthbroker.serving.listeners import listen
from oauthbroker.serving.server import served
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.web.gate.request_limits import STREAM_LIMIT
from tests.kit.raw_http import Said, Site
from tests.story.api.proxy_kit import Handler, Stage, stage
from tests.unit.protocol.kit import says

HOST = "127.0.0.1:8420"
SECONDS = 30
CHUNKED = "Transfer-Encoding: chunked"
MARK = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"


@dataclass
class Line:
    """A tool's connection to the broker's listener, in front of a scripted API."""

    stage: Stage
    site: Site

    def head(self, *headers: str, method: str = "POST", target: str = "", close: bool = True) -> bytes:
        """A request's head with the tool's credentials."""
        lines = [f"{method} {target or self.stage.path('a')} HTTP/1.1", f"Host: {HOST}"]
        lines += [
            f"Authorization: Bearer {self.stage.tool.bearer}",
            *headers,
            *(["Connection: close"] if close else []),
        ]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")

    async def say(self, *parts: bytes) -> Said:
        return await self.site.say(*parts, seconds=SECONDS)

    @property
    def sent(self) -> list[bytes]:
        return self.stage.sent


@asynccontextmanager
async def line(idp: IdentityProvider, clock: TestClock, handler: Handler) -> AsyncIterator[Line]:
    async with stage(idp, clock, handler) as behind:
        terms = Terms(json_log(io.StringIO(), SystemClock()))
        with listen("127.0.0.1", 0) as listener:
            async with served(behind.harness.broker.asgi.api, [listener], terms, grace_seconds=1) as server:
                yield Line(behind, Site(listener.getsockname()[1], server, io.StringIO()))


@pytest.fixture
async def here(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Line]:
    async with line(identity_provider, test_clock, says(201)) as made:
        yield made


FRAMINGS: dict[str, tuple[str, ...]] = {
    "a length and chunks": ("Content-Length: 4", CHUNKED),
    "chunks and a length": (CHUNKED, "Content-Length: 4"),
    "two lengths": ("Content-Length: 0", "Content-Length: 40"),
    "a list of lengths": ("Content-Length: 0, 40",),
    "a signed length": ("Content-Length: +40",),
    "chunks twice": (CHUNKED, CHUNKED),
    "a coding in disguise": ("Transfer-Encoding: xchunked",),
    "a coding before chunks": ("Transfer-Encoding: gzip, chunked",),
    "a coding after a tab": ("Transfer-Encoding:\tchunked", "Content-Length: 4"),
    "a coding with a space before the colon": ("Transfer-Encoding : chunked", "Content-Length: 4"),
    "a folded coding": ("Transfer-Encoding:", " chunked", "Content-Length: 4"),
    "a folded header": ("X-One: a", " X-Two: b", "Content-Length: 0"),
    "a folded length": ("Content-Length: 0", "\t40"),
    "a second host": ("Host: evil.example", "Content-Length: 0"),
    "second credentials": ("X-One: a\r\nAuthorization: Bearer b", "Content-Length: 0"),
    "a bare CR in a value": ("X-One: a\rX-Two: b", "Content-Length: 0"),
    "a bare LF in a value": ("X-One: a\nX-Two: b", "Content-Length: 0"),
    "a NUL in a value": ("X-One: a\x00b", "Content-Length: 0"),
}


@pytest.mark.case("105", "104")
@pytest.mark.parametrize("how", FRAMINGS)
async def test_framing_that_servers_read_differently_is_refused_whole(here: Line, how: str) -> None:
    said = await here.say(here.head(*FRAMINGS[how]) + b"0\r\n\r\n" + MARK)
    assert said.statuses in ([400], [501]), said.raw
    assert ([], []) == (here.sent, here.stage.entries(TokenInjected))


@pytest.mark.case("105")
@pytest.mark.parametrize("origin", [f"http://{HOST}", "http://evil.example", "https://evil.example", "//evil.example"])
async def test_a_target_with_a_host_in_it_is_refused(here: Line, origin: str) -> None:
    said = await here.say(here.head(method="GET", target=origin + here.stage.path("a")))
    assert said.status in {400, 404}, said.raw
    assert [] == here.sent


@pytest.mark.case("105")
async def test_a_request_in_a_body_stays_a_body(here: Line) -> None:
    said = await here.say(here.head(f"Content-Length: {len(MARK)}") + MARK)
    assert ([201], 1) == (said.statuses, len(here.sent))
    head, _, body = here.sent[0].partition(b"\r\n\r\n")
    assert MARK == body
    assert head.startswith(b"POST /a HTTP/1.1\r\n")


@pytest.mark.case("105")
async def test_chunks_are_written_anew_and_bytes_behind_them_are_no_request(here: Line) -> None:
    chunks = b"%x;ext=1\r\n%s\r\n0\r\nX-Trailer: 1\r\n\r\n" % (len(MARK), MARK)
    said = await here.say(here.head(CHUNKED, close=False) + chunks + here.head(method="GET", target="/v1/apps"))
    assert ([201], 1) == (said.statuses, len(here.sent))
    assert MARK in here.sent[0]
    assert b"ext=1" not in here.sent[0]
    assert b"x-trailer" not in here.sent[0].lower()


@pytest.mark.case("105")
async def test_a_second_request_on_a_connection_has_credentials_of_its_own(here: Line) -> None:
    behind = f"GET {here.stage.path('b')} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode()
    said = await here.say(here.head("Content-Length: 2", close=False) + b"{}" + behind)
    assert ([201, 401], 1) == (said.statuses, len(here.sent))


@pytest.mark.case("104")
async def test_an_encoded_line_break_in_a_header_stays_text(here: Line) -> None:
    said = await here.say(here.head("X-One: a%0d%0aX-Two: b", method="GET"))
    lines = here.sent[0].split(b"\r\n")
    assert (201, True) == (said.status, b"x-one: a%0d%0aX-Two: b" in lines)
    assert not [each for each in lines if each.lower().startswith(b"x-two")]


@pytest.mark.case("104", "105")
@pytest.mark.parametrize("rest", ["a%0d%0aX-Two:%20b", "a%0aX-Two:%20b", "a%00"])
async def test_an_encoded_line_break_in_a_path_is_refused(here: Line, rest: str) -> None:
    said = await here.say(here.head(method="GET", target=here.stage.path(rest)))
    assert ([400], []) == (said.statuses, here.sent)


async def test_a_body_is_asked_for_only_after_the_target_was_checked(here: Line) -> None:
    expecting = ("Expect: 100-continue", "Content-Length: 2")
    said = await here.say(here.head(*expecting), b"{}")
    assert [100, 201] == said.statuses
    assert b"expect" not in here.sent[0].lower()
    other = await here.say(here.head(*expecting, target=here.stage.path(host="other.example")))
    assert ([403], "apiHostForbidden", 1) == (other.statuses, other.code, len(here.sent))


@pytest.mark.case("107")
@pytest.mark.parametrize("connection", ["Upgrade", "keep-alive, Upgrade", "X-One"])
async def test_a_websocket_is_refused(here: Line, connection: str) -> None:
    headers = (
        f"Connection: {connection}",
        "Upgrade: WebSocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: YQ==",
    )
    said = await here.say(here.head(*headers, method="GET"))
    assert ([400], []) == (said.statuses, here.sent), said.raw


@pytest.mark.case("105", "107")
async def test_an_offer_of_another_protocol_stays_here(here: Line) -> None:
    """RFC 9110 section 7.8 lets a server ignore it. The provider never hears of it."""
    headers = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA")
    said = await here.say(here.head(*headers, method="GET"))
    assert ([201], 1) == (said.statuses, len(here.sent)), said.raw
    names = {each.partition(b":")[0].lower() for each in here.sent[0].split(b"\r\n")}
    assert not names & {b"upgrade", b"http2-settings", b"connection"}


@pytest.mark.case("108")
async def test_a_huge_body_is_refused_before_a_byte_of_it(here: Line) -> None:
    said = await here.say(here.head("Expect: 100-continue", f"Content-Length: {STREAM_LIMIT + 1}"))
    assert ([413], []) == (said.statuses, here.sent)


@pytest.mark.case("108")
async def test_a_body_without_end_is_cut_off_on_both_sides(
    identity_provider: IdentityProvider, test_clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oauthbroker.web.gate.request_limits.STREAM_LIMIT", 300_000)
    taken, ended = bytearray(), asyncio.Event()

    async def take(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        try:
            while part := await reader.read(65536):
                taken.extend(part)
        finally:
            ended.set()

    async with line(identity_provider, test_clock, take) as here:
        said = await here.say(here.head(CHUNKED), *[b"c350\r\n" + b"x" * 50_000 + b"\r\n"] * 20)
        assert 413 == said.status
        async with asyncio.timeout(SECONDS):
            await ended.wait()
    assert len(taken) < 350_000
    assert not taken.endswith(b"0\r\n\r\n")


@pytest.mark.case("108")
async def test_an_endless_answer_has_no_regular_end(identity_provider: IdentityProvider, test_clock: TestClock) -> None:
    async def flood(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"1\r\nx\r\n" * 1000)
            await writer.drain()

    async with line(identity_provider, test_clock, flood) as here:
        said = await here.say(here.head(method="GET"))
        assert (200, True) == (said.status, len(said.raw) < 1_000_000)
        assert not said.raw.endswith(b"0\r\n\r\n")


@pytest.mark.case("109")
async def test_each_piece_of_a_slow_answer_is_passed_on_as_it_comes(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    more = asyncio.Event()

    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n" + b"first-half")
        await writer.drain()
        await more.wait()
        writer.write(b"other-half")
        await writer.drain()

    async with line(identity_provider, test_clock, drip) as here:
        reader, writer = await here.site.connect()
        try:
            writer.write(here.head(method="GET"))
            async with asyncio.timeout(SECONDS):
                begun = await reader.readuntil(b"first-")
                more.set()
                rest = await reader.read()
        finally:
            writer.close()
    assert b"HTTP/1.1 200 OK" == begun.split(b"\r\n")[0]
    assert b"other-half" in rest


@pytest.mark.case("109")
async def test_a_tool_that_leaves_ends_its_request_to_a_silent_provider(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    left = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        try:
            await reader.read()
        finally:
            left.set()

    async with line(identity_provider, test_clock, silent) as here:
        _, writer = await here.site.connect()
        writer.write(here.head(method="GET"))
        async with asyncio.timeout(SECONDS):
            while not here.sent:
                await asyncio.sleep(0.01)
            writer.close()
            await left.wait()
