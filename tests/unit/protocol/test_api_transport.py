"""Requests to providers' APIs, on the wire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.protocol.network.api_request import ApiRequest
from oauthbroker.protocol.network.api_transport import KEPT_CONNECTIONS, ApiLimits, ApiResponse, ApiTransport, _key
from oauthbroker.protocol.network.transport import Transport
from oauthbroker.testing import Authority
from tests.unit.protocol.kit import CANARY, RawServer, assert_clean, raw_answer, says

PATIENT = ApiLimits(stall_seconds=30, seconds=30)


@pytest.fixture
async def transport():
    plain = Transport(plain_http_loopback=True)
    made = ApiTransport(plain)
    yield made
    await made.close()
    await plain.close()


def request(server: RawServer, method: str = "GET", **more) -> ApiRequest:
    return ApiRequest(
        method=method,
        scheme="http",
        host="127.0.0.1",
        port=server.port,
        path=more.pop("path", "/"),
        headers=more.pop("headers", ()),
        **more,
    )


@asynccontextmanager
async def sent(transport: ApiTransport, asked: ApiRequest, limits: ApiLimits = PATIENT) -> AsyncIterator[ApiResponse]:
    response = await transport.send(asked, limits)
    try:
        yield response
    finally:
        await response.aclose()


async def body_of(response: ApiResponse) -> bytes:
    return b"".join([piece async for piece in response.chunks()])


async def failure(transport: ApiTransport, asked: ApiRequest, limits: ApiLimits = PATIENT) -> BrokerError:
    try:
        async with sent(transport, asked, limits) as response:
            await body_of(response)
    except BrokerError as error:
        assert_clean(error)
        return error
    raise AssertionError("answered")


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def test_path_headers_and_answer_pass_byte_for_byte(transport):
    async with RawServer(says(207, b"x" * 10, x_own="1")) as server:
        asked = request(server, path="/a%2Fb;c/%7e?q=%20+", headers=((b"X-Odd", b"\xc3\xa4"),))
        async with sent(transport, asked) as response:
            assert (207, b"x" * 10) == (response.status, await body_of(response))
            assert (b"x-own", b"1") in response.headers
    lines = server.requests[0].split(b"\r\n")
    assert b"GET /a%2Fb;c/%7e?q=%20+ HTTP/1.1" == lines[0]
    assert [b"Host: 127.0.0.1:%d" % server.port, b"X-Odd: \xc3\xa4", b"", b""] == lines[1:]


async def test_a_body_of_known_length_and_one_without(transport):
    seen = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"0\r\n\r\n"))
        writer.write(raw_answer(200, b"{}"))

    async with (
        RawServer(handle) as server,
        sent(transport, request(server, "POST", body=pieces(b"ab", b"c"))) as response,
    ):
        await body_of(response)
    assert b"transfer-encoding: chunked" in server.requests[0].lower()
    assert b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n" == seen[0]
    async with RawServer(says(200)) as server:
        async with sent(transport, request(server, "PUT", body=pieces(b"ab", b"c"), length=3)) as response:
            await body_of(response)
        async with sent(transport, request(server, "POST", body=b"")) as response:
            await body_of(response)
    assert server.requests[0].endswith(b"Content-Length: 3\r\n\r\nabc")
    assert server.requests[1].endswith(b"Content-Length: 0\r\n\r\n")


@pytest.mark.case("104", "105")
@pytest.mark.parametrize(
    "header",
    [
        (b"X-A", b"1\r\nX-B: 2"),
        (b"X-A", b"1\n 2"),
        (b"X-A\r\nHost", b"2"),
        (b"X-A:", b"1"),
        (b"X A", b"1"),
        (b"", b"1"),
    ],
)
async def test_no_header_makes_a_second_line(transport, header):
    async with RawServer(says(200)) as server:
        failed = await failure(transport, request(server, headers=(header,)))
    assert (Code.PROVIDER_UNREACHABLE, []) == (failed.code, server.requests)


@pytest.mark.case("105")
@pytest.mark.parametrize("body", [(b"ab",), (b"abcd",)], ids=["shorter", "longer"])
async def test_a_body_of_another_length_than_announced_is_no_request(transport, body):
    async with RawServer(says(200)) as server:
        await failure(transport, request(server, "POST", body=pieces(*body), length=3))
        async with sent(transport, request(server)) as response:
            await body_of(response)
    assert all(text.endswith(b"\r\n\r\n") for text in server.requests), (
        "the next request begins a connection of its own"
    )


@pytest.mark.case("103")
async def test_a_redirect_is_an_answer(transport):
    async with (
        RawServer(says(302, location="http://127.0.0.1:1/")) as server,
        sent(transport, request(server)) as response,
    ):
        assert (302, 1) == (response.status, server.connections)


@pytest.mark.case("107")
async def test_a_provider_that_changes_the_protocol_is_refused(transport):
    async def handle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
        await asyncio.sleep(60)

    async with RawServer(handle) as server:
        assert Code.PROVIDER_UNREACHABLE == (await failure(transport, request(server))).code


@pytest.mark.case("106")
@pytest.mark.parametrize("host", ["169.254.169.254", "10.0.0.1", "localhost"])
async def test_inner_addresses_are_refused_under_any_name(host):
    plain = Transport()
    transport = ApiTransport(plain)
    failed = await failure(
        transport, ApiRequest(method="GET", scheme="https", host=host, port=443, path="/", headers=())
    )
    assert Code.APP_MISCONFIGURED == failed.code
    await transport.close()
    await plain.close()


async def flood(writer: asyncio.StreamWriter, part: bytes) -> None:
    while True:
        writer.write(part)
        await writer.drain()


@pytest.mark.case("108")
@pytest.mark.parametrize(
    "part", [b"10000\r\n" + b"x" * 65536 + b"\r\n", b"1\r\nx\r\n" * 1000], ids=["huge", "in bytes"]
)
async def test_an_answer_without_end_is_cut_off(transport, part):
    async def handle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        await flood(writer, part)

    async with RawServer(handle) as server:
        limits = ApiLimits(stall_seconds=30, seconds=30, answer_bytes=1_000_000)
        assert "the answer is too large" == (await failure(transport, request(server), limits)).note


@pytest.mark.case("108")
async def test_a_head_without_end_is_cut_off(transport):
    async def handle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        await flood(writer, b"X-A: " + b"b" * 1000 + b"\r\n")

    async with RawServer(handle) as server:
        assert Code.PROVIDER_UNREACHABLE == (await failure(transport, request(server))).code


@pytest.mark.case("109")
@pytest.mark.parametrize(
    "said", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab"], ids=["no head", "half a body"]
)
async def test_a_provider_that_stalls_is_given_up(transport, said):
    async def handle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        await asyncio.sleep(60)

    async with RawServer(handle) as server:
        failed = await failure(transport, request(server), ApiLimits(stall_seconds=0.2, seconds=30))
    assert Code.PROVIDER_UNREACHABLE == failed.code


@pytest.mark.case("109")
async def test_a_provider_that_drips_is_given_up_in_the_end(transport):
    async def handle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while True:
            writer.write(b"x")
            await asyncio.sleep(0.05)

    async with RawServer(handle) as server:
        failed = await failure(transport, request(server), ApiLimits(stall_seconds=30, seconds=0.3))
    assert "no answer in time" == failed.note


@pytest.mark.case("105")
async def test_an_answer_that_goes_on_behind_its_end_reaches_no_further_request(transport):
    async def handle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(raw_answer(200, b"{}") + raw_answer(200, CANARY.encode()))
        await asyncio.sleep(0.2)

    async with RawServer(handle) as server:
        for _ in range(2):
            async with sent(transport, request(server)) as response:
                assert b"{}" == await body_of(response)
    assert 2 == server.connections


@pytest.mark.case("105")
async def test_a_connection_is_kept_for_the_next_request_of_its_account_and_for_no_other(transport):
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(raw_answer(200, b"{}"))
        await reader.readuntil(b"\r\n\r\n")
        writer.write(raw_answer(200, b"{}"))

    async with RawServer(handle) as server:
        for account, connections in (("alice", 1), ("alice", 1), ("bob", 2)):
            async with sent(transport, request(server, account=account)) as response:
                assert b"{}" == await body_of(response)
            assert connections == server.connections


@pytest.mark.parametrize("pause", [0.0, 0.2])
async def test_a_tls_connection_whose_end_came_with_the_answer_serves_no_further_request(
    transport: ApiTransport, tmp_path: Path, pause: float
) -> None:
    """The provider announces no end: its TLS alert lies behind the answer, already read from the socket."""
    authority = Authority(tmp_path)
    ca, ended = authority.file.read_text(), asyncio.Event()

    async def handle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(raw_answer(200, b"{}"))
        writer.close()
        ended.set()

    async with RawServer(handle, tls=authority.issue().context) as server:
        for connections in (1, 2, 3):
            ended.clear()
            async with sent(transport, replace(request(server, ca=ca), scheme="https")) as response:
                await ended.wait()
                await asyncio.sleep(pause)
                assert b"{}" == await body_of(response)
            assert connections == server.connections


async def test_kept_connections_stay_within_the_bound(transport):
    async with RawServer(says(200)) as server:
        for number in range(KEPT_CONNECTIONS + 3):
            async with sent(transport, request(server, account=str(number))) as response:
                await body_of(response)
        assert KEPT_CONNECTIONS == len(transport._kept)


class StaleConnection:
    """A connection that was kept for too long, and takes a moment to close."""

    def __init__(self) -> None:
        self.closed = 0

    def may_go_on(self) -> bool:
        return False

    def is_open(self) -> bool:
        return False

    async def aclose(self) -> None:
        self.closed += 1
        await asyncio.sleep(0)


async def test_requests_that_end_at_once_close_each_stale_connection_once(transport):
    request = ApiRequest(method="GET", scheme="http", host="127.0.0.1", port=9, path="/", headers=[], account="grant")
    stale = [StaleConnection() for _ in range(4)]
    transport._kept.update({each: (_key(request), 0.0) for each in stale})
    own = [StaleConnection() for _ in range(2)]
    await asyncio.gather(*(transport.give_back(_key(request), each) for each in own))
    assert ([1] * 6, {}) == ([each.closed for each in (*stale, *own)], transport._kept)


async def test_requests_that_begin_at_once_meet_each_stale_connection_once(transport):
    request = ApiRequest(method="GET", scheme="http", host="127.0.0.1", port=9, path="/", headers=[], account="grant")
    stale = [StaleConnection() for _ in range(4)]
    transport._kept.update({each: (_key(request), 0.0) for each in stale})
    failed = await asyncio.gather(*(failure(transport, request) for _ in range(3)))
    assert [Code.PROVIDER_UNREACHABLE] * 3 == [each.code for each in failed]
    assert not any("KeyError" in str(each.note) for each in failed)
    assert [1] * 4 == [each.closed for each in stale]
