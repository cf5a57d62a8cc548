"""A warm `POST /v1/tokens` is answered from its bytes as by the general way, in answers, log, audit and
metrics. A right that ended a moment ago is refused on the very next request of an open connection."""

from __future__ import annotations

import asyncio
import errno
import gc
import io
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from oauthbroker.access.turns import Turns
from oauthbroker.audit.formatting import line_of
from oauthbroker.core.bounded_cache import Bounded
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.bundle import ToolAuth
from oauthbroker.model.settings import Limits
from oauthbroker.model.turn_token import narrow
from oauthbroker.observability.logging import json_log
from oauthbroker.observability.metrics import Metric
from oauthbroker.serving.http1 import known_heads, warm_connection
from oauthbroker.testing import Canaries, IdentityProvider, TestClock
from oauthbroker.tokens.issuance import Issuance
from oauthbroker.web.middleware.access_log import RequestLog
from tests.kit.default_store import confirms
from tests.kit.running_broker import ALICE, Harness, global_app, running, user_app
from tests.kit.wire import SECONDS, Line, a_listener
from tests.story.api.kit import TOOLS, Callers

HOST = "127.0.0.1:8420"
ASK = b'{"oauthAppRef":"OAuthApp/mail","scopes":["read"]}'
PER_MINUTE = 60_000
TURN_SECONDS = 300
SETTLED = 10  # steps of the event loop
knows_heads = pytest.mark.embedded_only(
    "a connection keeps the heads of warm calls only, and a store that is asked has none"
)
REQUEST_ID = re.compile(rb"x-request-id: [A-Za-z0-9_-]{16}\r\n")


def request(
    token: str,
    body: bytes = ASK,
    *headers: str,
    line: str = "POST /v1/tokens HTTP/1.1",
    host: str | None = HOST,
    kind: str | None = "application/json",
    scheme: str = "Bearer",
    length: str | None = "",
) -> bytes:
    lines = [line]
    lines += [f"Host: {host}"] if host is not None else []
    lines += [f"Authorization: {scheme} {token}"] if token else []
    lines += [f"Content-Type: {kind}"] if kind is not None else []
    lines += [f"Content-Length: {length or len(body)}"] if length is not None else []
    return "\r\n".join([*lines, *headers, "", ""]).encode("latin-1") + body


BODIES = {
    "a reference": ASK,
    "a bare name": b'{"oauthAppRef":"mail"}',
    "kind and name": b'{"oauthAppRef":{"kind":"OAuthApp","name":"mail"},"scopes":["write","read"]}',
    "spaces": b' { "oauthAppRef" : "mail" , "scopes" : null } \n',
    "a lifetime": b'{"oauthAppRef":"mail","minTtlSeconds":60}',
    "a lifetime that is too long": b'{"oauthAppRef":"mail","minTtlSeconds":99999999}',
    "a lifetime of another type": b'{"oauthAppRef":"mail","minTtlSeconds":"60"}',
    "no scopes": b'{"oauthAppRef":"mail","scopes":[]}',
    "a third scope": b'{"oauthAppRef":"mail","scopes":["read","admin"]}',
    "a scope twice": b'{"oauthAppRef":"mail","scopes":["read","read"]}',
    "an unknown app": b'{"oauthAppRef":"nothing"}',
    "another kind": b'{"oauthAppRef":"App/mail"}',
    "the same account": b'{"oauthAppRef":"mail","switchAccount":false}',
    "a subject": b'{"oauthAppRef":"mail","subject":"idp:user:U345678"}',
    "a name twice": b'{"oauthAppRef":"mail","oauthAppRef":"mail"}',
    "not JSON": b'{"oauthAppRef":',
    "not an object": b'["mail"]',
    "not UTF-8": b'{"oauthAppRef":"m\xffil"}',
    "nothing": b"",
    "much": b'{"oauthAppRef":"mail"' + b" " * 5000 + b"}",
}
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "another host": {"host": "evil.example"},
    "no host": {"host": None},
    "the host in capitals": {"host": "127.0.0.1:8420".upper()},
    "no port": {"host": "127.0.0.1"},
    "text": {"kind": "text/plain"},
    "no type": {"kind": None},
    "a charset": {"kind": "Application/JSON; charset=UTF-8"},
    "another charset": {"kind": "application/json; charset=latin-1"},
    "no length": {"length": None},
    "a length with a sign": {"length": "+5"},
    "a length too short": {"length": "5"},
    "a long number": {"length": "0049"},
    "small letters": {"scheme": "bearer"},
    "another scheme": {"scheme": "Basic"},
    "two spaces": {"scheme": "Bearer "},
    "GET": {"line": "GET /v1/tokens HTTP/1.1"},
    "PUT": {"line": "PUT /v1/tokens HTTP/1.1"},
    "a query": {"line": "POST /v1/tokens?a=b HTTP/1.1"},
    "an empty query": {"line": "POST /v1/tokens? HTTP/1.1"},
    "a slash": {"line": "POST /v1/tokens/ HTTP/1.1"},
    "an escape": {"line": "POST /v1/%74okens HTTP/1.1"},
    "another call": {"line": "POST /v1/tokens/rejected HTTP/1.1"},
    "HTTP/1.0": {"line": "POST /v1/tokens HTTP/1.0"},
    "HTTP/2": {"line": "POST /v1/tokens HTTP/2.0"},
}
HEADERS = {
    "a page": "Accept: text/html",
    "Korean": "Accept-Language: ko",
    "a proxy": "X-Forwarded-For: 192.0.2.1",
    "another host by a proxy": "X-Forwarded-Host: evil.example",
    "another method": "X-HTTP-Method-Override: DELETE",
    "a trace": "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "the end": "Connection: close",
    "an upgrade": "Connection: upgrade\r\nUpgrade: h2c",
    "a question": "Expect: 100-continue",
    "a second length": "Content-Length: 3",
    "chunks": "Transfer-Encoding: chunked",
    "a second token": "Authorization: Bearer x",
    "a second type": "Content-Type: text/plain",
    "a second host": "Host: evil.example",
    "a folded line": "X-One: a\r\n b",
    "a bare line end": "X-One: a\nX-Two: b",
    "a space before the colon": "X-One : a",
    "a cookie": "Cookie: a=b",
    "many": "\r\n".join(f"X-{number}: a" for number in range(101)),
}
TOKENS = ("turn", "Tool/mail", "Tool/both", "Tool/idle", "Tool/none", "over", "ended", "key", "forged", "garbage", "")


