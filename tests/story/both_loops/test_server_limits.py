"""What the network may do to the server: malformed, oversized, slow, too many. Raw bytes over real sockets."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from oauthbroker.serving.connection_slots import SPARE
from oauthbroker.serving.http1 import connection
from oauthbroker.serving.http1.connection import LINGERING
from oauthbroker.serving.http1.head_parser import HEAD_LIMIT, MOST_HEADERS
from oauthbroker.web.gate.request_limits import BODY_LIMIT
from oauthbroker.web.middleware.security_headers import security_headers
from tests.kit.forms import examples, is_long
from tests.kit.raw_http import HOST, Said, Site, a_site, get
from tests.kit.waiting import until


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with a_site() as site:
        yield site


def post(*headers: str, body: bytes = b"", version: str = "1.1", path: str = "/length") -> bytes:
    head = "\r\n".join([f"POST {path} HTTP/{version}", f"Host: {HOST}", *headers, "", ""])
    return head.encode("latin-1") + body


CHUNKED = "Transfer-Encoding: chunked"
MALFORMED = {
    "length and chunks": (post("Content-Length: 5", CHUNKED, body=b"0\r\n\r\n"), 400),
    "chunks and length": (post(CHUNKED, "Content-Length: 5", body=b"0\r\n\r\n"), 400),
    "two lengths": (post("Content-Length: 1", "Content-Length: 2", body=b"ab"), 400),
    "one length twice": (post("Content-Length: 1", "Content-Length: 1", body=b"a"), 400),
    "a list of lengths": (post("Content-Length: 1, 1", body=b"a"), 400),
    "a signed length": (post("Content-Length: +1", body=b"a"), 400),
    "a negative length": (post("Content-Length: -1"), 400),
    "a length in hex": (post("Content-Length: 0x1", body=b"a"), 400),
    "a length without end": (post("Content-Length: " + "9" * 30), 400),
    "a length in other digits": (post("Content-Length: \xb2", body=b"a"), 400),
    "an empty length": (post("Content-Length:"), 400),
    "chunks twice": (post(CHUNKED, CHUNKED, body=b"0\r\n\r\n"), 400),
    "a coding that is not ours": (post("Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n"), 501),
    "a coding in disguise": (post("Transfer-Encoding: xchunked", body=b"0\r\n\r\n"), 501),
    "chunks in HTTP/1.0": (post(CHUNKED, body=b"0\r\n\r\n", version="1.0"), 400),
    "a chunk size in words": (post(CHUNKED, body=b"zz\r\nab\r\n0\r\n\r\n"), 400),
    "a signed chunk size": (post(CHUNKED, body=b"+2\r\nab\r\n0\r\n\r\n"), 400),
    "a negative chunk size": (post(CHUNKED, body=b"-2\r\nab\r\n0\r\n\r\n"), 400),
    "a chunk size without end": (post(CHUNKED, body=b"f" * 21 + b"\r\nab\r\n0\r\n\r\n"), 400),
    "a chunk that is longer than it says": (post(CHUNKED, body=b"1\r\nabc\r\n0\r\n\r\n"), 400),
    "two hosts": (get("/", "Host: evil.example"), 400),
    "no host": (b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n", 400),
    "a folded header": (get("/", "X-One: a", " b"), 400),
    "a folded first header": (b"GET / HTTP/1.1\r\n Host: broker.example\r\n\r\n", 400),
    "a space before the colon": (get("/", "X-One : a"), 400),
    "a header without a colon": (get("/", "X-One"), 400),
    "a header without a name": (get("/", ": a"), 400),
    "a NUL in a header": (get("/", "X-One: a\x00b"), 400),
    "a bare CR in a header": (get("/", "X-One: a\rb"), 400),
    "bare LFs": (get().replace(b"\r\n", b"\n"), 400),
    "one bare LF": (get("/", "X-One: a\nX-Two: b"), 400),
    "a bare LF at the end": (get()[:-2] + b"\n", 400),
    "an empty line first": (b"\r\n" + get(), 400),
    "two credentials": (get("/", "Authorization: Bearer a", "Authorization: Bearer b"), 400),
    "HTTP/0.9": (b"GET /\r\n\r\n", 400),
    "HTTP/2 in the clear": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "HTTP/3 as text": (get().replace(b"HTTP/1.1", b"HTTP/3.0"), 505),
    "HTTP/1.2": (get().replace(b"HTTP/1.1", b"HTTP/1.2"), 400),
    "a version in small letters": (get().replace(b"HTTP/1.1", b"http/1.1"), 400),
    "an unknown method": (get().replace(b"GET", b"BREW"), 400),
    "a method in small letters": (get().replace(b"GET", b"get"), 400),
    "two spaces": (get().replace(b"GET ", b"GET  "), 400),
    "a whole URL": (get(f"http://{HOST}/"), 400),
    "a whole URL of another host": (get("http://evil.example/"), 400),
    "a fragment": (get("/#/x"), 400),
    "a target of two slashes' worth": (get("evil.example/"), 400),
    "an asterisk": (get("*").replace(b"GET", b"OPTIONS"), 400),
    "CONNECT": (get("evil.example:443").replace(b"GET", b"CONNECT"), 400),
    "bytes that are no ASCII in the target": (get("/\xff"), 400),
    "half a character in the target": (get("/").replace(b"/ ", "/\ud800 ".encode("utf-8", "surrogatepass"), 1), 400),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200), 400),
    "SSH": (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", 400),
    "too many headers": (get("/", *(f"X-{n}: a" for n in range(MOST_HEADERS))), 431),
    "a header that is too long": (get("/", "X-One: " + "a" * HEAD_LIMIT), 431),
    "headers without end": (b"GET / HTTP/1.1\r\nX-One: " + b"a" * (HEAD_LIMIT + 1), 431),
}


@pytest.mark.sample(54)
@pytest.mark.case("82", "84")
@pytest.mark.parametrize(("request_", "status"), MALFORMED.values(), ids=MALFORMED)
async def test_what_two_readers_may_read_differently_is_refused_and_the_line_goes_dead(
    site: Site, request_: bytes, status: int
) -> None:
    """A second request behind it, which a server that reads on might take for one of its own, is never looked at."""
    said = await site.say(request_ + get("/smuggled"))
    assert status == said.status
    assert [status] == said.statuses
    assert "close" == said.header("connection")
    assert [] == site.asked
    assert said.code == ("requestTooLarge" if status == 431 else "requestInvalid")
    assert security_headers().items() <= {name: said.header(name) for name in security_headers()}.items()
    assert len(said.raw) < 2_000
    refused = [line for line in site.lines if line["event"] == "request" and line["status"] == status]
    assert [("-", "requestInvalid" if status != 431 else "requestTooLarge")] == [
        (line["route"], line["code"]) for line in refused
    ]


BAD_CHUNKS = {
    "no size": b"\r\nab",
    "a sign": b"+1\r\na\r\n",
    "a prefix": b"0x1\r\na\r\n",
    "a space first": b" 1\r\na\r\n",
    "a space after the size": b"1 \r\na\r\n",
    "a size without end": b"f" * 17 + b"\r\n",
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
async def test_chunks_that_two_readers_may_read_differently_are_refused(site: Site, framed: bytes) -> None:
    said = await site.say(post(CHUNKED) + framed + get("/smuggled"))
    assert [400] == said.statuses
    assert [] == site.asked


@pytest.mark.case("82")
@pytest.mark.parametrize(
    "framed",
    [
        b"1;" + b"a" * HEAD_LIMIT,
        b"1;aaaaaaaaa\r\na\r\n" * (HEAD_LIMIT // 13),
        b"0\r\n" + b"X: a\r\n" * (HEAD_LIMIT // 5),
    ],
    ids=["one extension", "many extensions", "many trailers"],
)
async def test_what_chunks_bring_along_has_a_bound(site: Site, framed: bytes) -> None:
    assert [431] == (await site.say(post(CHUNKED) + framed)).statuses
    assert [] == site.asked


@pytest.mark.case("84")
async def test_a_trailer_is_no_header_of_the_request(site: Site) -> None:
    trailer = b"0\r\nX-Forwarded-For: 6.6.6.6\r\nHost: evil.example\r\n\r\n"
    said = await site.say(post(CHUNKED, "Connection: close", path="/late") + trailer)
    assert {"host": HOST} == {
        name: value for name, value in said.json["headers"].items() if name in {"host", "x-forwarded-for"}
    }


@pytest.mark.case("84")
@pytest.mark.parametrize("pause", [0, 0.1])
async def test_what_comes_behind_chunks_is_not_looked_at(site: Site, pause: float) -> None:
    """Readers differ in where chunks end: the request is answered, and the connection with it is over."""
    chunks, smuggled = post(CHUNKED, body=b"2\r\nab\r\n0\r\n\r\n"), get("/smuggled")
    said = await site.say(*([chunks, smuggled] if pause else [chunks + smuggled]), pause=pause)
    assert ([200], "close") == (said.statuses, said.header("connection"))
    assert {"length": 2} == said.json
    assert ["/length"] == site.asked


@pytest.mark.case("84")
@pytest.mark.parametrize("step", [1, 3, 7])
async def test_however_the_bytes_are_cut_the_answer_is_the_same(step: int) -> None:
    async with a_site() as site:
        for request, status in ((MALFORMED["two lengths"][0], 400), (get(), 200), (MALFORMED["bare LFs"][0], 400)):
            parts = [request[at : at + step] for at in range(0, len(request), step)]
            assert status == (await site.say(*parts)).status


SOUND = {
    "a GET": (get(), 200),
    "HTTP/1.0 with a host": (get().replace(b"HTTP/1.1", b"HTTP/1.0"), 200),
    "a body": (post("Content-Length: 2", "Connection: close", body=b"ab"), 200),
    "chunks": (post(CHUNKED, "Connection: close", body=b"2\r\nab\r\n0\r\n\r\n"), 200),
    "chunks with an extension": (post(CHUNKED, "Connection: close", body=b"2;a=b\r\nab\r\n0\r\n\r\n"), 200),
    "just as many headers": (get("/", *(f"X-{n}: a" for n in range(MOST_HEADERS - 2))), 200),
    "an upgrade that we do not know": (get("/", "Upgrade: h2c"), 200),
    "TRACE": (get().replace(b"GET", b"TRACE"), 405),
    "HTTP/1.0 without a host": (b"GET / HTTP/1.0\r\n\r\n", 421),
    "a foreign host": (get(host="evil.example"), 421),
    "a probe for a foreign host": (get("/healthz", host="10.0.0.7"), 200),
}


@pytest.mark.case("84", "85")
@pytest.mark.parametrize(("request_", "status"), SOUND.values(), ids=SOUND)
async def test_a_sound_request_is_read(site: Site, request_: bytes, status: int) -> None:
    said = await site.say(request_)
    assert status == said.status
    assert b"evil" not in said.raw


@pytest.mark.case("84")
async def test_several_requests_of_one_connection_are_answered_in_turn_until_one_is_malformed(site: Site) -> None:
    sound = get(close=False)
    assert [200, 200, 400] == (await site.say(sound + sound + MALFORMED["two lengths"][0] + sound)).statuses
    assert ["/", "/"] == site.asked


@pytest.mark.case("84", "85")
@pytest.mark.parametrize(
    ("trusted", "client"), [((), "127.0.0.1"), (("10.0.0.0/8",), "127.0.0.1"), (("127.0.0.1",), "198.51.100.4")]
)
async def test_a_strangers_word_about_addresses_counts_for_nothing(trusted: tuple[str, ...], client: str) -> None:
    async with a_site(trusted=trusted) as site:
        lies = ("X-Forwarded-For: 6.6.6.6, 198.51.100.4", "X-Forwarded-Host: evil.example", "Forwarded: for=6.6.6.6")
        said = await site.say(get("/", *lies, "X-Forwarded-Proto: https", "X-Real-IP: 6.6.6.6"))
    assert client == said.json["client"]
    assert {"host", "connection"} == set(said.json["headers"])


@pytest.mark.case("82")
@pytest.mark.parametrize("chunked", [True, False])
async def test_a_body_of_200_megabytes_is_refused_long_before_its_end(site: Site, *, chunked: bool) -> None:
    """The client is told, even though it is still sending; and it gets no further than some megabytes."""
    part = bytes(BODY_LIMIT)
    framed = f"{len(part):x}\r\n".encode() + part + b"\r\n" if chunked else part
    reader, writer = await site.connect()
    reading, sent = asyncio.create_task(reader.readuntil(b"}")), 0
    writer.write(post(CHUNKED if chunked else "Content-Length: 200000000"))
    with pytest.raises(ConnectionError):
        while sent < 200_000_000:
            writer.write(framed)
            await writer.drain()
            sent += len(part)
    said = Said(await reading)
    writer.close()
    assert (413, "requestTooLarge", "close") == (said.status, said.code, said.header("connection"))
    assert sent < 20_000_000
    assert [] == site.asked


@pytest.mark.case("82")
@pytest.mark.parametrize("refused_at", ["its length", "its size"])
async def test_who_reads_only_after_sending_is_told_too(site: Site, refused_at: str) -> None:
    """Closing at once would reset the connection, and with it the unread answer."""
    reader, writer = await site.connect()
    writer.write(post("Content-Length: 300000" if refused_at == "its length" else CHUNKED))
    for _ in range(4):
        writer.write(b"10000\r\n" + bytes(0x10000) + b"\r\n")
        await writer.drain()
        await asyncio.sleep(0.1)
    said = Said(await reader.read())
    writer.close()
    assert (413, "requestTooLarge", "close") == (said.status, said.code, said.header("connection"))


@pytest.mark.case("82")
async def test_a_body_up_to_its_limit_is_read_in_any_framing(site: Site) -> None:
    body = bytes(BODY_LIMIT)
    said = await site.say(post(f"Content-Length: {len(body)}", "Connection: close", body=body))
    assert {"length": BODY_LIMIT} == said.json
    one = f"{BODY_LIMIT:x}\r\n".encode() + body + b"\r\n"
    assert 200 == (await site.say(post(CHUNKED, "Connection: close", body=one + b"0\r\n\r\n"))).status
    assert 413 == (await site.say(post(CHUNKED, body=one + b"1\r\na\r\n0\r\n\r\n"))).status


@pytest.mark.case("82")
async def test_who_asks_first_is_told_not_to_send_a_body_that_is_too_large(site: Site) -> None:
    """RFC 9110 section 10.1.1: the refusal comes instead of `100 Continue`."""
    said = await site.say(post("Content-Length: 70000", "Expect: 100-continue"))
    assert [413] == said.statuses


SLOW: dict[str, tuple[list[bytes], float, int]] = {
    "says nothing": ([], 0, 0),
    "begins and falls silent": ([b"GET / HT"], 0, 408),
    "drips its request line": ([bytes([byte]) for byte in get()[:40]], 0.02, 408),
    "drips headers": ([b"GET / HTTP/1.1\r\n", *[b"X-A: b\r\n"] * 40], 0.02, 408),
    "drips a second request": ([get(close=False), *[b"G", b"E", b"T", *[b"X"] * 40]], 0.02, 200),
}


@pytest.mark.case("83")
@pytest.mark.parametrize(("parts", "pause", "status"), SLOW.values(), ids=SLOW)
async def test_headers_have_a_deadline_of_their_own(parts: list[bytes], pause: float, status: int) -> None:
    """uvicorn's own timer begins anew with every byte."""
    async with a_site(header_seconds=0.3) as site:
        said = await site.say(*parts, pause=pause)
        await asyncio.sleep(0)
        assert status == said.status
        if status == 200:
            assert [200, 408] == said.statuses
        elif status:
            assert ("requestTimeout", "close") == (said.code, said.header("connection"))
        noted = [line for line in site.lines if line.get("code") == "requestTimeout"]
        assert bool(status) == bool(noted)


