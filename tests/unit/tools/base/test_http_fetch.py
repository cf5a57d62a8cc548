"""`http-fetch__get` and `http-fetch__post`: bounded answers from public hosts only."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from oauthbroker import Code, Failed
from oauthbroker.client import ApiAnswer
from oauthbroker.tools.base.http_fetch import MOST_BYTES, HttpFetch, handlers
from oauthbroker.tools.calling.context import ToolContext
from oauthbroker.tools.types.failures import ToolFailure
from tests.unit.protocol.kit import RawServer, says
from tests.unit.tools.contexts import context
from tests.unit.tools.kit import performed

LOCAL = HttpFetch(allow_plain_http_loopback=True)


@pytest.mark.rule("002-14-3")
async def test_a_page_is_fetched_with_status_type_and_text():
    async with RawServer(says(404, "한글".encode(), content_type="text/plain; charset=utf-8")) as server:
        found = await LOCAL.get(
            context(), {"url": f"http://127.0.0.1:{server.port}/a?b=c#d", "headers": {"X-One": "1"}}
        )
    assert {"status": 404, "contentType": "text/plain; charset=utf-8", "truncated": False, "body": "한글"} == found
    (head,) = server.requests
    assert head.startswith(b"GET /a?b=c HTTP/1.1\r\n")
    assert b"x-one: 1" in head.lower()


@pytest.mark.rule("002-14-3")
async def test_a_body_is_posted_as_json():
    async with RawServer(says(201, b"{}", content_type="application/json")) as server:
        found = await LOCAL.post(context(), {"url": f"http://127.0.0.1:{server.port}/", "body": {"a": [1, "한"]}})
    assert 201 == found["status"]
    assert b"content-type: application/json" in server.requests[0].lower()
    assert server.requests[0].startswith(b"POST / ")
    assert b"content-length: %d" % len(json.dumps({"a": [1, "한"]})) in server.requests[0].lower()


@pytest.mark.rule("002-14-3")
@pytest.mark.parametrize("name", ["Content-Type", "content-type", "CONTENT-TYPE"])
async def test_a_content_type_of_the_call_is_the_only_one(name):
    async with RawServer(says(200, b"")) as server:
        given = {"url": f"http://127.0.0.1:{server.port}/", "headers": {name: "application/vnd.api+json"}}
        await LOCAL.post(context(), given)
    assert server.requests[0].lower().count(b"content-type: ") == 1
    assert b"application/vnd.api+json" in server.requests[0]


@pytest.mark.rule("002-14-3")
async def test_without_a_body_an_empty_object_is_posted():
    async with RawServer(says(200, b"")) as server:
        await LOCAL.post(context(), {"url": f"http://127.0.0.1:{server.port}/"})
    assert server.requests[0].endswith(b"\r\n\r\n{}")


@pytest.mark.rule("002-14-3", "002-10.2-1")
@pytest.mark.parametrize("byte", [b"\0", b"\xff", b"x"])
async def test_an_answer_of_any_bytes_is_an_output_of_the_call(byte):
    async with RawServer(says(200, byte * (MOST_BYTES + 1))) as server:

        async def handler(_ctx: object, _args: object) -> object:
            return await LOCAL.get(context(), {"url": f"http://127.0.0.1:{server.port}/"})

        result = await performed(handler)
    assert ("ok", 200, True) == (result.status, result.output["status"], result.output["truncated"])
    assert len(result.output["body"]) > MOST_BYTES // 3


async def test_a_long_answer_is_cut():
    async with RawServer(says(200, b"x" * (MOST_BYTES + 1))) as server:
        found = await LOCAL.get(context(), {"url": f"http://127.0.0.1:{server.port}/"})
    assert ("x" * MOST_BYTES, True) == (found["body"], found["truncated"])


async def test_a_redirect_is_reported_and_not_followed():
    async with RawServer(says(302, b"", location="http://169.254.169.254/")) as server:
        found = await LOCAL.get(context(), {"url": f"http://127.0.0.1:{server.port}/"})
    assert ((302, "http://169.254.169.254/"), 1) == ((found["status"], found["location"]), len(server.requests))


async def test_credentials_in_headers_are_left_out():
    headers = {"Authorization": "Bearer x", "Cookie": "a=b", "Host": "other.example"}
    async with RawServer(says(200, b"")) as server:
        await LOCAL.get(context(), {"url": f"http://127.0.0.1:{server.port}/", "headers": headers})
    lower = server.requests[0].lower()
    assert (False, False, False) == tuple(word in lower for word in (b"authorization", b"cookie", b"other.example"))


REFUSED = [
    "http://127.0.0.1:{port}/",
    "http://example.com/",
    "file:///etc/passwd",
    "ftp://example.com/",
    "https://user:pass@example.com/",
    "https:///nothing",
    "https://exa mple.com/",
    "https://example.com:0/",
    "",
]
NOT_PUBLIC = [
    "https://127.0.0.1:{port}/",
    "https://localhost:{port}/",
    "https://[::1]:{port}/",
    "https://10.1.2.3/",
    "https://169.254.169.254/latest/meta-data",
    "https://2130706433:{port}/",
    "https://0.0.0.0:{port}/",
]


@pytest.mark.parametrize("url", [*REFUSED, *NOT_PUBLIC])
async def test_a_url_that_is_not_https_or_not_public_is_refused_and_nothing_is_sent(url):
    async with RawServer(says(200, b"inside")) as server:
        with pytest.raises(ToolFailure) as failed:
            await handlers["get"](context(), {"url": url.format(port=server.port)})
    assert ("RequestRefusedError", []) == (failed.value.error.name, server.requests)
    assert "an https URL of a public host" in failed.value.error.message


@pytest.mark.parametrize(
    "headers",
    [
        {"X": "a\r\nY: b"},
        {"X\r\nY": "b"},
        {"": "b"},
        {"X Y": "b"},
        {"X:": "b"},
        {"X": "\0"},
        {"X": " a"},
        {"X": "a\t"},
        {"X": "\n"},
        {"한": "b"},
        {"X": "한"},
        {"Upgrade": "websocket"},
        {"X-HTTP-Method-Override": "PUT"},
    ],
)
async def test_a_header_that_is_none_sends_nothing(headers):
    async with RawServer(says(200, b"")) as server:
        with pytest.raises(ToolFailure, match="plain headers"):
            await LOCAL.get(context(), {"url": f"http://127.0.0.1:{server.port}/", "headers": headers})
    assert [] == server.requests


@pytest.mark.rule("002-14-3")
@pytest.mark.parametrize("value", [5, None, True, ["a"], {}])
@pytest.mark.parametrize("call", [LOCAL.get, LOCAL.post])
async def test_a_header_that_is_no_text_is_refused(call, value):
    """The printed schema of `headers` allows any value."""
    with pytest.raises(ToolFailure, match="plain headers"):
        await call(context(), {"url": "https://example.com/", "headers": {"X": value}})


class OtherProcess:
    """`ctx.oauth` of an agent's process: a client of the broker, which sends the request."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.calls = answer, list[Any]()

    async def fetch(self, *arguments: Any, **options: Any) -> Any:
        self.calls.append((arguments, options))
        return self.answer