@pytest.fixture
async def harness(identity_provider: IdentityProvider) -> AsyncIterator[Harness]:
    apps = [user_app(identity_provider), global_app(identity_provider)]
    limits = Limits(requests_per_minute=PER_MINUTE)
    clock = TestClock(frozen=True)
    async with running(identity_provider, apps, clock=clock, tools=TOOLS, limits=limits, background=False) as harness:
        await harness.connected()
        yield harness


@pytest.fixture
async def api(harness: Harness) -> Callers:
    return await Callers.of(harness)


async def tokens_of(harness: Harness, api: Callers) -> dict[str, str]:
    begun, ended = await api.begin(), await api.begin()
    assert await harness.broker.turns.end(ended["turnId"])
    whole = begun["turnToken"]
    found = {
        "turn": whole,
        **begun["toolTokens"],
        "Tool/none": narrow_text(whole, apps={}),
        "over": narrow_text(whole, expires_at=harness.clock.now() - timedelta(seconds=5)),
        "ended": ended["turnToken"],
        "key": api.runtime.bearer or "",
        "forged": whole[:-2] + ("AA" if whole[-2:] != "AA" else "BA"),
        "garbage": "oabt.x",
        "": "",
    }
    assert set(TOKENS) == set(found)
    return found


def narrow_text(token: str, **more: Any) -> str:
    text = narrow(Secret(token), **more).reveal()
    Canaries.active().add(text, "turn token")
    return text


def general(harness: Harness) -> Any:
    """The same application without its warm calls."""

    async def web(scope: Scope, receive: Receive, send: Send) -> None:
        await harness.broker.asgi.app(scope, receive, send)

    return web


class Traces:
    """What requests leave behind in a harness, since the last look."""

    def __init__(self, harness: Harness) -> None:
        self._harness, self._at = harness, (0, 0, dict[Any, int]())
        self.new()

    def new(self) -> tuple[list[dict[str, Any]], list[str], dict[Any, int]]:
        lines, entries = self._harness.log.getvalue().splitlines(), self._harness.audit.lines
        counts, times = dict(self._harness.broker.metrics.counts), self._harness.broker.metrics.times
        counts |= {key: sum(each.buckets) for key, each in times.items()}  # type: ignore[misc]
        log, audit, before = self._at
        self._at = len(lines), len(entries), counts
        logged = [json.loads(line) for line in lines[log:]]
        assert len({each.pop("request_id") for each in logged if "request_id" in each}) <= len(logged)
        audited = [line_of(entry, at) for at, entry in entries[audit:]]
        return logged, audited, {key: n - before.get(key, 0) for key, n in counts.items() if n != before.get(key, 0)}