@pytest.mark.case("83")
async def test_a_request_in_time_is_not_hurried_by_the_one_before_it() -> None:
    async with a_site(header_seconds=0.3) as site:
        said = await site.say(get("/wait?for=0.5", close=False), get("/wait?for=0.5", close=False), get())
        assert [200, 200, 200] == said.statuses


@pytest.mark.case("83")
async def test_the_time_between_two_requests_does_not_end_the_second_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "IDLE_SECONDS", 1)
    async with a_site() as site:
        said = await site.say(get("/", close=False) + get("/wait?for=1.5"))
    assert [200, 200] == said.statuses


@pytest.mark.case("82", "83")
async def test_who_sends_thousands_of_requests_at_once_is_read_no_faster_than_answered(site: Site) -> None:
    """Bytes that were not read yet stay where they are: with the client."""
    reader, writer = await site.connect()
    block = get("/healthz", close=False) * 9_000

    async def send() -> None:
        while True:
            writer.write(block)
            await writer.drain()

    answered = [0]

    async def read() -> None:
        while found := await reader.read(1 << 20):
            answered[0] += found.count(b"HTTP/1.1 200 ")

    tasks, most = [asyncio.create_task(send()), asyncio.create_task(read())], 0
    for _ in range(40):
        await asyncio.sleep(0.02)
        most = max([most, *(len(vars(each)["_received"]) for each in site.server.server_state.connections)])
    for task in tasks:
        task.cancel()
    writer.close()
    assert answered[0] > 100
    assert most <= 600_000