@pytest.mark.parametrize("size", [10, MOST_BYTES + 1])
async def test_in_an_agents_process_the_broker_sends_the_request_with_the_token(size):
    oauth = OtherProcess(ApiAnswer(200, {"content-type": "text/plain"}, b"x" * size))
    ctx = SimpleNamespace(oauth=oauth)
    found = await handlers["post"](cast("ToolContext", ctx), {"url": "https://api.example/", "app": "mail", "body": {}})
    cut = size > MOST_BYTES
    assert (200, "text/plain", cut, min(size, MOST_BYTES)) == (
        *(found[it] for it in ("status", "contentType", "truncated")),
        len(found["body"]),
    )
    headers = {"Content-Type": "application/json"}
    assert [(("mail", "POST", "https://api.example/"), {"headers": headers, "content": b"{}"})] == oauth.calls


async def test_in_an_agents_process_a_refusal_is_returned_as_it_came():
    failed = Failed(code=Code.API_HOST_FORBIDDEN, message="no", retryable=False)
    ctx = cast("ToolContext", SimpleNamespace(oauth=OtherProcess(failed)))
    assert failed is await handlers["get"](ctx, {"url": "https://api.example/", "app": "mail"})


async def test_an_app_without_a_capability_is_refused():
    with pytest.raises(ToolFailure, match="no app"):
        await handlers["get"](context(), {"url": "https://api.example.com/", "app": "OAuthApp/mail"})