async def said_thrice(harness: Harness, web: Any, data: bytes) -> tuple[list[Any], int]:
    """The answers to the same request, three times on one connection, or on the next one of the listener, with their traces; and how many came at once."""
    listener, traces, found = a_listener(web), Traces(harness), list[Any]()
    line, at_once = Line(listener), 0
    for _ in range(3):
        if line.wire.ended:
            at_once += line.at_once
            line = Line(listener)
        answer = await line.say(data)
        for _ in range(SETTLED):  # the bytes behind a request are read after its answer
            await asyncio.sleep(0)
        await line.settle()
        found.append((REQUEST_ID.subn(b"", answer), traces.new()))
    await line.close()
    return found, at_once + line.at_once


async def compared(harness: Harness, data: bytes) -> int:
    """Assert that both ways answer the same, and return how many of three came at once."""
    await said_thrice(harness, general(harness), data)  # what the first call ever changes
    expected, none = await said_thrice(harness, general(harness), data)
    found, at_once = await said_thrice(harness, harness.broker.asgi.app, data)
    assert expected == found
    assert 0 == none
    return at_once


GOOD_BODIES = {"a reference", "a bare name", "kind and name", "spaces", "a lifetime", "no scopes", "the same account"}
GOOD_WAYS = {"plain", "the host in capitals", "a charset", "a long number", "small letters"}
GOOD_HEADERS = {"a page", "Korean", "a proxy", "another host by a proxy", "another method", "a trace", "a cookie"}


@pytest.mark.sample(8)
@pytest.mark.case("82", "84")
@pytest.mark.parametrize("token", TOKENS)
async def test_every_body_of_every_caller_is_answered_as_by_the_general_way(
    harness: Harness, api: Callers, token: str
) -> None:
    text = (await tokens_of(harness, api))[token]
    warm = {name for name, body in BODIES.items() if await compared(harness, request(text, body))}
    good = {
        "turn": GOOD_BODIES | {"a third scope"},
        "Tool/mail": GOOD_BODIES,
        "Tool/both": GOOD_BODIES | {"a third scope"},
    }
    assert warm == (good.get(token, set()) if confirms() else set())


@pytest.mark.slow
@pytest.mark.case("82", "84")
async def test_every_way_to_send_it_is_answered_as_by_the_general_way(harness: Harness, api: Callers) -> None:
    tokens = await tokens_of(harness, api)
    for token, body in product(("turn", "ended"), (ASK, BODIES["not JSON"])):
        warm = {name for name, way in WAYS.items() if await compared(harness, request(tokens[token], body, **way))}
        good = confirms() and (token, body) == ("turn", ASK)
        assert warm == (GOOD_WAYS if good else set()), token
        warm = {name for name, more in HEADERS.items() if await compared(harness, request(tokens[token], body, more))}
        assert warm == (GOOD_HEADERS if good else set()), token


async def test_a_request_in_parts_and_two_in_one_piece_are_answered_in_order(harness: Harness, api: Callers) -> None:
    data = request((await tokens_of(harness, api))["turn"])
    cuts = [[data[:at], data[at:]] for at in range(0, len(data), 7)] + [[bytes([byte]) for byte in data]]
    line, other = Line(harness.broker.asgi.app), Line(general(harness))
    for parts in [[data], [data], *cuts, [data]]:
        assert REQUEST_ID.sub(b"", await other.say(*parts)) == REQUEST_ID.sub(b"", await line.say(*parts))
    assert confirms() == bool(line.at_once)
    line.connection.data_received(data + data + b"GET /v1/apps HTTP/1.1\r\nHost: " + HOST.encode() + b"\r\n\r\n")
    async with asyncio.timeout(30):
        while line.wire.said.count(b"HTTP/1.1 ") < 4:
            await asyncio.sleep(0)
    assert [b"200 OK", b"200 OK", b"200 OK", b"401 Unauthorized"] == re.findall(rb"HTTP/1.1 ([^\r]+)", line.wire.said)
    await line.close()
    await other.close()