@pytest.mark.case("83")
async def test_who_hangs_up_half_way_and_leaves_the_answer_unread_is_left() -> None:
    async with a_site(write_seconds=0.3) as site:
        connections, loop = site.server.server_state.connections, asyncio.get_running_loop()
        with socket.socket() as line:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            line.connect(("127.0.0.1", site.port))
            line.setblocking(False)
            for _ in range(400):
                await loop.sock_sendall(line, get("/", "X-A: " + "a" * 40_000, close=False))
                await asyncio.sleep(0.01)
                if any(each.transport.get_write_buffer_size() for each in connections):
                    break
            line.shutdown(socket.SHUT_WR)
            await until(lambda: not connections)


@pytest.mark.case("83")
async def test_a_long_answer_is_whole_in_spite_of_unread_bytes_behind_its_request(site: Site) -> None:
    """RFC 9112 section 9.6: closing with something unread would reset the connection under the answer."""
    reader, writer = await site.connect()
    writer.write(b"GET /big HTTP/1.1\r\nHost: broker.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
    await asyncio.sleep(0.05)
    writer.write(get(close=False))
    await asyncio.sleep(0.2)
    said = Said(await reader.read())
    writer.close()
    assert [200] == said.statuses[:1]
    assert len(said.raw.partition(b"\r\n\r\n")[2]) == 8 * 1024 * 1024


async def test_behind_the_end_of_chunks_nothing_counts(site: Site) -> None:
    said = await site.say(post(CHUNKED, body=b"2\r\nab\r\n0\r\n\r\n") + b"G" * 60_000)
    assert [200] == said.statuses


async def test_a_client_of_http_1_0_is_not_told_to_continue(site: Site) -> None:
    head = post("Content-Length: 2", "Expect: 100-continue", version="1.0")
    assert [200] == (await site.say(head + b"ab")).statuses


@pytest.mark.case("83")
async def test_an_idle_connection_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 5 == connection.IDLE_SECONDS
    monkeypatch.setattr(connection, "IDLE_SECONDS", 1)
    async with a_site() as site:
        began = asyncio.get_running_loop().time()
        said = await site.say(get(close=False))
        assert [200] == said.statuses
        assert 0.9 < asyncio.get_running_loop().time() - began < 10


@pytest.mark.case("83")
async def test_a_body_and_an_answer_have_a_deadline_and_what_waits_on_purpose_has_none() -> None:
    async with a_site(seconds=0.3) as site:
        dripped = await site.say(post("Content-Length: 1000"), *[b"a"] * 40, pause=0.02)
        assert (408, "requestTimeout", "close") == (dripped.status, dripped.code, dripped.header("connection"))
        late = await site.say(get("/wait?for=2"))
        assert (503, "requestTimeout", "close") == (late.status, late.code, late.header("connection"))
        assert 200 == (await site.say(get("/wait?for=0.6&patient"))).status


@pytest.mark.case("83")
async def test_a_client_that_does_not_read_is_left() -> None:
    async with a_site(write_seconds=0.3) as site:
        reader, writer = await site.connect()
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        writer.write(get("/big", close=False))
        await until(lambda: site.lines and not site.server.server_state.connections)
        del reader
        writer.close()


Line = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def idle(site: Site, count: int, *addresses: str) -> list[Line]:
    return [await site.connect(address) for address in addresses or ("127.0.0.1",) for _ in range(count)]


async def hang_up(lines: list[Line]) -> None:
    for _, writer in lines:
        writer.close()
    await asyncio.gather(*(writer.wait_closed() for _, writer in lines), return_exceptions=True)


IDLE = examples(5_000)
HALVES = ("127.0.0.1", "127.0.0.2")


@pytest.mark.case("83")
async def test_more_connections_than_there_may_be_are_refused_and_probes_still_get_through() -> None:
    async with a_site(connections=10) as site:
        held = await idle(site, 5, *HALVES)
        healthy, other = await site.say(get("/healthz")), await site.say(get())
        assert (200, 503, "serverBusy") == (healthy.status, other.status, other.code)
        probes = [asyncio.create_task(site.say(get("/healthz"))) for _ in range(SPARE)]
        assert [200] * SPARE == [(await each).status for each in probes]
        refused = await site.say(get())
        assert (503, "serverBusy", "close") == (refused.status, refused.code, refused.header("connection"))
        assert security_headers().items() <= {name: refused.header(name) for name in security_headers()}.items()
        await hang_up(held[:5])
        await asyncio.sleep(0.05)
        assert 200 == (await site.say(get())).status
        await hang_up(held)


@pytest.mark.case("83")
async def test_a_full_broker_answers_probes_below_its_public_path_and_nothing_else_there() -> None:
    async with a_site(connections=10, base="/b") as site:
        held = await idle(site, 5, *HALVES)
        paths = ("/b/healthz", "/healthz", "/b/other", "/bhealthz", "/c/healthz")
        answered = [(await site.say(get(path))).status for path in paths]
        assert [404, 200, 503, 503, 503] == answered, "404: this application has no public path"
        await hang_up(held)


@pytest.mark.slow
@pytest.mark.case("83")
async def test_probes_of_a_full_broker_are_answered_for_as_long_as_others_are_refused() -> None:
    """Refused callers linger, to read why, and idle ones of this machine take the probes' own places."""
    async with a_site(connections=10, header_seconds=60) as site:
        held = await idle(site, 5, *HALVES)
        refused: list[Line] = []
        for _ in range(30):
            refused += await idle(site, 12)
            assert 200 == (await site.say(get("/healthz"))).status
            assert 200 == (await site.say(get("/healthz"), address="127.0.0.3")).status
        reported = [line for line in site.lines if line["event"] == "too many connections"]
        assert all(10 == line["limit"] for line in reported)
        assert len(site.server.server_state.connections) <= 10 + SPARE + LINGERING
        await hang_up([*held, *refused])
    assert ["/healthz"] * 60 == site.asked


@pytest.mark.case("83")
async def test_refused_callers_that_stay_to_read_why_take_no_slot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("oauthbroker.serving.http1.connection._is_idle", lambda _: False)
    async with a_site(connections=2, header_seconds=60) as site:
        held = await idle(site, 1, *HALVES)
        spare = await idle(site, SPARE)
        refused = await idle(site, LINGERING + 10)
        async with asyncio.timeout(60):
            assert {503} == {Said(await reader.read()).status for reader, _ in refused}
        await hang_up(spare[:1])
        await asyncio.sleep(0.05)
        assert 200 == (await site.say(get("/healthz"))).status
        [reported] = [line for line in site.lines if line["event"] == "too many connections"]
        assert (2, 1) == (reported["limit"], reported["refused"])
        await hang_up([*held, *spare, *refused])


@pytest.mark.case("83")
async def test_one_address_holds_half_of_a_listeners_connections_and_a_listed_proxy_all() -> None:
    async with a_site(connections=10) as site:
        held = await idle(site, 5)
        assert [503, 200] == [(await site.say(get(), address=each)).status for each in HALVES]
        await hang_up(held)
    async with a_site(connections=10, trusted=["127.0.0.1"]) as site:
        held = await idle(site, 9)
        assert 200 == (await site.say(get())).status
        await hang_up(held)


@pytest.mark.slow
@pytest.mark.case("83")
async def test_very_many_idle_connections_cost_others_nothing() -> None:
    """As many as this process may have at both ends, at most `IDLE`; every one is gone when its time is over."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = min(IDLE, hard // 2 - 200)
    async with a_site(connections=count + 10, header_seconds=8 if is_long() else 3, trusted=["127.0.0.1"]) as site:
        held = await idle(site, count)
        loop = asyncio.get_running_loop()
        began = loop.time()
        for _ in range(20):
            assert 200 == (await site.say(get("/healthz"))).status
        assert (loop.time() - began) / 20 < 1
        async with asyncio.timeout(60):
            assert {b""} == {await reader.read() for reader, _ in held}
        for _, writer in held:
            writer.close()
        await asyncio.sleep(0.1)
        assert not site.server.server_state.connections
    print(f"{count} idle connections")


async def test_a_request_that_is_under_way_when_the_server_ends_is_answered() -> None:
    async with a_site() as site:
        asking = asyncio.create_task(site.say(get("/wait?for=0.4", close=False)))
        await asyncio.sleep(0.1)
    said = await asking
    assert (200, True) == (said.status, said.raw.endswith(b"waited"))
    with pytest.raises(ConnectionRefusedError):
        await site.connect()


async def test_a_client_that_hangs_up_in_mid_body_is_no_fault(site: Site) -> None:
    said: dict[str, Any] = {}
    await site.say(post("Content-Length: 1000", body=b"abc"), end=True)
    for line in site.lines:
        said[line["event"]] = line
    assert "fault" not in said, json.dumps(said)
