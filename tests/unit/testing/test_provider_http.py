"""The server below the provider, on raw sockets: requests are read by the rules, answers leave as they were written."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import re

import pytest
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from oauthbroker.testing import IdentityProvider
from oauthbroker.testing.provider import http, server


async def talk(idp: IdentityProvider, *parts: bytes) -> bytes:
    """Send parts one after the other, read until the provider hangs up (or says nothing for a while)."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(idp.base_url.rpartition(":")[2]))
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.01)
        writer.write_eof()
        return await asyncio.wait_for(reader.read(), 60)
    finally:
        writer.close()
        await writer.wait_closed()


def get(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: x", *headers, "", ""]).encode()


async def test_a_connection_serves_one_request_after_another(idp: IdentityProvider):
    answer = await talk(idp, get("/jwks"), get("/nowhere"), get("/jwks"))
    assert [b"200", b"404", b"200"] == re.findall(rb"HTTP/1\.1 (\d+)", answer)


async def test_pipelined_requests_are_answered_in_order(idp: IdentityProvider):
    answer = await talk(idp, get("/nowhere") + get("/jwks") + get("/nowhere"))
    assert 3 == answer.count(b"HTTP/1.1 ")
    assert (2, 1) == (idp.count("unknown"), idp.count("jwks"))


async def test_close_means_close(idp: IdentityProvider):
    answer = await talk(idp, get("/nowhere", "Connection: close") + get("/nowhere"))
    assert 1 == answer.count(b"HTTP/1.1 ") == idp.count("unknown")


async def test_head_gets_no_body(idp: IdentityProvider):
    answer = await talk(idp, get("/jwks").replace(b"GET", b"HEAD"))
    assert answer.endswith(b"\r\n\r\n")
    assert b"content-length: 0" not in answer


async def test_a_request_may_come_in_pieces_and_chunks(idp: IdentityProvider):
    head = b"POST /token HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    answer = await talk(
        idp, head[:20], head[20:] + b"Transfer-Encoding: chunked\r\n\r\n", b"5\r\na=b&c\r\n", b"2\r\n=d\r\n0\r\n\r\n"
    )
    assert b"401" == answer[9:12]
    assert (("a", "b"), ("c", "d")) == idp.seen("token")[0].fields


async def test_a_client_may_ask_before_sending_a_body(idp: IdentityProvider):
    head = b"POST /revoke HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"
    answer = await talk(idp, head, b"a=b")
    assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 401")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"hello\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),  # no Host
        (b"POST /token HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n\r\n" + b"x" * 1_100_000, b"413"),
    ],
)
async def test_bytes_that_are_not_http_or_too_large_are_refused(idp: IdentityProvider, sent: bytes, status: bytes):
    assert status == (await talk(idp, sent))[9:12]
    assert [] == idp.requests


async def test_a_client_that_leaves_harms_no_other(idp: IdentityProvider):
    assert b"" == await talk(idp, b"")
    assert b"400" == (await talk(idp, b"POST /token HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc"))[9:12]
    assert b"200" == (await talk(idp, get("/jwks")))[9:12]


async def test_a_port_can_be_chosen():
    async with IdentityProvider() as first:
        port = int(first.base_url.rpartition(":")[2])
    async with IdentityProvider(port=port) as again:
        assert first.base_url == again.base_url
        assert b"200" == (await talk(again, get("/jwks")))[9:12]


@pytest.mark.parametrize(
    ("headers", "status", "seen"),
    [
        ({"x-bad": "a\nb"}, 200, b"x-bad: a\nb\r\n"),
        ({"content-length": "99"}, 200, b"content-length: 99\r\n"),
        ({"transfer-encoding": "chunked"}, 200, b"\r\n\r\nbody"),
        ({}, 999, b"HTTP/1.1 999 "),
    ],
)
async def test_an_answer_that_http_forbids_is_sent_and_ends_the_connection(
    idp: IdentityProvider, headers: dict[str, str], status: int, seen: bytes
):
    idp.script.jwks.answer(status, "body", headers)
    answer = await talk(idp, get("/jwks") + get("/jwks"))
    assert seen in answer
    assert b"connection: close\r\n" in answer
    assert 1 == answer.count(b"HTTP/1.1 ") == idp.count("jwks")


async def test_a_scripted_answer_keeps_the_connection(idp: IdentityProvider):
    idp.script.jwks.answer(503, {"error": "later"})
    assert [b"503", b"200"] == re.findall(rb"HTTP/1\.1 (\d+)", await talk(idp, get("/jwks"), get("/jwks")))


async def test_the_server_logs_nothing_and_stops_with_connections_open(caplog: pytest.LogCaptureFixture):
    caplog.set_level(1)
    async with IdentityProvider() as idp:
        idp.script.jwks.hang()
        port = int(idp.base_url.rpartition(":")[2])
        open_ones = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        open_ones[0][1].write(get("/jwks"))
        open_ones[1][1].write(get("/nowhere"))
        await idp.wait_for("jwks")
        await idp.wait_for("unknown")
        assert b"400" == (await talk(idp, b"nonsense\r\n\r\n"))[9:12]
    for reader, writer in open_ones:
        with contextlib.suppress(ConnectionResetError):
            await asyncio.wait_for(reader.read(), 60)
        writer.close()
    assert [] == [each.getMessage() for each in caplog.records if each.name != "asyncio"]


def test_the_members_of_uvicorns_connection_that_the_server_uses_are_there():
    ours = inspect.getsource(server) + inspect.getsource(http.Wire)
    used = set(
        re.findall(r"self\.(?:_connection\.)?(cycle|flow|transport|logger|access_log|timeout_keep_alive)\b", ours)
    )
    own = set(re.findall(r"self\.(\w+)", inspect.getsource(H11Protocol.__init__)))
    assert {"cycle", "flow", "transport", "logger"} <= used <= own
    assert callable(H11Protocol.send_400_response)
    assert callable(H11Protocol.shutdown)
    of_a_cycle = set(re.findall(r"self\.(\w+)", inspect.getsource(RequestResponseCycle.__init__)))
    assert {"more_body", "response_started"} == set(re.findall(r"self\.cycle\.(\w+)", ours)) <= of_a_cycle