@pytest.fixture
async def line(harness: Harness, api: Callers) -> AsyncIterator[Line]:
    """A connection on which the call is warm, where the store confirms its versions."""
    line = Line(harness.broker.asgi.app)
    line.data = request((await api.begin())["turnToken"])
    for _ in range(3):
        assert (await line.say(line.data)).startswith(b"HTTP/1.1 200 OK\r\n")
    assert confirms() == bool(line.at_once)
    line.at_once = 0
    yield line
    await line.close()


async def test_a_known_head_waits_a_moment_for_its_body(line: Line) -> None:
    for at in (len(line.data) - len(ASK), len(line.data) - 1):
        assert (await line.say(line.data[:at], line.data[at:])).startswith(b"HTTP/1.1 200 OK\r\n")
    assert (2 if confirms() else 0) == line.at_once


@knows_heads
async def test_a_body_that_takes_longer_is_read_by_the_general_way(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_connection, "HOLD_SECONDS", 0)
    before = line.connection.cycle
    line.connection.data_received(line.data[:-1])
    async with asyncio.timeout(30):
        while line.connection.cycle is before:
            await asyncio.sleep(0)
    assert (await line.say(line.data[-1:])).startswith(b"HTTP/1.1 200 OK\r\n")


@knows_heads
async def test_a_body_that_drips_gets_no_extra_time(line: Line) -> None:
    end = len(line.data) - len(ASK)
    line.connection.data_received(line.data[:end])
    timer = line.connection._hold
    for at in range(end, len(line.data) - 1):
        line.connection.data_received(line.data[at : at + 1])
        assert timer is line.connection._hold
    assert (await line.say(line.data[-1:])).startswith(b"HTTP/1.1 200 OK\r\n")
    assert timer is not None
    assert timer.cancelled()


async def test_nothing_behind_the_last_request_is_answered(harness: Harness, line: Line) -> None:
    last = line.data.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
    traces = Traces(harness)
    assert 1 == (await line.say(last + line.data)).count(b"HTTP/1.1 ")
    for _ in range(10):
        await asyncio.sleep(0)
    line.connection._read()
    logged, audited, _ = traces.new()
    assert (1, 1) == (len(logged), len(audited))


@knows_heads
async def test_a_request_that_is_held_when_the_server_stops_is_answered(line: Line) -> None:
    line.connection.data_received(line.data[:-1])
    line.connection.shutdown()
    assert not line.wire.ended
    answer = await line.say(line.data[-1:])
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"connection: close\r\n" in answer
    assert line.wire.ended


@knows_heads
async def test_a_client_that_leaves_while_its_body_is_awaited_leaves_nothing_behind(line: Line) -> None:
    line.connection.data_received(line.data[:-1])
    assert line.connection._hold is not None
    await line.close()
    assert line.connection._hold is None


@knows_heads
async def test_the_cached_head_has_no_token(line: Line) -> None:
    kept = repr(line.connection._heads._heads.items()).encode()
    assert b"WarmHead" in kept
    assert line.data.partition(b"Bearer ")[2].partition(b"\r\n")[0] not in kept


@knows_heads
@pytest.mark.case("79")
async def test_what_strangers_send_takes_no_place_of_a_known_head(
    harness: Harness, api: Callers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_heads, "MOST", 100)
    listener, tokens = a_listener(harness.broker.asgi.app), await tokens_of(harness, api)
    line, stranger = Line(listener), Line(listener)
    for _ in range(2):
        await line.say(request(tokens["turn"]))
    known, before = [head for head, _ in listener.heads._heads.items()], line.at_once
    assert 1 == len(known)
    for token in [tokens["forged"], tokens["ended"], *(f"oabt.{number}" for number in range(200))]:
        if stranger.wire.ended:
            stranger = Line(listener)
        assert re.match(rb"HTTP/1.1 4(01|29) ", await stranger.say(request(token)))
    assert known == [head for head, _ in listener.heads._heads.items()]
    await line.say(request(tokens["turn"]))
    assert 1 == line.at_once - before
    await line.close()
    await stranger.close()


