"""The gate: whom it answers, how much it takes, what every answer wears, and that a fault tells nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.web.gate.request_limits import (
    BODY_LIMIT,
    PEER,
    TARGET_LIMIT,
    allowed_hosts,
    may_take_long,
    own_hosts,
)
from oauthbroker.web.middleware.security_headers import security_headers
from tests.unit.web.kit import Document, a_site, ask, gated

PAGE = [("accept", "text/html,application/xhtml+xml,*/*;q=0.8")]
CANARY = "canary-secret-in-a-message"


async def where(request: Request) -> Response:
    return JSONResponse({"url": str(request.url), "headers": dict(request.headers)})


async def length(request: Request) -> Response:
    return JSONResponse({"length": len(await request.body())})


async def fault(_request: Request) -> Response:
    raise RuntimeError(CANARY)


async def refusal(_request: Request) -> Response:
    raise BrokerError(Code.RATE_LIMITED, retry_after_seconds=7)


async def half(_request: Request) -> Response:
    async def body() -> AsyncIterator[bytes]:
        yield b"first"
        raise RuntimeError(CANARY)

    return StreamingResponse(body())


async def own(_request: Request) -> Response:
    return PlainTextResponse("x", headers={"referrer-policy": "same-origin"})


ROUTES = [
    Route("/", where),
    Route("/healthz", where),
    Route("/length", length, methods=["POST"]),
    Route("/fault", fault),
    Route("/refusal", refusal),
    Route("/half", half),
    Route("/own", own),
    Route("/connect/{ticket}", where),
]


@pytest.mark.case("85")
@pytest.mark.parametrize(
    "host, status",
    [
        ("broker.example", 200),
        ("BROKER.example", 200),
        ("broker.example:80", 200),
        ("evil.example", 421),
        ("broker.example.evil.example", 421),
        ("evil.example#broker.example", 421),
        ("evil.example/broker.example", 421),
        ("broker.example@evil.example", 421),
        ("broker.example:8080", 421),
        ("broker.example.", 421),
        ("127.0.0.1", 421),
        ("", 421),
        (None, 421),
    ],
)
async def test_only_our_own_host_is_served(host, status):
    answer = await ask(a_site(ROUTES).app, "/", host=host)
    assert answer.status == status
    if status == 421:
        assert answer.json["code"] == "hostNotAllowed"
        assert "evil" not in answer.text


@pytest.mark.case("85")
async def test_two_hosts_are_none():
    answer = await ask(a_site(ROUTES).app, "/", headers=[("host", "evil.example")])
    assert answer.status == 421


@pytest.mark.case("85")
async def test_a_clients_forwarding_headers_reach_no_application():
    lies = [
        ("x-forwarded-host", "evil.example"), ("x-forwarded-proto", "https"), ("x-forwarded-prefix", "/evil"),
        ("x-forwarded-for", "127.0.0.1"), ("forwarded", "host=evil.example"), ("x-original-url", "/admin"),
        ("x-rewrite-url", "/admin"), ("x-real-ip", "127.0.0.1"),
    ]  # fmt: skip
    answer = await ask(a_site(ROUTES).app, "/", headers=lies)
    assert answer.json == {"url": "http://broker.example/", "headers": {"host": "broker.example"}}


@pytest.mark.case("85")
async def test_a_health_probe_may_ask_by_address_and_nothing_else_may():
    app = a_site(ROUTES).app
    assert (await ask(app, "/healthz", host="10.0.0.7:8420")).status == 200
    assert (await ask(app, "/readyz", host="10.0.0.7:8420")).status == 404, "checked by its route, not by its host"
    assert (await ask(app, "/healthz", host="10.0.0.7:8420", root_path="/broker")).status == 200
    assert (await ask(app, "/healthz/", host="10.0.0.7:8420")).status == 421


@pytest.mark.parametrize(
    "base, hosts",
    [
        ("https://broker.example/x", {"broker.example", "broker.example:443"}),
        ("https://broker.example:443", {"broker.example", "broker.example:443"}),
        ("https://Broker.example:8443", {"broker.example:8443"}),
        ("http://127.0.0.1:8420", {"127.0.0.1:8420"}),
        ("http://[::1]:80/", {"[::1]", "[::1]:80"}),
    ],
)
def test_the_public_address_says_which_hosts_are_ours(base, hosts):
    assert allowed_hosts(base) == hosts
    assert allowed_hosts(base, ["Extra:1"]) == hosts | {"extra:1"}


@pytest.mark.case("85")
@pytest.mark.parametrize(
    "host, port, hosts",
    [
        ("127.0.0.1", 8421, {"127.0.0.1:8421", "localhost:8421", "[::1]:8421"}),
        ("::1", 80, {"127.0.0.1:80", "localhost:80", "[::1]:80"}),
        ("10.0.0.7", 8421, {"10.0.0.7:8421"}),
        ("[2001:DB8::1]", 8421, {"[2001:db8::1]:8421"}),
        ("Broker.internal", 1, {"broker.internal:1"}),
    ],
)
def test_a_listener_of_the_api_answers_to_its_own_address(host, port, hosts):
    assert hosts == own_hosts(host, port)


@pytest.mark.case("85")
@pytest.mark.parametrize("extensions, status", [({PEER: {"uid": 1}}, 200), ({}, 421), (None, 421)])
async def test_on_our_unix_socket_the_host_says_nothing(extensions, status):
    app = a_site(ROUTES).app

    async def over_a_socket(scope, receive, send):
        await app({**scope, "extensions": extensions}, receive, send)

    assert status == (await ask(over_a_socket, "/", host="anything")).status


@pytest.mark.case("84")
async def test_two_ways_to_say_how_long_a_body_is_are_one_too_many():
    for more in ([("transfer-encoding", "chunked")], [("content-length", "1")]):
        headers = [("content-length", "1"), *more]
        answer = await ask(a_site(ROUTES).app, "/length", method="POST", chunks=[b"a"], headers=headers)
        assert (400, "requestInvalid", "close") == (answer.status, answer.json["code"], answer.headers["connection"])


@pytest.mark.case("11")
@pytest.mark.parametrize(
    "path, query, status",
    [
        ("/", b"q" * TARGET_LIMIT, 200),
        ("/", b"q" * (TARGET_LIMIT + 1), 414),
        ("/", b"q" * 100_000, 414),
        ("/" + "p" * TARGET_LIMIT, b"", 414),
        ("/a\x00b", b"", 400),
        ("/a\r\nb", b"", 400),
        ("/a\x7f", b"", 400),
        ("/\x1b[31m", b"", 400),
    ],
)
async def test_a_target_that_is_too_long_or_has_control_characters_goes_no_further(path, query, status):
    site = a_site(ROUTES)
    answer = await ask(site.app, path, query=query)
    assert answer.status == status
    assert len(site.stream.getvalue().splitlines()) == 1
    if status != 200:
        assert site.lines[0]["route"] == "-"


@pytest.mark.parametrize(
    "path", ["/%6cength", "/%6Cength", "/le%6Egth", "/%2flength", "/%2E/length", "/a%2Db", "/%5f", "/%30"]
)
async def test_a_path_that_hides_a_plain_character_behind_a_percent_sign_is_refused(path):
    site = a_site(ROUTES)
    answer = await ask(site.app, path)
    assert (400, True) == (answer.status, answer.json["detail"].startswith("A percent sign in the path is not needed"))
    assert "a plain character of the path is percent-encoded" == site.lines[0]["note"]


@pytest.mark.parametrize("path", ["/%ZZ", "/%", "/a%2", "/%%41", "/%u0041", "/%-1", "/%25/%"])
async def test_a_path_with_a_percent_sign_without_its_two_digits_is_refused_by_name(path):
    answer = await ask(a_site(ROUTES).app, path)
    assert (400, True) == (answer.status, "lacks its two hexadecimal digits" in answer.json["detail"])


@pytest.mark.parametrize(
    "path", ["/a%20b", "/%C3%BC", "/a%7Eb", "/a%3Ab", "/a%40b", "/a%60b", "/a%5Bb", "/v1/proxy/a%2Fb"]
)
async def test_a_path_whose_percent_signs_are_needed_is_looked_up(path):
    assert 404 == (await ask(a_site(ROUTES).app, path)).status


@pytest.mark.parametrize(
    "chunks, announced, status",
    [
        ([b"a" * BODY_LIMIT], None, 200),
        ([b"a" * BODY_LIMIT, b"a"], None, 413),
        ([b"a" * 1000] * 100, None, 413),
        ([b"a"], str(BODY_LIMIT + 1), 413),
        ([b"a"], "9" * 5000, 413),
        ([b"a"], "-1", 413),
        ([b"a"], "1", 200),
    ],
)
async def test_a_body_stops_at_its_limit_announced_or_not(chunks, announced, status):
    headers = [("content-length", announced)] if announced else []
    answer = await ask(a_site(ROUTES).app, "/length", method="POST", chunks=chunks, headers=headers)
    assert answer.status == status
    if status == 413:
        assert answer.headers["connection"] == "close"
        assert answer.json["code"] == "requestTooLarge"


@pytest.mark.case("87")
@pytest.mark.parametrize("accept", [[], PAGE])
@pytest.mark.parametrize(
    "method, path, host, status",
    [
        ("GET", "/", "broker.example", 200),
        ("GET", "/nowhere", "broker.example", 404),
        ("POST", "/connect/t", "broker.example", 405),
        ("TRACE", "/connect/t", "broker.example", 405),
        ("GET", "/fault", "broker.example", 500),
        ("GET", "/refusal", "broker.example", 429),
        ("GET", "/", "evil.example", 421),
        ("GET", "/\x00", "broker.example", 400),
    ],
)
async def test_every_answer_wears_the_security_headers(accept, method, path, host, status):
    answer = await ask(a_site(ROUTES).app, path, method=method, headers=accept, host=host)
    assert answer.status == status
    assert security_headers().items() <= answer.headers.items()
    assert ("allow" in answer.headers) == (status == 405)
    if status != 200:
        kind = "text/html; charset=utf-8" if accept else "application/problem+json"
        assert answer.headers["content-type"] == kind
    if status in {404, 405} and not accept:
        assert answer.json["code"] == {404: "notFound", 405: "methodNotAllowed"}[status]
        assert answer.headers["content-language"] == "en"


async def test_a_route_may_choose_its_own_referrer_policy():
    answer = await ask(a_site(ROUTES).app, "/own")
    assert answer.headers["referrer-policy"] == "same-origin"


@pytest.mark.case("92")
async def test_a_fault_tells_its_class_and_place_to_the_log_and_nothing_to_the_caller():
    site = a_site(ROUTES)
    page = await ask(site.app, "/fault", headers=PAGE)
    problem = await ask(site.app, "/fault")
    assert (page.status, problem.status) == (500, 500)
    assert problem.json == {"type": "about:blank", "title": "Internal Server Error", "status": 500}
    assert CANARY not in page.text + problem.text + site.stream.getvalue()
    note = site.lines[0]
    assert (note["event"], note["level"], note["exception"]) == ("fault", "error", "RuntimeError")
    assert note["place"].startswith(f"{__name__}.fault:")
    assert note["request_id"] == page.headers["x-request-id"]
    assert f"quote {note['request_id']}" in Document(page.text).text


@pytest.mark.case("92")
async def test_a_fault_in_mid_answer_ends_the_answer_and_reaches_no_server():
    site = a_site(ROUTES)
    answer = await ask(site.app, "/half")
    assert (answer.status, answer.body, answer.finished) == (200, b"first", False)
    assert site.lines[0]["event"] == "fault"
    assert CANARY not in site.stream.getvalue()


async def test_the_place_of_a_fault_is_the_innermost_line_of_ours():
    async def deep(_request: Request) -> Response:
        return JSONResponse({"x": BrokerError("no such code").status})  # type: ignore[arg-type]

    site = a_site([Route("/", deep)])
    assert (await ask(site.app, "/")).status == 500
    assert site.lines[0]["place"].startswith("oauthbroker.core.errors.BrokerError.")


async def test_a_refusal_raised_anywhere_is_answered_with_its_code():
    async def bare(_scope, _receive, _send):
        raise BrokerError(Code.STORE_LOCKED)

    answer = await ask(gated(bare)[0], "/")
    assert (answer.status, answer.json["code"]) == (503, "storeLocked")


async def test_a_client_that_left_is_no_fault():
    site = a_site(ROUTES)
    answer = await ask(site.app, "/length", method="POST", chunks=[])
    assert answer.status == 0
    assert [line["event"] for line in site.lines] == ["request"]


async def sleeper(request: Request) -> Response:
    if "patient" in request.query_params:
        may_take_long(request)
    await asyncio.sleep(0.05)
    return PlainTextResponse("late")


async def body_then_sleep(request: Request) -> Response:
    await request.body()
    return await sleeper(request)


class Slowly(Response):
    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.sleep(0.05)
        await send({"type": "http.response.body", "body": b"last"})


async def slow_stream(_request: Request) -> Response:
    return Slowly()


HURRIED = [Route("/sleep", sleeper), Route("/read", body_then_sleep, methods=["POST"]), Route("/stream", slow_stream)]


def hurried(seconds: float) -> ASGIApp:
    return gated(Router(HURRIED), seconds=seconds)[0]


@pytest.mark.case("83")
@pytest.mark.parametrize(
    "path, query, status", [("/sleep", b"", 503), ("/sleep", b"patient", 200), ("/stream", b"", 200)]
)
async def test_an_answer_begins_in_time_unless_its_route_waits_on_purpose(path, query, status):
    answer = await ask(hurried(0.02), path, query=query)
    assert answer.status == status
    if status == 503:
        assert ("requestTimeout", "close") == (answer.json["code"], answer.headers["connection"])
    else:
        assert answer.finished


@pytest.mark.case("83")
async def test_a_body_that_does_not_come_in_time_is_the_callers_fault():
    """The announced body is dripped: the client is told so, with another status than when we are the slow ones."""

    async def dripping(scope, _receive, send):
        async def receive():
            await asyncio.sleep(0.005)
            return {"type": "http.request", "body": b"a", "more_body": True}

        await hurried(0.02)(scope, receive, send)

    for headers in ([("content-length", "60000")], [("transfer-encoding", "chunked")]):
        answer = await ask(dripping, "/read", method="POST", headers=headers)
        assert (408, "requestTimeout", "close") == (answer.status, answer.json["code"], answer.headers["connection"])
    late = await ask(hurried(0.02), "/read", method="POST", chunks=[b"a"], headers=[("content-length", "1")])
    assert 503 == late.status


@pytest.mark.case("83")
async def test_a_timeout_of_a_routes_own_is_a_fault_like_any_other():
    async def impatient(_request: Request) -> Response:
        raise TimeoutError(CANARY)

    answer = await ask(a_site([Route("/", impatient)]).app, "/")
    assert 500 == answer.status


async def test_a_cancelled_request_stays_cancelled():
    async def forever(_request: Request) -> Response:
        await asyncio.Event().wait()
        raise AssertionError

    task = asyncio.create_task(ask(a_site([Route("/", forever)]).app, "/"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_websocket_is_closed_and_the_lifespan_passes():
    seen, sent = [], []

    async def inner(scope, _receive, _send):
        seen.append(scope["type"])

    async def send(message):
        sent.append(message)

    gate, _ = gated(inner)
    for kind in ("websocket", "lifespan"):
        await gate({"type": kind, "path": "/", "headers": []}, None, send)  # type: ignore[arg-type]
    assert seen == ["lifespan"]
    assert [(message["type"], message["code"]) for message in sent] == [("websocket.close", 1008)]
