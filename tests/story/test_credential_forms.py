"""Each form of `inject`, from its YAML to the request at an API: by the clients and by the proxy."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import logging
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.core.errors import Code
from oauthbroker.model.apps import App
from oauthbroker.model.bundle import ToolAuth
from oauthbroker.model.token_results import Failed
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.running_broker import Harness, running, turn
from tests.story.api.kit import Callers
from tests.story.keys_kit import KeyApi, Seen, asked_for, key_api, sent, type_key
from tests.unit.config.bundles import BROKER, HEAD, edited, loaded_with_values, write

KEY, SECRET = "key/of:alice+0001", "secret-of-alice-01"
FORMS: dict[str, tuple[str, Callable[[Seen], object], object]] = {
    "headers": (
        '{headers: {X-Api-Key: "{a}", X-App: "Token {b}", anthropic-version: "2023-06-01"}}',
        lambda it: [it.headers[name] for name in ("x-api-key", "x-app", "anthropic-version")],
        [KEY, f"Token {SECRET}", "2023-06-01"],
    ),
    "bearer": ('{bearer: "{a}:{b}"}', lambda it: it.headers["authorization"], f"Bearer {KEY}:{SECRET}"),
    "bearer-and-headers": (
        '{bearer: "{a}", headers: {X-App: "{b}"}}',
        lambda it: (it.headers["authorization"], it.headers["x-app"]),
        (f"Bearer {KEY}", SECRET),
    ),
    "basic": (
        '{basic: {username: "{b}", password: "{a}"}}',
        lambda it: base64.b64decode(it.headers["authorization"].removeprefix("Basic ")).decode(),
        f"{SECRET}:{KEY}",
    ),
    "basic-empty": (
        '{basic: {username: "{b}"}, headers: {X-Customer: "{a}"}}',
        lambda it: base64.b64decode(it.headers["authorization"].removeprefix("Basic ")).decode(),
        f"{SECRET}:",
    ),
    "basic-constant": (
        '{basic: {username: "{b}", password: x}, headers: {X-Customer: "{a}"}}',
        lambda it: (base64.b64decode(it.headers["authorization"].removeprefix("Basic ")), it.headers["x-customer"]),
        (f"{SECRET}:x".encode(), KEY),
    ),
    "query": (
        '{query: {api_key: "{a}", token: "{b}"}}',
        lambda it: (it.query.get("api_key"), it.query.get("token"), it.query.get("q")),
        ([KEY], [SECRET], ["a b"]),
    ),
    "path": ('{path: "/bot{a}/{b}"}', lambda it: it.path, f"/bot{KEY}/{SECRET}/data"),
    "aws": (
        '{awsSigV4: {accessKeyId: "{a}", secretAccessKey: "{b}", service: execute-api, region: "{region}"}}',
        lambda it: re.sub("/20[0-9]{6}/", "/DAY/", it.headers["authorization"].partition(",")[0]),
        f"AWS4-HMAC-SHA256 Credential={KEY}/DAY/eu-west-1/execute-api/aws4_request",
    ),
    "oauth": (
        '{oauth1: {consumerKey: "{a}", consumerSecret: "{b}", token: "{a}", tokenSecret: "{b}", realm: R_1}}',
        lambda it: it.headers["authorization"].partition(", oauth_nonce")[0],
        'OAuth realm="R_1", oauth_consumer_key="key%2Fof%3Aalice%2B0001"',
    ),
}


@pytest.fixture
async def api() -> AsyncIterator[KeyApi]:
    async with key_api() as api:
        spellings = [KEY, "key%2Fof%3Aalice%2B0001", SECRET, *_basics()]
        api.keys = dict.fromkeys(spellings, "U234567")
        yield api


def _basics() -> list[str]:
    return [base64.b64encode(text.encode()).decode() for text in (f"{SECRET}:{KEY}", f"{KEY}{SECRET}:", f"{SECRET}:x")]


def apps_of(api: KeyApi, folder: Path, more: str = "") -> list[App]:
    """The app of each form, as its YAML loads."""
    text = edited(BROKER, ("https://broker.example", "http://127.0.0.1:8420")) + "  weaken: [plainHttpProvider]\n"
    for name, (inject, _, _) in FORMS.items():
        text += f"---\n{HEAD}kind: CredentialApp\nmetadata: {{name: {name}}}\nspec:\n  subjectMode: user\n"
        text += "  fields: {a: {title: A}, b: {title: B}}\n"
        text += "  connectParams: {region: {title: Region}}\n" if "{region}" in inject else ""
        text += f"  inject: {inject}\n  verify: {{path: /me, account: 'idp:user:{{id}}'}}\n"
        text += f"  api: {{hosts: ['http://127.0.0.1:{api.port}']{more}}}\n"
    _, bundle = loaded_with_values(write(folder, forms=text))
    return list(bundle.apps.values())


@pytest.fixture
async def harness(api: KeyApi, test_clock: TestClock, tmp_path: Path) -> AsyncIterator[Harness]:
    tools = {"Tool/carried": tuple(ToolAuth(name, (), injected=True) for name in FORMS)}
    apps = apps_of(api, tmp_path)
    async with IdentityProvider(clock=test_clock) as idp, running(idp, apps, clock=test_clock, tools=tools) as harness:
        for name in FORMS:
            asked = await asked_for(harness, api, app=name)
            typed = {"credential.a": KEY, "credential.b": SECRET}
            region = {"param.region": "eu-west-1"} if name == "aws" else {}
            page = await type_key(harness, asked, "", None, **typed, **region)
            assert "is connected" in page.text, (name, page.text)
        api.seen.clear()
        yield harness


async def test_each_form_reaches_the_api_by_each_way(harness: Harness, api: KeyApi) -> None:
    callers = await Callers.of(harness)
    tool = await callers.tool("Tool/carried", tools={"Tool/carried": None})
    for name, (_, read, expected) in FORMS.items():
        answer = await sent(harness, api, "/data?q=a%20b", app=name, method="POST", json={"a": 1})
        assert (200, expected) == (answer.status_code, read(api.seen[-1])), name

        def waits(name: str = name) -> int:
            with harness.broker.oauth(turn()).sync.client(name) as client:
                return int(client.get(api.url("/data?q=a%20b")).status_code)

        assert 200 == await asyncio.to_thread(waits), name
        assert expected == read(api.seen[-1]), name
        proxied = await tool.send("POST", f"/v1/proxy/{name}/127.0.0.1:{api.port}/data?q=a%20b", body=b'{"b": 2}')
        assert (200, "forwarded") == (proxied.status, proxied.headers["oauthbroker-status"]), (name, proxied)
        assert (expected, b'{"b": 2}') == (read(api.seen[-1]), api.seen[-1].body), name


async def test_a_signature_is_made_anew_for_the_second_try(harness: Harness, api: KeyApi) -> None:
    """The API refuses the first request to a path, and the credential passes its check again."""
    assert 401 == (await sent(harness, api, "/locked", app="oauth")).status_code
    tries = [it.headers["authorization"] for it in api.seen if it.path == "/locked"]
    assert len(tries) == len(set(tries)), "a nonce is used once"


@pytest.mark.case("156")
async def test_nothing_of_a_value_is_said_anywhere(
    harness: Harness, api: KeyApi, caplog: pytest.LogCaptureFixture
) -> None:
    """At DEBUG, with the loggers of all libraries; every form is repeated by the API, and every request fails once."""
    caplog.set_level(logging.DEBUG)
    said = [harness.log.getvalue()]
    for name in FORMS:
        answer = await sent(harness, api, "/echo?q=1", app=name)
        assert 200 == answer.status_code, name
        said += [answer.text, repr(answer.headers), repr(answer), str(answer.request.url)]
        refused = await sent(harness, api, "/../x?API%5FKEY=1;token=2", app=name)
        said.append(repr(refused))
    ours = [record for record in caplog.records if not record.name.startswith(("asyncio", "uvicorn"))]
    said += [f"{record.getMessage()} {record.args!r} {record.exc_info!r}" for record in ours]
    said += [harness.log.getvalue(), repr(harness.audit.entries), repr(harness.broker.metrics.to_json())]
    said.append(repr(harness.broker.bundle))
    whole = "\n".join(said)
    for each in (KEY, SECRET, "key%2Fof", *_basics()):
        assert each not in whole, whole[max(0, whole.index(each) - 200) : whole.index(each) + 50]


QUERIES = (
    "api_key=mine",
    "API_KEY=mine",
    "api%5Fkey=mine",
    "api%5fKEY=mine",
    "a=1&api_key=mine",
    "a=1;api_key=mine",
    "api_key",
    "api_key&api_key",
    "api_key[]=mine",
    "api.key=mine",
    "api%20key=mine",
    "+api_key=mine",
    "%20api_key=mine",
    "api-key=mine",
    "api_key%00x=mine",
    "token=mine",
    "TOKEN",
    "&&token=",
    "%74oken=mine",
)


async def test_a_query_cannot_name_the_parameter_of_the_credential(harness: Harness, api: KeyApi) -> None:
    for query in QUERIES:
        refused = await sent(harness, api, f"/data?{query}", app="query")
        assert isinstance(refused, Failed) and Code.REQUEST_INVALID is refused.code, query  # noqa: PT018
    assert [] == api.seen


CLIMBS = ("/..%2fx", "/%2e%2e/x", "/a/%252e%252e/x", "/a/..;b/x", "/.%2e/x", "/%2e/x", "/..%5cx", "/a/%2e%2e")


async def test_a_path_cannot_leave_the_credentials_own(harness: Harness, api: KeyApi) -> None:
    for path in CLIMBS:
        refused = await sent(harness, api, path, app="path")
        assert isinstance(refused, Failed) and Code.REQUEST_INVALID is refused.code, path  # noqa: PT018
    assert [] == api.seen
    assert 200 == (await sent(harness, api, "/a%2Fb/file.name..x", app="path")).status_code


SIGNED = {
    "aws": ("X-Amz-Signature=a", "x-amz-security-token=b", "X%2DAmz-Credential=c", "AWSAccessKeyId=d"),
    "oauth": ("oauth_token=a", "OAuth_nonce=b", "a=1&oauth%5Fsignature=c"),
}


@pytest.mark.case("159")
async def test_a_signature_of_the_callers_own_is_refused_or_dropped(harness: Harness, api: KeyApi) -> None:
    for app, queries in SIGNED.items():
        for query in queries:
            refused = await sent(harness, api, f"/data?{query}", app=app)
            assert isinstance(refused, Failed) and Code.REQUEST_INVALID is refused.code, query  # noqa: PT018
    said = {"Content-Type": "Application/X-WWW-Form-Urlencoded"}
    refused = await sent(harness, api, app="oauth", method="POST", content="oauth_token=x", headers=said)
    assert isinstance(refused, Failed)
    assert [] == api.seen
    names = ("Authorization", "X-Amz-Date", "x_amz_date", "X-Amz-Security-Token", "X-AMZ-Content-SHA256")
    await sent(harness, api, app="aws", headers=dict.fromkeys(names, "mine"))
    assert "mine" not in json.dumps(api.seen[-1].headers)


@pytest.mark.case("159")
async def test_a_body_in_pieces_is_refused_where_all_of_it_is_signed(harness: Harness, api: KeyApi) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"a"

    refused = await sent(harness, api, app="aws", method="POST", content=pieces())
    assert isinstance(refused, Failed)
    assert Code.REQUEST_INVALID is refused.code
    assert 200 == (await sent(harness, api, app="oauth", method="POST", content=pieces())).status_code
    assert b"a" == api.seen[-1].body


@pytest.mark.case("153")
@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1.evil.example/",
        "http://evil.example/",
        "http://127.0.0.1:1/",
        "http://127.0.0.1@evil.example/",
        "http://evil.example:80\\@127.0.0.1/",
        "https://127.0.0.1/",
        f"http://{'a' * 300}.example/",
    ],
)
async def test_no_form_goes_to_another_host(api: KeyApi, test_clock: TestClock, tmp_path: Path, url: str) -> None:
    from oauthbroker.injection.targets import target_of

    for app in apps_of(api, tmp_path):
        with pytest.raises(Exception, match="apiHostForbidden"):
            target_of(app, "GET", url)


async def _redirect(_: KeyApi, scope: Any, receive: Any, send: Any) -> None:
    """Answer with a redirect that repeats what came."""
    place = f"https://evil.example{scope['raw_path'].decode()}?{scope['query_string'].decode()}"
    headers = [(b"location", place.encode()), (b"x-b", dict(scope["headers"]).get(b"authorization", b""))]
    headers.append((f"X-{SECRET}".encode(), b"1"))
    await send({"type": "http.response.start", "status": 302, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


async def test_a_redirect_is_an_answer_without_the_credential(
    harness: Harness, api: KeyApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KeyApi, "__call__", _redirect)
    for name in FORMS:
        answer = await sent(harness, api, "/data?q=1", app=name, follow_redirects=False)
        assert 302 == answer.status_code
        assert answer.headers["location"].startswith("https://evil.example/")
        whole = repr(answer.headers)
        for each in (KEY, SECRET, "key%2Fof", "key%2fof", *_basics()):
            assert each not in whole, (name, each)
        followed = await sent(harness, api, "/data?q=1", app=name, follow_redirects=True)
        assert isinstance(followed, Failed) and Code.API_HOST_FORBIDDEN is followed.code, name  # noqa: PT018


async def test_an_answer_that_is_encoded_is_refused(
    harness: Harness, api: KeyApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A value in it could not be masked."""

    async def gzipped(_: KeyApi, scope: Any, receive: Any, send: Any) -> None:
        body = gzip.compress(repr(scope["headers"]).encode())
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-encoding", b"gzip")]})
        await send({"type": "http.response.body", "body": body})

    monkeypatch.setattr(KeyApi, "__call__", gzipped)
    for name in FORMS:
        refused = await sent(harness, api, app=name)
        assert isinstance(refused, Failed) and Code.PROVIDER_UNREACHABLE is refused.code, name  # noqa: PT018


