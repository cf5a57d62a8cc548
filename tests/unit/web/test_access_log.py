"""The access log names routes and outcomes, and nothing that a person or a provider put into a request."""

from __future__ import annotations

import asyncio
import json
import logging
import socket

import pytest
import uvicorn
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.testing.clock import TestClock
from oauthbroker.web.middleware.access_log import IDS_AT_ONCE, request_id, uvicorn_options
from tests.kit.waiting import until
from tests.unit.web.kit import NOW, a_site, ask, gated

CANARY = "canaryAccessLog0123456789"


async def fine(request: Request) -> Response:
    return PlainTextResponse(request_id(request.scope))


ROUTES = [Route("/connect/{ticket}", fine), Mount("/oauth", routes=[Route("/callback/{app}", fine)])]

WHY = {"code": "requestInvalid", "note": "a control character in the path"}


@pytest.mark.case("92")
@pytest.mark.parametrize(
    "method, path, route, status",
    [
        ("GET", f"/connect/{CANARY}", "/connect/{ticket}", 200),
        ("GET", f"/oauth/callback/{CANARY}", "/callback/{app}", 200),
        ("POST", f"/connect/{CANARY}", "/connect/{ticket}", 405),
        (CANARY, f"/connect/{CANARY}", "/connect/{ticket}", 405),
        ("GET", f"/{CANARY}", "-", 404),
        ("GET", f"/{CANARY}\r\n{{}}", "-", 400),
    ],
)
async def test_a_line_has_the_route_and_never_the_typed_path(method, path, route, status):
    site = a_site(ROUTES)
    marked = [("user-agent", CANARY), ("cookie", f"oab={CANARY}"), ("referer", CANARY), ("authorization", CANARY)]
    answer = await ask(site.app, path, method=method, query=f"code={CANARY}&state=x".encode(), headers=marked)
    (line,) = site.lines
    assert CANARY not in site.stream.getvalue()
    assert line == {
        "time": "2026-11-21T10:00:00Z", "event": "request", "level": "info", "route": route, "status": status,
        "method": method if method != CANARY else "other", "duration_ms": 0.0,
        "request_id": answer.headers["x-request-id"], **(WHY if status == 400 else {}),
    }  # fmt: skip


async def test_the_line_of_a_refused_request_says_why_in_our_words():
    async def refuse(_request: Request) -> Response:
        raise BrokerError(Code.PROVIDER_UNREACHABLE, note="no answer in time")

    async def refuse_silently(_request: Request) -> Response:
        raise BrokerError(Code.STATE_UNKNOWN)

    site = a_site([Route("/a", refuse), Route("/b", refuse_silently), Route("/connect/{ticket}", fine)])
    for path in ("/a", "/b", "/connect/x"):
        await ask(site.app, path)
    assert [("providerUnreachable", "no answer in time"), ("stateUnknown", None), (None, None)] == [
        (line.get("code"), line.get("note")) for line in site.lines
    ]


async def test_the_duration_is_measured_on_our_clock():
    clock = TestClock(NOW)

    async def slow(_request: Request) -> Response:
        clock.advance(0.25)
        return PlainTextResponse("x")

    site = a_site([Route("/", slow)], clock=clock)
    await ask(site.app, "/")
    assert site.lines[0]["duration_ms"] == 250.0


async def test_every_request_has_an_id_of_its_own_that_the_client_cannot_choose():
    site = a_site(ROUTES)
    answers = [
        await ask(site.app, "/connect/t", headers=[("x-request-id", "mine")]) for _ in range(2 * IDS_AT_ONCE + 1)
    ]
    ids = [answer.headers["x-request-id"] for answer in answers]
    assert ids == [answer.text for answer in answers]
    assert len(set(ids)) == 2 * IDS_AT_ONCE + 1
    assert {len(one) for one in ids} == {16}


async def test_a_request_that_did_not_come_through_the_gate_has_no_id():
    assert request_id({"type": "http"}) == ""


async def test_a_request_that_breaks_off_still_leaves_its_line():
    async def cancelled(_scope, _receive, _send):
        raise asyncio.CancelledError

    gate, stream = gated(cancelled)
    with pytest.raises(asyncio.CancelledError):
        await ask(gate, "/")
    line = json.loads(stream.getvalue())
    assert ("request", 0) == (line["event"], line["status"])


@pytest.mark.case("89", "92")
async def test_the_server_itself_logs_nothing_of_a_request_even_at_the_lowest_level(caplog):
    """uvicorn with our options and the root logger at level 1; without `log_level` it would trace whole scopes."""
    site = a_site(ROUTES, public="http://127.0.0.1")
    caplog.set_level(1)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(site.app, lifespan="off", **uvicorn_options()))
        serving = asyncio.create_task(server.serve([listener]))
        answers = [
            await raw_request(listener, f"GET /connect/{CANARY}?code={CANARY} HTTP/1.1\r\nHost: 127.0.0.1"),
            await raw_request(listener, f"GET /{CANARY} HTTP/1.1\r\nHost: {CANARY}"),
            await raw_request(listener, f"GET /{CANARY} {CANARY} HTTP/1.1\r\nHost: 127.0.0.1"),
            await raw_request(listener, f"GET /?q={CANARY * 5000} HTTP/1.1\r\nHost: 127.0.0.1"),
        ]
        server.should_exit = True
        await serving
    *statuses, too_long = [answer.split(b" ")[1] for answer in answers]
    assert statuses == [b"200", b"421", b"400"]
    assert too_long in {b"400", b"414"}  # the parser's limit or ours, as the packets fall
    assert b"\r\nserver:" not in answers[0].lower()
    assert caplog.records  # the server does speak
    assert CANARY not in caplog.text + site.stream.getvalue()
    assert [line["status"] for line in site.lines][:2] == [200, 421]


async def raw_request(listener: socket.socket, head: str) -> bytes:
    await until(lambda: listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))  # the server has started
    reader, writer = await asyncio.open_connection(*listener.getsockname())
    writer.write(f"{head}\r\nConnection: close\r\n\r\n".encode())
    answer = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    await writer.wait_closed()
    return answer


def test_the_server_is_told_to_log_no_requests_and_believe_no_proxy_headers():
    options = uvicorn_options()
    assert options["access_log"] is False
    assert options["proxy_headers"] is False


@pytest.mark.case("89")
@pytest.mark.parametrize(
    "options, traced", [(uvicorn_options(), False), ({**uvicorn_options(), "log_level": None}, True)]
)
def test_a_root_logger_at_the_lowest_level_does_not_make_the_server_trace_requests(caplog, options, traced):
    caplog.set_level(1)
    for name in ("uvicorn", "uvicorn.error"):  # another test's server may have set them
        caplog.set_level(logging.NOTSET, name)
    config = uvicorn.Config(a_site(ROUTES).app, **options)
    config.load()
    assert ("MessageLogger" in type(config.loaded_app).__name__) is traced