class FailingStream(io.StringIO):
    """A stream that takes nothing."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error, self.asked = error, 0

    def write(self, _: str) -> int:
        self.asked += 1
        raise self.error


@knows_heads
@pytest.mark.parametrize(
    "error", [BrokenPipeError(errno.EPIPE, "gone"), OSError(errno.ENOSPC, "full"), ValueError("closed file")]
)
async def test_a_log_that_takes_no_line_costs_no_answer(
    harness: Harness, line: Line, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    expected = REQUEST_ID.subn(b"", await line.say(line.data))
    warm, stream = harness.broker.asgi.app.state.warm_tokens, FailingStream(error)  # type: ignore[attr-defined]
    log = RequestLog(harness.clock, json_log(stream, harness.clock), harness.broker.metrics)
    monkeypatch.setattr(warm, "_log", log)
    line.at_once, traces = 0, Traces(harness)
    for _ in range(2):
        assert expected == REQUEST_ID.subn(b"", await line.say(line.data))
    _, audited, counts = traces.new()
    assert (2, 2, 2) == (line.at_once, stream.asked, len(audited))
    assert 2 == counts[Metric.HTTP_REQUESTS, ("/v1/tokens", "POST", "2xx")]


async def test_a_connection_for_probes_answers_nothing_at_once(line: Line) -> None:
    line.connection._slot = "probe"
    await line.say(line.data)
    assert 0 == line.at_once


async def test_a_refreshed_token_takes_the_place_of_the_one_before(harness: Harness, api: Callers, line: Line) -> None:
    token = line.data.partition(b"Bearer ")[2].partition(b"\r\n")[0].decode()
    old = json.loads((await line.say(line.data)).partition(b"\r\n\r\n")[2])["accessToken"]
    rejected = {"oauthAppRef": "mail", "accessToken": old}
    answer = await api.holding(token).post("/v1/tokens/rejected", rejected, allow=["access token"])
    new = answer.json()["accessToken"]
    assert new != old
    line.at_once = 0
    for _ in range(3):
        assert new == json.loads((await line.say(line.data)).partition(b"\r\n\r\n")[2])["accessToken"]
    assert confirms() == bool(line.at_once)


def holders_of(token: str) -> list[object]:
    """The objects of remembered answers that hold a token, or its answer as it is printed."""
    issuances = [each for each in gc.get_objects() if isinstance(each, Issuance)]
    texts = [each.text for each in issuances if each.text is not None and token in each.text.reveal()]
    return [*texts, *(each for each in issuances if token in each.ready.access_token.reveal())]


async def test_with_its_turn_a_remembered_answer_ends(harness: Harness, api: Callers) -> None:
    begun, line = await api.begin(), Line(harness.broker.asgi.app)
    for _ in range(3):
        answer = await line.say(request(begun["turnToken"]))
    assert confirms() == bool(line.at_once)
    token = json.loads(answer.partition(b"\r\n\r\n")[2])["accessToken"]
    assert holders_of(token) or not confirms()
    assert await harness.broker.turns.end(begun["turnId"])
    gc.collect()
    assert [] == holders_of(token)
    kept = [each for each in gc.get_objects() if isinstance(each, Bounded)]
    texts = [text for each in kept for _, value in each.items() if (text := getattr(value, "text", None))]
    assert not any(isinstance(text, Secret) and token in text.reveal() for text in texts)
    await line.close()


async def test_a_tool_that_asks_for_another_account_is_refused_as_by_the_general_way(
    harness: Harness, api: Callers
) -> None:
    token = (await tokens_of(harness, api))["Tool/mail"]
    assert confirms() == bool(await compared(harness, request(token)))
    body = ASK.replace(b"}", b',"switchAccount":true}')
    line = Line(harness.broker.asgi.app)
    for data in (request(token), request(token), request(token, body), request(token, body)):
        answer = await line.say(data)
    assert b'"notAllowed"' in answer
    await line.close()


async def test_a_call_that_the_general_way_answers_is_counted_once(harness: Harness, api: Callers, line: Line) -> None:
    limits = harness.broker.asgi.app.state.warm_tokens._limits  # type: ignore[attr-defined]
    (before,) = [bucket.left for _, bucket in limits._known._buckets.items() if bucket.left != int(PER_MINUTE / 6) - 1]
    assert await harness.broker.revoke("mail", subject=ALICE)
    await line.say(line.data)
    assert 0 == line.at_once
    assert before - 1 in [bucket.left for _, bucket in limits._known._buckets.items()]


async def end_elsewhere(harness: Harness, turn_id: str) -> None:
    parts = harness.parts
    records = harness.repository.records("turns", parts.turns.records._read)
    assert await Turns(records=records, config=parts.turns.config, clock=harness.clock, audit=harness.audit).end(
        turn_id
    )


async def end_here(harness: Harness, turn_id: str) -> None:
    assert await harness.broker.turns.end(turn_id)


async def let_it_expire(harness: Harness, _: str) -> None:
    harness.clock.advance(TURN_SECONDS)


async def set_the_clock_back(harness: Harness, _: str) -> None:
    harness.clock.set(harness.clock.now() - timedelta(days=400))


async def declare_less(harness: Harness, _: str) -> None:
    tools = {"Tool/both": (ToolAuth("team"),)}
    await harness.broker.reload(replace(harness.broker.bundle, tools=tools))


async def remove_the_app(harness: Harness, _: str) -> None:
    apps = {name: app for name, app in harness.broker.bundle.apps.items() if name != "mail"}
    await harness.broker.reload(replace(harness.broker.bundle, apps=apps))


async def disconnect(harness: Harness, _: str) -> None:
    await harness.broker.revoke("mail", subject=ALICE)


async def fill_the_audit(harness: Harness, _: str) -> None:
    def refuse(*_: Any) -> None:
        raise BrokerError(Code.STORE_UNAVAILABLE)

    harness.audit.write = refuse  # type: ignore[method-assign, assignment]


async def call_too_often(harness: Harness, turn_id: str) -> None:
    limits = harness.broker.asgi.app.state.warm_tokens._limits  # type: ignore[attr-defined]
    while limits.admits(turn_id):
        pass


@pytest.mark.case("79")
@pytest.mark.parametrize(
    ("end", "status", "code"),
    [
        (end_elsewhere, 401, "turnEnded"),
        (end_here, 401, "turnEnded"),
        (let_it_expire, 401, "turnEnded"),
        (set_the_clock_back, 401, "turnEnded"),
        (declare_less, 200, "appForbidden"),
        (remove_the_app, 200, "oauthAppNotFound"),
        (disconnect, 200, "authorization_required"),
        (fill_the_audit, 200, "storeUnavailable"),
        (call_too_often, 429, "rateLimited"),
    ],
)
async def test_what_ends_is_refused_on_the_next_request_of_an_open_connection(
    harness: Harness, api: Callers, end: Callable[[Harness, str], Awaitable[None]], status: int, code: str
) -> None:
    begun = await api.begin(ttlSeconds=TURN_SECONDS)
    data, line = request(begun["toolTokens"]["Tool/both"]), Line(harness.broker.asgi.app)
    for _ in range(4):
        assert (await line.say(data)).startswith(b"HTTP/1.1 200 OK\r\n")
    assert confirms() == (2 <= line.at_once), "the call is warm"
    harness.audit.lines.clear()
    await end(harness, begun["turnId"])
    answer = await line.say(data)
    assert f" {status} ".encode() in answer[:14]
    assert code.encode() in answer.partition(b"\r\n\r\n")[2]
    assert b'"ready"' not in answer
    await line.close()


async def test_each_answer_has_its_audit_entry_its_count_and_its_place_in_the_limit(
    harness: Harness, api: Callers
) -> None:
    begun = await api.begin()
    data, line = request(begun["turnToken"]), Line(harness.broker.asgi.app)
    for _ in range(2):
        await line.say(data)
    traces, before = Traces(harness), line.at_once
    for _ in range(20):
        await line.say(data)
    assert (20 if confirms() else 0) == line.at_once - before
    logged, audited, counts = traces.new()
    assert (20, 20) == (len(logged), len(audited))
    assert {20} == {counts[Metric.HTTP_REQUESTS, ("/v1/tokens", "POST", "2xx")], counts[Metric.TOKENS_READY, ("mail",)]}
    limits = harness.broker.asgi.app.state.warm_tokens._limits  # type: ignore[attr-defined]
    left = 0
    while limits.admits(begun["turnId"]):
        left += 1
    assert PER_MINUTE / 6 - 22 == left
    await line.close()


@knows_heads
@pytest.mark.case("83")
async def test_a_connection_whose_calls_are_answered_at_once_ends_when_it_is_idle(line: Line) -> None:
    connection = line.connection
    await line.say(line.data)
    connection.timeout_keep_alive_handler()  # its time began with an earlier call
    assert (1, False) == (line.at_once, line.wire.ended)
    connection._unset_keepalive_if_required()
    connection.timeout_keep_alive = 0.01  # type: ignore[assignment]
    await line.say(line.data)
    async with asyncio.timeout(SECONDS):
        while not line.wire.ended:
            await asyncio.sleep(0.01)
