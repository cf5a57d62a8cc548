"""What the server makes of an application's messages: framing, the end of connections, and bytes that it never writes."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from oauthbroker.core.clock import SystemClock
from oauthbroker.observability.logging import json_log
from oauthbroker.serving.connection_slots import Terms
from oauthbroker.serving.listeners import listen
from oauthbroker.serving.server import served
from tests.kit.raw_http import Said, Site

App = Callable[[Scope, Receive, Send], Awaitable[None]]


def saying(*parts: bytes, status: int = 200, headers: list[tuple[bytes, bytes]] | None = None) -> App:
    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": status, "headers": headers or []})
        for number, part in enumerate(parts, 1):
            await send({"type": "http.response.body", "body": part, "more_body": number < len(parts)})

    return app


async def asked(app: App, *parts: bytes, pause: float = 0) -> tuple[Said, list[dict[str, Any]]]:
    """What came back until the server hung up, without its date, and the server's lines."""
    stream = io.StringIO()
    with listen("127.0.0.1", 0) as listener:
        async with served(app, [listener], Terms(json_log(stream, SystemClock())), grace_seconds=1) as server:
            site = Site(listener.getsockname()[1], server, stream)
            said = await site.say(*parts, pause=pause)
    lines = said.raw.split(b"\r\n")
    return Said(b"\r\n".join(line for line in lines if not line.startswith(b"date: "))), site.lines


LAST = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
OLD = b"GET / HTTP/1.0\r\n\r\n"
HEAD = LAST.replace(b"GET", b"HEAD")
SIZED = [(b"content-length", b"4")]
ANSWERS = {
    "a length": (saying(b"ab", b"cd", headers=SIZED), LAST, b"content-length: 4\r\nconnection: close\r\n\r\nabcd"),
    "no length": (
        saying(b"ab", b"", b"c"),
        LAST,
        b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
    ),
    "no length, in HTTP/1.0": (saying(b"ab", b"c"), OLD, b"connection: close\r\n\r\nabc"),
    "only its head": (saying(b"", headers=SIZED), HEAD, b"content-length: 4\r\nconnection: close\r\n\r\n"),
    "only the head of one with a body": (
        saying(b"abcd", headers=SIZED),
        HEAD,
        b"content-length: 4\r\nconnection: close\r\n\r\n",
    ),
    "the application ends it": (
        saying(b"abcd", headers=[*SIZED, (b"connection", b"close")]),
        LAST.replace(b"Connection: close\r\n", b""),
        b"content-length: 4\r\nconnection: close\r\n\r\nabcd",
    ),
}


@pytest.mark.parametrize(("app", "request_", "expected"), ANSWERS.values(), ids=ANSWERS)
async def test_an_answer_has_one_unambiguous_end(app: App, request_: bytes, expected: bytes) -> None:
    said, _ = await asked(app, request_)
    head, _, body = said.raw.partition(b"\r\n\r\n")
    wanted, _, its_body = expected.partition(b"\r\n\r\n")
    assert (b"HTTP/1.1 200 OK", {*wanted.split(b"\r\n")}) == (head.split(b"\r\n")[0], {*head.split(b"\r\n")[1:]})
    assert its_body == body


@pytest.mark.parametrize("status", [204, 304])
async def test_an_answer_without_a_body_has_no_framing_either(status: int) -> None:
    said, _ = await asked(saying(b"", status=status), LAST)
    assert status == said.status
    assert said.raw.endswith(b"\r\nconnection: close\r\n\r\n")
    assert said.header("transfer-encoding") is None
    assert said.header("content-length") is None


async def fails(_scope: Scope, _receive: Receive, _send: Send) -> None:
    raise LookupError("canary")


async def returns(_scope: Scope, _receive: Receive, _send: Send) -> None:
    pass


FAULTS = {
    "it fails": fails,
    "it says nothing": returns,
    "a header with a line end in it": saying(b"", headers=[(b"x-one", b"a\r\nset-cookie: b=c")]),
    "a header with a NUL in it": saying(b"", headers=[(b"x", b"\0")]),
    "more than it said": saying(b"abcde", headers=SIZED),
    "less than it said": saying(b"abc", headers=SIZED),
}


@pytest.mark.case("82")
@pytest.mark.parametrize("app", FAULTS.values(), ids=FAULTS)
async def test_an_application_that_fails_costs_its_own_connection_and_tells_nothing(app: App) -> None:
    said, lines = await asked(app, LAST)
    assert said.status in {0, 200, 500}, "nothing, the part sent before, or a fault"
    assert b"canary" not in said.raw
    assert b"cookie" not in said.raw
    assert "canary" not in str(lines)
    whole = said.header("content-length")
    assert said.status != 200 or whole is None or len(said.raw.partition(b"\r\n\r\n")[2]) != int(whole)


async def test_an_answer_that_breaks_off_is_never_a_whole_one() -> None:
    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ab", "more_body": True})
        raise LookupError

    said, _ = await asked(app, LAST)
    assert said.raw.endswith(b"\r\n\r\n2\r\nab\r\n")


def heard(messages: list[Message], *, times: int) -> App:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        messages.extend([await receive() for _ in range(times)])
        await saying(b"")(scope, receive, send)
        messages.append(await receive())

    return app


async def test_a_body_is_heard_as_it_comes_and_its_end_once() -> None:
    messages: list[Message] = []
    head = LAST.replace(b"GET", b"POST").replace(b"\r\n\r\n", b"\r\nContent-Length: 4\r\n\r\n")
    said, _ = await asked(heard(messages, times=2), head + b"ab", b"cd", pause=0.1)
    assert 200 == said.status
    assert [(b"ab", True), (b"cd", False)] == [(each["body"], each["more_body"]) for each in messages[:2]]
    assert {"type": "http.disconnect"} == messages[2]


@pytest.mark.case("82")
async def test_a_client_that_expects_100_continue_gets_it_when_the_application_reads() -> None:
    messages: list[Message] = []
    head = LAST.replace(b"GET", b"POST").replace(b"\r\n\r\n", b"\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
    said, _ = await asked(heard(messages, times=1), head, b"ab", pause=0.2)
    assert [100, 200] == said.statuses
    assert b"ab" == messages[0]["body"]
    unasked, _ = await asked(saying(b""), head.replace(b"Connection: close\r\n", b""))
    assert [200] == unasked.statuses
    assert "close" == unasked.header("connection")


@pytest.mark.case("84")
async def test_an_unread_body_is_not_the_next_request() -> None:
    body = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
    paths: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        paths.append(scope["path"])
        await saying(b"")(scope, receive, send)

    first = f"POST /first HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    said, _ = await asked(app, first, body[:10], body[10:] + LAST, pause=0.1)
    assert [200, 200] == said.statuses
    assert ["/first", "/"] == paths


async def test_a_disconnect_is_reported_to_the_application() -> None:
    gone = asyncio.Event()

    async def app(_scope: Scope, receive: Receive, _send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        gone.set()

    with listen("127.0.0.1", 0) as listener:
        async with served(app, [listener], Terms(json_log(io.StringIO(), SystemClock())), grace_seconds=1):
            _, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(LAST)
            await asyncio.sleep(0.1)
            assert not gone.is_set()
            writer.transport.abort()
            async with asyncio.timeout(60):
                await gone.wait()