async def test_paths_bound_where_requests_go(api: KeyApi, test_clock: TestClock, tmp_path: Path) -> None:
    app = next(it for it in apps_of(api, tmp_path, ", paths: [/v1/issues, /me]") if it.name == "bearer")
    tools = {"Tool/carried": (ToolAuth("bearer", (), injected=True),)}
    async with (
        IdentityProvider(clock=test_clock) as idp,
        running(idp, [app], clock=test_clock, tools=tools) as harness,
    ):
        callers = await Callers.of(harness)
        tool = await callers.tool("Tool/carried", tools={"Tool/carried": None})
        proxied = await tool.send("GET", f"/v1/proxy/bearer/127.0.0.1:{api.port}/v2")
        assert (403, "apiPathForbidden") == (proxied.status, proxied.json()["code"])
        refusals = dict.fromkeys(("/v2", "/v1/issuesx", "/v1%2Fissues", "/V1/issues"), Code.API_PATH_FORBIDDEN)
        refusals |= dict.fromkeys(("/v1/issues/%2e%2e/x", "/v1/issues/..;/x"), Code.REQUEST_INVALID)
        for path, code in refusals.items():
            refused = await sent(harness, api, path, app="bearer")
            assert isinstance(refused, Failed) and code is refused.code, path  # noqa: PT018
        asked = await sent(harness, api, "/v1/issues/7?a=/../b", app="bearer")
        assert "noGrant" == asked.reason


async def test_a_base_path_stands_behind_the_credentials_own(
    api: KeyApi, test_clock: TestClock, tmp_path: Path
) -> None:
    apps = [it for it in apps_of(api, tmp_path, ", basePath: /v1/, paths: [/data]") if it.name in {"path", "query"}]
    async with IdentityProvider(clock=test_clock) as idp, running(idp, apps, clock=test_clock) as harness:
        for app, path in (("path", f"/bot{KEY}/{SECRET}/v1/data"), ("query", "/v1/data")):
            asked = await asked_for(harness, api, app=app)
            await type_key(harness, asked, "", None, **{"credential.a": KEY, "credential.b": SECRET})
            for said in ("/data", "/v1/data"):
                assert 200 == (await sent(harness, api, said, app=app)).status_code
                assert path == api.seen[-1].path
            refused = await sent(harness, api, "/v1/other", app=app)
            assert isinstance(refused, Failed) and Code.API_PATH_FORBIDDEN is refused.code  # noqa: PT018
