"""`/v1/proxy`: a tool's request goes to a provider's API with a token that the tool never gets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any
from urllib.parse import unquote

import pytest

from oauthbroker.audit import AuditEntry, CallRefused, InjectedAnswer, TokenInjected, TokenIssued
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.web.api import proxied_body, proxy
from oauthbroker.web.gate.request_limits import STREAM_LIMIT
from tests.story.api.kit import Answer
from tests.story.api.proxy_kit import ALL, STATUS, Handler, Stage, stage
from tests.unit.protocol.kit import RawServer, raw_answer, says


@pytest.fixture
async def here(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Stage]:
    async with stage(identity_provider, test_clock, says(201, b'{"a": 1}', x_own="1", set_cookie="sid=1")) as made:
        yield made


async def test_a_tool_reaches_the_api_with_a_token_that_it_never_gets(here: Stage) -> None:
    answer = await here.send("POST", "a/b?c=d%20e", body=b'{"q": 1}', headers={"X-Tool": "7"})
    assert (201, {"a": 1}, "forwarded") == (answer.status, answer.json(), answer.headers[STATUS])
    assert ("1", "no-store", "nosniff") == tuple(
        answer.headers[name] for name in ("x-own", "cache-control", "x-content-type-options")
    )
    assert "set-cookie" not in answer.headers
    head, _, body = here.sent[0].partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert (b"POST /a/b?c=d%20e HTTP/1.1", b'{"q": 1}') == (lines[0], body)
    assert {b"Host: 127.0.0.1:%d" % here.api.port, b"x-tool: 7", b"Accept-Encoding: identity"} <= set(lines)
    assert [f"Authorization: Bearer {here.token}".encode()] == [
        line for line in lines if line.lower().startswith(b"authorization")
    ]
    assert here.tool.bearer is not None
    assert here.tool.bearer.encode() not in head


async def test_the_audit_log_names_the_request_before_it_is_sent_and_its_answer_after(here: Stage) -> None:
    issued = len(here.entries(TokenIssued))
    await here.send("POST", "secret-path?secret=query", body=b"12345")
    (before,), (after,) = here.entries(TokenInjected), here.entries(InjectedAnswer)
    host = f"127.0.0.1:{here.api.port}"
    assert ("mail", "Tool/carried", "POST", host) == (before.app, before.tool, before.method, before.host)
    assert ("mail", "Tool/carried", "POST", host, 201, 5, 8) == (
        after.app, after.tool, after.method, after.host, after.status, after.sent, after.received,
    )  # fmt: skip
    assert (before.grant, before.turn, before.instance) == (after.grant, after.turn, after.instance)
    assert "secret" not in f"{before}{after}{here.harness.log.getvalue()}"
    assert issued == len(here.entries(TokenIssued))


def refuse(here: Stage, kind: type[AuditEntry], patch: pytest.MonkeyPatch) -> None:
    """The audit log takes no entry of that kind from now on."""
    write = here.harness.audit.write

    def refusing(entry: AuditEntry, at: datetime) -> None:
        if isinstance(entry, kind):
            raise BrokerError(Code.STORE_UNAVAILABLE)
        write(entry, at)

    patch.setattr(here.harness.audit, "write", refusing)


async def test_without_an_audit_entry_nothing_is_sent(here: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(here, TokenInjected, monkeypatch)
    answer = await here.send()
    assert (503, "storeUnavailable", "error") == (answer.status, answer.code, answer.headers[STATUS])
    assert [] == here.sent


async def test_an_answer_that_the_audit_log_does_not_take_has_no_end(
    here: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(here, InjectedAnswer, monkeypatch)
    answer = await here.send()
    assert (201, "forwarded") == (answer.status, answer.headers[STATUS])
    assert '"code": "storeUnavailable"' in here.harness.log.getvalue()


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_a_request_without_a_body_has_none_on_its_way(here: Stage, method: str) -> None:
    answer = await here.send(method)
    assert 201 == answer.status
    assert b"content-length" not in here.sent[0].lower()
    assert b"transfer-encoding" not in here.sent[0].lower()


# --- refusals


@pytest.mark.parametrize("seconds", ["0", "0.0", "-1", "301", "300.001", "abc", "1e1", ""])
async def test_a_timeout_beyond_its_bounds_is_refused_with_its_place(here: Stage, seconds: str) -> None:
    answer = await here.send(headers={"OAuthBroker-Timeout": seconds})
    assert (400, "requestInvalid", "error") == (answer.status, answer.code, answer.headers[STATUS])
    assert [{"pointer": "/OAuthBroker-Timeout", "problem": "value"}] == answer.json()["errors"]
    assert [] == here.sent


@pytest.mark.parametrize("seconds", ["20.5", "300", "300.000"])
async def test_a_timeout_within_its_bounds_is_kept(here: Stage, seconds: str) -> None:
    assert "forwarded" == (await here.send(headers={"OAuthBroker-Timeout": seconds})).headers[STATUS]


async def test_a_header_of_ours_that_comes_twice_is_named(here: Stage) -> None:
    answer = await here.send(headers=[("OAuthBroker-Scopes", "read"), ("OAuthBroker-Scopes", "write")])
    assert (400, "/oauthbroker-scopes") == (answer.status, answer.json()["errors"][0]["pointer"])


async def test_an_address_without_a_path_is_the_root_of_its_host(here: Stage) -> None:
    answer = await here.tool.get(here.path().rstrip("/"))
    assert (201, "forwarded") == (answer.status, answer.headers[STATUS])
    assert here.sent[0].startswith(b"GET / ")


@pytest.mark.parametrize("path", ["/v1/proxy/mail", "/v1/proxy/mail/", "/v1/proxy/"])
async def test_an_address_without_a_host_says_who_answers(here: Stage, path: str) -> None:
    answer = await here.tool.get(path)
    assert (400, "requestInvalid", "error") == (answer.status, answer.code, answer.headers[STATUS])


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_a_refusal_has_its_code_in_a_header_and_a_link_is_in_no_header(
    identity_provider: IdentityProvider, test_clock: TestClock, method: str
) -> None:
    async with stage(identity_provider, test_clock, says(200), connected=False) as here:
        refused = await here.tool.send(method, here.path(host="other.example"))
        assert (403, "apiHostForbidden") == (refused.status, refused.headers["oauthbroker-code"])
        asked = await here.tool.send(method, here.path(), allow=["ticket"])
        pending = (await here.tool.get("/v1/turn/pending", allow=["ticket"])).json()["items"]
    assert (403, "noGrant") == (asked.status, asked.headers["oauthbroker-reason"])
    assert [asked.headers["oauthbroker-session"]] == [each["authSessionId"] for each in pending]
    assert pending[0]["authorizationUrl"] not in str(asked.headers)


@pytest.mark.case("102")
@pytest.mark.parametrize(
    "host",
    ["other.example", "127.0.0.1", "127.0.0.1:1", "127.0.0.1:{port}.", "127.0.0.1:{port}@evil.example", "127.1:{port}",
     "user@127.0.0.1:{port}", "user:pw@127.0.0.1:{port}", "localhost:{port}", "%5B::1%5D:{port}", "127.0.0.1:0{port}",
     "127.0.0.1%00:{port}", "evil.example%2F127.0.0.1:{port}", "evil.example#127.0.0.1:{port}", "2130706433:{port}",
     "127.0.0.1:{port}%2F..", "127。0。0。1:{port}", "127.0.0.1%0d%0a:{port}", "0x7f.0.0.1:{port}", "127.0.0.1:{port}%20"],
)  # fmt: skip
async def test_another_host_is_refused_and_nothing_is_sent(here: Stage, host: str) -> None:
    answer = await here.tool.get(here.path("x", host=host.format(port=here.api.port)))
    assert (answer.status, answer.code) in {(403, "apiHostForbidden"), (400, "requestInvalid")}
    assert "error" == answer.headers[STATUS] or 400 == answer.status
    assert ([], []) == (here.sent, here.entries(TokenInjected))


async def test_bad_requests_have_one_clear_error_each(here: Stage) -> None:
    refusals = {
        "apiNotDeclared": await (await here.callers.turn(tools=ALL)).get(here.path(app="bare")),
        "apiHostForbidden": await here.tool.get(here.path(host="other.example")),
        "apiMethodForbidden": await here.send("DELETE"),
        "appForbidden": await (await here.callers.tool("Tool/none", tools=ALL)).get(here.path()),
        "oauthAppNotFound": await here.tool.get(here.path(app="missing")),
        "scopeNotAllowed": await here.send(headers={"OAuthBroker-Scopes": "read write"}),
        "unauthenticated": await here.callers.stranger.get(here.path()),
        "notAllowed": await here.callers.operator.get(here.path()),
        "methodNotAllowed": await here.send("TRACE"),
    }
    assert list(refusals) == [answer.code for answer in refusals.values()]
    assert "is not sent to other.example. Its spec.api.hosts are: " in refusals["apiHostForbidden"].json()["detail"]
    assert "Allowed are: read." in refusals["scopeNotAllowed"].json()["detail"]
    marks = {answer.headers.get(STATUS) for code, answer in refusals.items() if code != "methodNotAllowed"}
    assert ({"error"}, []) == (marks, here.sent)
    noted = {entry.code for entry in here.entries(CallRefused)}
    assert {"apiHostForbidden", "apiMethodForbidden", "appForbidden", "scopeNotAllowed", "notAllowed"} <= noted


@pytest.mark.case("105")
@pytest.mark.parametrize(
    "rest",
    [
        "../x",
        "a/../x",
        "a/..",
        "./x",
        "%2e%2e/x",
        "a/%2E%2E%2fx",
        "..%5cx",
        "a\\..\\x",
        "a/..;/x",
        "a/..;v=1",
        ".;/x",
        "a/%2e%2e%3b/x",
        "a/%c0%ae%c0%ae/x",
        "a/%ef%bc%8e%ef%bc%8e/x",
        "a/..%20/x",
        "%ZZ",
        "a%2",
    ],
)
async def test_a_path_that_servers_resolve_in_their_own_ways_is_refused(here: Stage, rest: str) -> None:
    answer = await raw(here, here.path() + rest)
    assert (400, "requestInvalid", []) == (answer.status, answer.code, here.sent)


async def test_a_path_is_passed_on_byte_for_byte(here: Stage) -> None:
    assert 201 == (await raw(here, here.path() + "a%2Fb//c%7e;d=%E2%82%AC/.x/...")).status
    assert here.sent[0].startswith(b"GET /a%2Fb//c%7e;d=%E2%82%AC/.x/... HTTP/1.1\r\n")


async def test_half_a_character_in_a_path_that_the_server_gives_decoded_alone_is_no_fault(here: Stage) -> None:
    answer = await raw(here, here.path() + "\ud800", whole=False)
    assert (201, []) == (answer.status, [line for line in here.harness.log.getvalue().splitlines() if "fault" in line])
    assert here.sent[0].startswith(b"GET /? HTTP/1.1") or here.sent[0].startswith(b"GET /%3F HTTP/1.1")


async def raw(here: Stage, path: str, *, whole: bool = True) -> Answer:
    """A request whose path is sent as it stands, and decoded by the server as uvicorn does. `whole`: the server gives
    it undecoded, too."""
    messages, left = list[Any](), [{"type": "http.request", "body": b"", "more_body": False}]
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
        "path": unquote(path), "raw_path": path.encode() if whole else None, "query_string": b"", "root_path": "", "extensions": {},
        "headers": [(b"host", b"127.0.0.1:8420"), (b"authorization", f"Bearer {here.tool.bearer}".encode())],
        "client": ("127.0.0.1", 40000), "server": ("127.0.0.1", 8420), "state": {},
    }  # fmt: skip

    async def receive() -> Any:
        return left.pop() if left else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        messages.append(message)

    await asyncio.wait_for(here.harness.broker.asgi.app(scope, receive, send), 30)
    headers = {name.decode().lower(): value.decode() for name, value in messages[0]["headers"]}
    return Answer(messages[0]["status"], headers, b"".join(each.get("body", b"") for each in messages[1:]))


@pytest.mark.case("106")
async def test_an_address_within_is_refused_also_where_the_app_lists_it(here: Stage) -> None:
    answer = await here.tool.get(here.path(host="10.1.2.3"))
    assert (500, "appMisconfigured") == (answer.status, answer.code)


@pytest.mark.case("107")
async def test_an_upgrade_to_websocket_is_refused(here: Stage) -> None:
    answer = await here.send(headers={"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Key": "a"})
    assert (400, "requestInvalid", []) == (answer.status, answer.code, here.sent)


@pytest.mark.case("104")
@pytest.mark.parametrize(
    "name", ["X-HTTP-Method-Override", "x-http-method", "X-Method-Override", "X_HTTP_Method_Override"]
)
async def test_a_header_that_overrides_the_method_is_refused(here: Stage, name: str) -> None:
    answer = await here.send(headers={name: "DELETE"})
    assert (400, "requestInvalid", []) == (answer.status, answer.code, here.sent)


@pytest.mark.case("104")
async def test_no_credential_of_the_tool_and_no_header_of_ours_reaches_the_provider(here: Stage) -> None:
    await here.send(
        headers={
            "Cookie": "__Host-session=1", "Proxy-Authorization": "Basic eA==", "X-Forwarded-For": "1.2.3.4",
            "OAuthBroker-Scopes": "read", "Connection": "X-Mine", "X-Mine": "1", "X_Mine": "1", "X_Forwarded_For": "1.2.3.4",
            "True-Client-IP": "1.2.3.4", "CF_Connecting_IP": "1.2.3.4", "X-Override-URL": "/admin", "X_Original_Url": "/admin",
        }
    )  # fmt: skip
    names = {line.partition(b":")[0].lower() for line in here.sent[0].split(b"\r\n")[1:] if line}
    assert {b"host", b"user-agent", b"accept-encoding", b"authorization"} == names


@pytest.mark.case("110")
async def test_the_token_in_the_name_of_a_header_does_not_come_back(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    found: list[Stage] = []

    async def echo(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-" + found[0].token.encode() + b": 1\r\n\r\n")
        await writer.drain()

    async with stage(identity_provider, test_clock, echo) as opened:
        found.append(opened)
        answer = await opened.send("GET", "x")
        assert opened.token.lower() not in str(dict(answer.headers)).lower()
        assert f"x-{'*' * len(opened.token)}" in answer.headers


# --- consent, and tokens that the provider refuses


async def test_a_missing_grant_is_an_answer_that_any_tool_understands(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    async with stage(identity_provider, test_clock, says(200), connected=False) as here:
        answer = await here.tool.send("GET", here.path(), allow=["ticket"])
    assert (403, "authorization_required") == (answer.status, answer.headers[STATUS])
    said = answer.json()
    assert ("authorization_required", "noGrant") == (said["status"], said["reason"])
    assert said["authorizationUrl"].startswith("http")
    assert [] == here.sent


def refusing_first(times: int = 1) -> Handler:
    """An API that refuses the first tokens."""
    left = [times]

    async def handle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left[0] -= 1
        writer.write(raw_answer(401 if left[0] >= 0 else 200, b'{"left": true}', www_authenticate="Basic realm=x"))
        await writer.drain()

    return handle


async def test_a_refused_token_is_refreshed_and_the_request_is_sent_once_more(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    async with stage(identity_provider, test_clock, refusing_first()) as here:
        answer = await here.send("POST", "x", body=b"again")
        assert (200, "forwarded") == (answer.status, answer.headers[STATUS])
        first, second = here.sent
        assert first.endswith(b"\r\n\r\nagain")
        assert second.endswith(b"\r\n\r\nagain")
        assert here.token.encode() in first
        assert here.token.encode() not in second
        assert [401, 200] == [entry.status for entry in here.entries(InjectedAnswer)]
        assert 2 == len(here.entries(TokenInjected))


async def test_a_second_refusal_is_passed_on(identity_provider: IdentityProvider, test_clock: TestClock) -> None:
    async with stage(identity_provider, test_clock, refusing_first(9)) as here:
        answer = await here.send()
        assert (401, "forwarded", 2) == (answer.status, answer.headers[STATUS], len(here.sent))
        assert "www-authenticate" not in answer.headers


async def test_a_long_body_is_not_kept_so_the_refusal_is_passed_on_and_the_token_is_refreshed(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    async with stage(identity_provider, test_clock, refusing_first()) as here:
        long = b"x" * (proxied_body.KEPT_BODY + 1)
        answer = await here.send("POST", body=long, headers={"Content-Length": str(len(long))})
        assert (401, 1) == (answer.status, len(here.sent))
        assert 200 == (await here.send("POST", body=b"short")).status
        assert here.token.encode() not in here.sent[1]


# --- streams


@pytest.mark.case("103")
async def test_a_redirect_is_passed_on_and_never_followed(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    handler = says(302, location="http://127.0.0.1:1/elsewhere")
    async with stage(identity_provider, test_clock, handler) as here:
        answer = await here.send()
        assert (302, "http://127.0.0.1:1/elsewhere") == (answer.status, answer.headers["location"])
        assert 1 == len(here.sent)


@pytest.mark.case("110")
async def test_a_provider_that_echoes_gives_the_token_away_in_no_header_and_no_piece(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    seen = list[RawServer]()

    async def echo(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said = seen[0].requests[-1]
        token = said.lower().partition(b"authorization: bearer ")
        at = len(token[0]) + len(token[1])
        text = said[at : said.index(b"\r\n", at)]
        length = 2 * len(said)
        writer.write(b"HTTP/1.1 200 OK\r\nX-Echo: " + text + b"\r\nLocation: https://a/?t=" + text)
        writer.write(b"\r\nContent-Length: %d\r\n\r\n" % length + said + said[: at + 5])
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.write(said[at + 5 :])
        await writer.drain()

    async with stage(identity_provider, test_clock, echo) as here:
        seen.append(here.api)
        answer = await here.send()  # `send` sweeps the answer for the token, too
        assert 200 == answer.status
        assert here.token.encode() not in answer.body + repr(answer.headers).encode()
        assert 2 == answer.body.count(b"*" * len(here.token))


@pytest.mark.case("110")
async def test_the_token_of_a_first_try_is_masked_in_the_second_answer_and_in_later_ones(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    seen = list[RawServer]()

    async def tells_the_first(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = seen[0].requests[0]
        first = head[head.lower().index(b"authorization: bearer ") + 22 :].partition(b"\r\n")[0]
        status = 401 if len(seen[0].requests) == 1 else 200
        writer.write(raw_answer(status, b"not valid: " + first, x_old=first.decode()))
        await writer.drain()

    async with stage(identity_provider, test_clock, tells_the_first) as here:
        seen.append(here.api)
        for requests in (2, 3):
            answer = await here.send()
            assert (200, requests) == (answer.status, len(here.sent))
            assert b"not valid: " + b"*" * len(here.token) == answer.body
            assert "*" * len(here.token) == answer.headers["x-old"]


@pytest.mark.case("110")
async def test_an_answer_in_an_encoding_that_hides_the_token_is_refused(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    async with stage(identity_provider, test_clock, says(200, b"...", content_encoding="gzip")) as here:
        answer = await here.send()
        assert (503, "providerUnreachable", "error") == (answer.status, answer.code, answer.headers[STATUS])


async def test_an_answer_reaches_the_tool_while_it_is_made(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    more = asyncio.Event()

    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
        await more.wait()
        writer.write(b"data: 2\n\n")
        await writer.drain()

    async with stage(identity_provider, test_clock, drip) as here, here.tool.open("GET", here.path()) as stream:
        assert b"data: 1\n\n" == await asyncio.wait_for(stream.parts.get(), 30)
        more.set()
        assert b"data: 2\n\n" == await asyncio.wait_for(stream.parts.get(), 30)


async def test_a_tool_that_leaves_ends_the_request_to_the_provider(
    identity_provider: IdentityProvider, test_clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxied_body, "LEAVING_SECONDS", 0.01)
    closed = asyncio.Event()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab")
        assert b"" == await reader.read()
        closed.set()

    async with stage(identity_provider, test_clock, wait) as here:
        async with here.tool.open("GET", here.path()) as stream:
            await asyncio.wait_for(stream.started.wait(), 30)
        await asyncio.wait_for(closed.wait(), 30)
        assert [(200, 2)] == [(entry.status, entry.received) for entry in here.entries(InjectedAnswer)]


async def test_an_ended_turn_ends_its_streams(
    identity_provider: IdentityProvider, test_clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy, "STILL_SECONDS", -1.0)
    more = asyncio.Event()

    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab")
        await more.wait()
        writer.write(b"cd")
        await writer.drain()

    async with stage(identity_provider, test_clock, drip) as here:
        begun = await here.callers.begin(tools=ALL)
        tool = here.callers.holding(begun["toolTokens"]["Tool/carried"])
        async with tool.open("GET", here.path()) as stream:
            assert b"ab" == await asyncio.wait_for(stream.parts.get(), 30)
            assert 204 == (await here.callers.runtime.delete(f"/v1/turns/{begun['turnId']}")).status
            more.set()
            assert stream.task is not None
            await asyncio.wait_for(asyncio.shield(stream.task), 30)
            assert stream.parts.empty()


@pytest.mark.case("108")
async def test_a_body_without_end_is_cut_off(
    identity_provider: IdentityProvider, test_clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oauthbroker.web.gate.request_limits.STREAM_LIMIT", 300_000)

    async def take(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        while await reader.read(65536):
            pass

    async with stage(identity_provider, test_clock, take) as here:
        answer = await here.send("POST", body=[b"x" * 50_000] * 20, headers={"Transfer-Encoding": "chunked"})
        assert (413, "requestTooLarge") == (answer.status, answer.code)
        assert not here.sent[0].endswith(b"0\r\n\r\n")


@pytest.mark.case("108")
async def test_a_body_that_announces_too_much_is_refused_unread(here: Stage) -> None:
    answer = await here.send("POST", headers={"Content-Length": str(STREAM_LIMIT + 1)})
    assert (413, []) == (answer.status, here.sent)


@pytest.mark.case("108")
async def test_an_endless_answer_is_cut_off_without_its_end(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    async def flood(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"1\r\nx\r\n" * 1000)
            await writer.drain()

    async with stage(identity_provider, test_clock, flood) as here:
        answer = await here.send()
        assert (200, True) == (answer.status, len(answer.body) < 100_000)
        assert '"code": "providerUnreachable"' in here.harness.log.getvalue()


@pytest.mark.case("109")
async def test_a_body_that_stalls_is_given_up(here: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxied_body, "STALL_SECONDS", 0.05)

    async def never() -> bytes:
        await asyncio.sleep(60)
        return b""

    answer = await here.send("POST", body=[b"x", never], headers={"Content-Length": "9"})
    assert (408, "requestTimeout", []) == (answer.status, answer.code, here.sent)


@pytest.mark.case("108")
async def test_a_turn_has_a_bounded_number_of_requests_at_once(
    identity_provider: IdentityProvider, test_clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy, "MOST_AT_ONCE", 1)

    async def wait(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with stage(identity_provider, test_clock, wait) as here:
        monkeypatch.setattr(proxied_body, "LEAVING_SECONDS", 0.01)
        async with here.tool.open("GET", here.path()):
            while not here.sent:
                await asyncio.sleep(0.01)
            busy = await here.send()
            assert (429, "rateLimited") == (busy.status, busy.code)


async def test_no_body_comes_with_an_answer_that_has_none(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    async with stage(identity_provider, test_clock, says(304, b"", content_length="7", etag='"1"')) as here:
        answer = await here.send()
        assert (304, b"", '"1"') == (answer.status, answer.body, answer.headers["etag"])
        assert "content-length" not in answer.headers
