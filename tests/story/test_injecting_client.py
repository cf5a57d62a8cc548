"""`ctx.oauth.client`: a tool calls an API with a token that it never gets: in the broker's process, and over HTTP."""

from __future__ import annotations

import asyncio
import logging
import socket
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Literal

import httpx
import httpx2
import pytest

from oauthbroker import AuthorizationRequiredError, InjectionError, RequestRefusedError, errors_for_model
from oauthbroker.audit import InjectedAnswer, TokenInjected, TokenIssued, TokenRejected
from oauthbroker.client import OAuth, SyncOAuth
from oauthbroker.core.errors import Code
from oauthbroker.injection import http_libraries as client_module
from oauthbroker.model.bundle import ToolAuth
from oauthbroker.model.provider_api import AccountHost, ApiAccess, ApiHost
from oauthbroker.model.settings import Settings
from oauthbroker.protocol.network.api_connection import ApiConnection
from oauthbroker.protocol.network.api_transport import ApiLimits
from oauthbroker.protocol.network.dialing import Dialer
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.tokens.context import OAuthContext
from tests.kit.running_broker import BASE, Harness, running, turn, user_app
from tests.story.api.clients import listening
from tests.unit.protocol.kit import Handler, RawServer, raw_answer, says

TOOLS = {"Tool/carried": (ToolAuth("mail", ("read",), injected=True), ToolAuth("bare"))}
PATIENCE = 30.0
LONG = 70_000  # bytes of a body that the proxy does not keep
LIBRARIES = [httpx2, httpx]
Way = Literal["embedded", "over HTTP"]
WAYS: list[Way] = ["embedded", "over HTTP"]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Way:
    """Where the tool of the test is."""
    return request.param  # type: ignore[no-any-return]


@dataclass
class Remote:
    """Both clients of a tool in another process, spelled as the context of a tool in the broker's."""

    oauth: OAuth
    sync: SyncOAuth

    @property
    def client(self) -> Any:
        return self.oauth.client


class Stage:
    """A provider's API that a test scripts, and a tool behind the broker."""

    def __init__(self, harness: Harness, api: RawServer, token: str) -> None:
        self.harness, self.api, self.token = harness, api, token
        self.remote: Remote | None = None

    @property
    def oauth(self) -> OAuthContext | Remote:
        return self.remote or self.harness.broker.oauth(turn(), "Tool/carried")

    def client(self, app: str = "OAuthApp/mail", **more: Any) -> httpx2.AsyncClient:
        return self.oauth.client(app, **more)

    def url(self, path: str = "/") -> str:
        return f"http://127.0.0.1:{self.api.port}{path}"

    @property
    def tokens_sent(self) -> list[str]:
        lines = [line for head in self.api.requests for line in head.split(b"\r\n")]
        return [line.partition(b": ")[2].decode() for line in lines if line.lower().startswith(b"authorization:")]

    def entries(self, kind: type) -> list[Any]:
        return [entry for entry in self.harness.audit.entries if isinstance(entry, kind)]


@asynccontextmanager
async def stage(
    idp: IdentityProvider, clock: TestClock, handler: Handler, *, connected: bool = True, way: Way = "embedded"
) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(RawServer(handler))
        hosts = (ApiHost("127.0.0.1", api.port, "http"), ApiHost("10.1.2.3"), ApiHost("inside.example"))
        access = ApiAccess((*hosts, AccountHost("base", ".my.example.org")), ("GET", "HEAD", "POST"))
        apps = [user_app(idp, api=access), user_app(idp, "bare")]
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        allowed = (f"127.0.0.1:{listener.getsockname()[1]}",)
        settings = Settings(BASE, weaken=frozenset({"plainHttpProvider"}), allowed_hosts=allowed)
        harness = await stack.enter_async_context(
            running(idp, apps, clock=clock, tools=TOOLS, background=False, settings=settings)
        )
        token = (await harness.connected()).access_token.reveal() if connected else ""
        made = Stage(harness, api, token)
        if way == "over HTTP":
            url = await stack.enter_async_context(listening(harness.broker.asgi.api, listener))
            begun = await harness.broker.turns.begin(turn(), tools=dict.fromkeys(TOOLS))
            oauth = await stack.enter_async_context(OAuth(url, begun.tool_tokens["Tool/carried"]))
            made.remote = Remote(oauth, SyncOAuth(url, begun.tool_tokens["Tool/carried"]))
            stack.push_async_callback(asyncio.to_thread, made.remote.sync.close)
        yield made


@pytest.fixture
async def here(identity_provider: IdentityProvider, test_clock: TestClock, way: Way) -> AsyncIterator[Stage]:
    said = says(201, b'{"a": 1}', x_own="1", set_cookie="sid=1")
    async with stage(identity_provider, test_clock, said, way=way) as made:
        yield made


def answers(*parts: bytes) -> Handler:
    """A handler that gives one raw answer after the other, the last one again and again."""
    left = list(parts)

    async def handle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(left.pop(0) if len(left) > 1 else left[0])
        await writer.drain()

    return handle


async def refused(awaited: Any) -> Code:
    with pytest.raises(RequestRefusedError) as error:
        await awaited
    return error.value.result.code


# --- what a tool gets


@pytest.mark.parametrize("library", LIBRARIES)
async def test_an_address_without_a_host_goes_to_the_first_of_the_apps_hosts(here: Stage, library: ModuleType) -> None:
    async with here.client(library=library) as client:
        assert 201 == (await client.get("/v1/x?a=b")).status_code
    with here.oauth.sync.client("OAuthApp/mail", library=library) as client:
        assert 201 == (await asyncio.to_thread(client.get, "/v1/x?a=b")).status_code
    assert [b"GET /v1/x?a=b HTTP/1.1"] * 2 == [head.partition(b"\r\n")[0] for head in here.api.requests]
    assert [f"Bearer {here.token}"] * 2 == here.tokens_sent


@pytest.mark.parametrize("app, code", [("bare", Code.API_NOT_DECLARED), ("unknown", Code.OAUTH_APP_NOT_FOUND)])
async def test_an_address_without_a_host_is_refused_where_the_app_names_none(here: Stage, app: str, code: Code) -> None:
    async with here.client(app) as client:
        assert code is await refused(client.get("/v1/x"))
    assert [] == here.api.requests


@pytest.mark.parametrize("library", LIBRARIES)
async def test_a_request_carries_the_token_and_the_answer_comes_back(here: Stage, library: ModuleType) -> None:
    async with here.client(library=library) as client:
        assert isinstance(client, library.AsyncClient)
        answer = await client.post(here.url("/v1/x?a=b%20c"), json={"q": 1}, headers={"X-Tool": "7"})
    assert (201, {"a": 1}, "1") == (answer.status_code, answer.json(), answer.headers["x-own"])
    assert [f"Bearer {here.token}"] == here.tokens_sent
    head, _, body = here.api.requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/x?a=b%20c HTTP/1.1\r\n")
    assert b"x-tool: 7" in head.lower()
    assert {"q": 1} == library.Response(200, content=body).json()
    (before,), (after,) = here.entries(TokenInjected), here.entries(InjectedAnswer)
    assert ("Tool/carried", "POST", f"127.0.0.1:{here.api.port}") == (before.tool, before.method, before.host)
    assert (201, len(body), 8) == (after.status, after.sent, after.received)
    assert 1 == len(here.entries(TokenIssued)), "the one of the test itself"


@pytest.mark.parametrize("library", LIBRARIES)
async def test_a_tool_without_await_has_the_same_client(here: Stage, library: ModuleType) -> None:
    def tool() -> tuple[Any, ...]:
        with here.oauth.sync.client("mail", library=library) as client:
            assert isinstance(client, library.Client)
            answer = client.post(here.url("/sync"), content=iter([b"in ", b"pieces"]))
            with client.stream("GET", here.url("/streamed")) as streamed:
                pieces = list(streamed.iter_bytes())
            return answer.status_code, answer.json(), b"".join(pieces)

    assert (201, {"a": 1}, b'{"a": 1}') == await asyncio.to_thread(tool)
    assert here.api.requests[0].lower().startswith(b"post /sync")
    assert b"in pieces" in here.api.requests[0]
    assert [f"Bearer {here.token}"] * 2 == here.tokens_sent


async def test_a_streamed_body_is_passed_on_as_it_comes(
    identity_provider: IdentityProvider, test_clock: TestClock, way: Way
) -> None:
    seen, arrived = bytearray(), asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not seen.endswith(b"0\r\n\r\n"):
            seen.extend(await reader.read(65536))
            if len(seen) > LONG:
                arrived.set()
        writer.write(raw_answer(200, b"done"))

    async def pieces() -> AsyncIterator[bytes]:
        yield b"one" * LONG
        await arrived.wait()
        yield b"two"

    async with stage(identity_provider, test_clock, handle, way=way) as here, here.client() as client:
        assert "done" == (await client.post(here.url(), content=pieces())).text
    assert seen.endswith(b"one\r\n3\r\ntwo\r\n0\r\n\r\n")


async def test_an_answer_is_streamed(here: Stage) -> None:
    async with here.client() as client, client.stream("GET", here.url()) as answer:
        assert b'{"a": 1}' == b"".join([piece async for piece in answer.aiter_bytes()])


# --- what a tool does not get


def looked_at(thing: object, name: str) -> object:
    try:
        return getattr(thing, name)
    except (RuntimeError, ValueError, AttributeError, AssertionError, KeyError):  # what that object does not have
        return None


def reachable(*roots: object) -> Iterator[object]:
    """Yield what a tool can look at without private names: attributes, items, causes."""
    seen, hint = set[int](), list(roots)
    while hint and len(seen) < 20_000:
        thing = hint.pop()
        if id(thing) in seen or isinstance(thing, ModuleType | type):
            continue
        seen.add(id(thing))
        yield thing
        if isinstance(thing, dict):
            hint += [*thing.keys(), *thing.values()]
        elif isinstance(thing, list | tuple | set | frozenset):
            hint += list(thing)
        elif type(thing).__module__.split(".")[0] in {"httpx", "httpx2", "oauthbroker"}:
            names = [
                name
                for name in dir(thing)
                if not name.startswith("_") and (type(thing).__name__, name) != ("URL", "raw")
            ]
            hint += [value for name in names if not callable(value := looked_at(thing, name))]


def holds(token: str, *roots: object) -> bool:
    for thing in reachable(*roots):
        text = thing.decode("latin-1") if isinstance(thing, bytes) else thing if isinstance(thing, str) else repr(thing)
        if token in text:
            return True
    return False


@pytest.mark.case("104", "110")
@pytest.mark.parametrize("library", LIBRARIES)
async def test_no_object_and_no_hook_of_a_tool_has_the_token(
    identity_provider: IdentityProvider,
    test_clock: TestClock,
    way: Way,
    library: ModuleType,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The provider echoes the head of the request, in its answer's head and body."""
    heads, stages = list[bytes](), list[Stage]()

    async def echo(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent = stages[-1].tokens_sent[-1]
        heads.append(sent.encode())
        writer.write(raw_answer(200, f"you sent {sent}".encode(), x_echo=sent, location=f"/?token={sent}"))

    seen: list[object] = []

    async def look(thing: Any) -> None:
        seen.append(thing)

    async with stage(identity_provider, test_clock, echo, way=way) as here:
        client = here.client(library=library)
        stages.append(here)
        client.event_hooks = {"request": [look], "response": [look]}
        traced: list[object] = []
        caplog.clear()
        caplog.set_level(logging.DEBUG)

        async def trace(name: str, info: object) -> None:
            traced.append((name, info))

        answer = await client.get(
            here.url(), headers={"authorization": "mine", "cookie": "a=b"}, extensions={"trace": trace}
        )
        assert 200 == answer.status_code
        assert [f"Bearer {here.token}".encode()] == heads
        assert not holds(here.token, answer, answer.request, answer.history, answer.extensions, client, *seen, *traced)
        assert "*" * len(here.token) in answer.text
        assert b"a=b" not in here.api.requests[0]
        assert b"mine" not in here.api.requests[0]
        assert "network_stream" not in answer.extensions
        assert [] == list(client.cookies.jar)
    assert here.token not in caplog.text


async def test_a_cancelled_or_failed_request_leaves_no_token_in_its_exception(
    identity_provider: IdentityProvider, test_clock: TestClock, way: Way
) -> None:
    started = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        started.set()
        await reader.read()

    async with stage(identity_provider, test_clock, hang, way=way) as here, here.client() as client:
        task = asyncio.create_task(client.get(here.url()))
        async with asyncio.timeout(PATIENCE):
            await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as error:
            await task
        caught: BaseException | None = error.value
        while caught is not None:
            for frame, _ in traceback.walk_tb(caught.__traceback__):
                assert frame.f_globals["__name__"] != "oauthbroker.injection.injector"
            caught = caught.__cause__ or caught.__context__


@pytest.mark.sample(16)
@pytest.mark.case("102")
@pytest.mark.parametrize(
    "url",
    ["https://evil.example/", "http://127.0.0.1:1/", "http://localhost:{port}/",
     "http://user:pw@127.0.0.1:{port}/", "http://127.0.0.1:{port}@evil.example/", "http://127.1:{port}/", "http://127.0.0.1.:{port}/",
     "http://evil.example\\@127.0.0.1:{port}/", "http://[::ffff:127.0.0.1]:{port}/", "https://evil.my.example.org.evil.example/",
     "https://one.my.example.org/"],
)  # fmt: skip
@pytest.mark.parametrize("library", LIBRARIES)
async def test_another_host_is_refused_and_nothing_is_sent(here: Stage, url: str, library: ModuleType) -> None:
    async with here.client(library=library) as client:
        with pytest.raises((RequestRefusedError, library.InvalidURL)) as error:
            await client.get(url.format(port=here.api.port))
    if isinstance(error.value, RequestRefusedError):
        assert Code.API_HOST_FORBIDDEN is error.value.result.code
    assert [] == here.api.requests


@pytest.mark.case("102")
async def test_another_scheme_is_refused_and_over_http_it_is_that_of_the_apps_host(here: Stage, way: Way) -> None:
    async with here.client() as client:
        asked = client.get(here.url().replace("http:", "https:"))
        if way == "embedded":
            assert Code.API_HOST_FORBIDDEN is await refused(asked)
        else:
            assert 201 == (await asked).status_code


@pytest.mark.case("103")
async def test_a_redirect_is_an_answer_and_one_that_a_tool_follows_is_checked_anew(
    identity_provider: IdentityProvider, test_clock: TestClock, way: Way
) -> None:
    async with (
        RawServer(says(200)) as evil,
        stage(
            identity_provider,
            test_clock,
            answers(raw_answer(302, b"", location=f"http://127.0.0.1:{evil.port}/")),
            way=way,
        ) as here,
        here.client() as client,
    ):
        answer = await client.get(here.url())
        assert 302 == answer.status_code
        assert f"http://127.0.0.1:{evil.port}/" == answer.headers["location"]
        assert Code.API_HOST_FORBIDDEN is await refused(client.get(here.url(), follow_redirects=True))
        assert [] == evil.requests


@pytest.mark.case("104")
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    "header", [("X-A", "b\r\nAuthorization: mine"), ("X-A\r\nHost: evil", "b"), ("X-A", "b\nc"), ("X A", "b")]
)
async def test_a_header_cannot_bring_another_one(here: Stage, library: ModuleType, header: tuple[str, str]) -> None:
    async with here.client(library=library) as client:
        assert Code.REQUEST_INVALID is await refused(client.get(here.url(), headers=[header]))
    assert ([], []) == (here.api.requests, here.entries(TokenInjected))


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"headers": {"X-B": "b", "X-A": "é€"}}, "The value of the header X-A cannot be sent."),
        ({"headers": [("X-A", "é")]}, "The value of the header X-A cannot be sent."),
        ({"headers": [(b"X-A", "\ud800")]}, "The value of the header X-A cannot be sent."),
        ({"headers": {"X-€": "a"}}, "A header has a name that cannot be sent."),
    ],
)
async def test_a_header_that_the_library_cannot_encode_is_named(
    here: Stage, library: ModuleType, parts: dict[str, Any], says: str
) -> None:
    async with here.client(library=library) as client:
        with pytest.raises(RequestRefusedError, match=says) as caught:
            await client.get(here.url(), **parts)
        assert (Code.REQUEST_INVALID, None) == (caught.value.result.code, caught.value.__context__)
        assert 201 == (await client.get("/", headers={b"X-A": "é€".encode()})).status_code
        client.cookies.set("a", "é€")
        with pytest.raises(RequestRefusedError, match=r"The value of the header Cookie cannot be sent\."):
            await client.get(here.url())
        client.cookies.clear()
        with pytest.raises(UnicodeEncodeError):
            await client.post("/", content="\ud800")


@pytest.mark.parametrize("library", LIBRARIES)
async def test_blanks_around_a_header_are_no_part_of_it_and_a_path_is_text(here: Stage, library: ModuleType) -> None:
    async with here.client(library=library) as client:
        assert 201 == (await client.get("/", headers={"X-A": " b\t"})).status_code
        with pytest.raises(ValueError, match="surrogates"):
            await client.get("/\ud800")
    assert [True] == [b"x-a: b\r\n" in each.lower() for each in here.api.requests]


@pytest.mark.case("104")
async def test_a_tool_cannot_name_the_host_or_replace_the_token(here: Stage) -> None:
    async with here.client() as client:
        extensions = {"target": b"/other", "sni_hostname": "evil.example"}
        await client.get(here.url("/own"), headers={"Host": "evil.example"}, auth=("me", "pw"), extensions=extensions)
    assert [f"Bearer {here.token}"] == here.tokens_sent
    assert here.api.requests[0].startswith(b"GET /own HTTP/1.1\r\n")
    assert b"evil" not in here.api.requests[0]


@pytest.mark.case("106")
async def test_an_internal_address_is_not_reached(here: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def resolved(host: str, *_: Any, **__: Any) -> list[Any]:
        return [(2, 1, 6, "", ("169.254.169.254", 0))]

    monkeypatch.setattr("socket.getaddrinfo", resolved)
    async with here.client() as client:
        for url in ("https://inside.example/", "https://10.1.2.3/"):
            assert Code.APP_MISCONFIGURED is await refused(client.get(url))


@pytest.mark.case("107")
async def test_an_upgrade_to_websocket_is_refused(here: Stage) -> None:
    async with here.client() as client:
        headers = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Key": "x"}
        assert Code.REQUEST_INVALID is await refused(client.get(here.url(), headers=headers))
    assert [] == here.api.requests


@pytest.mark.case("107")
async def test_an_upgrade_that_was_not_asked_for_is_a_broken_answer(
    identity_provider: IdentityProvider, test_clock: TestClock, way: Way
) -> None:
    raw = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
    async with stage(identity_provider, test_clock, answers(raw), way=way) as here, here.client() as client:
        with pytest.raises(httpx2.ReadError):
            await client.get(here.url())


@pytest.mark.case("108")
async def test_an_endless_answer_ends_at_the_limit(
    identity_provider: IdentityProvider, test_clock: TestClock, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oauthbroker.wiring.call_parts.ApiLimits", lambda: ApiLimits(answer_bytes=100_000))

    async def endless(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 10_000)
            await writer.drain()

    async with stage(identity_provider, test_clock, endless, way=way) as here, here.client() as client:
        with pytest.raises(httpx2.ReadError, match="too large" if way == "embedded" else None):
            await client.get(here.url())


@pytest.mark.case("108")
async def test_an_endless_body_ends_at_the_limit(
    identity_provider: IdentityProvider, test_clock: TestClock, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "MOST_SENT", 100_000)
    monkeypatch.setattr(client_module, "MOST_COLLECTED", 100_000)

    async def swallow(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        while await reader.read(65536):
            pass

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 10_000

    def also_endless() -> Iterator[bytes]:
        while True:
            yield b"x" * 10_000

    async with stage(identity_provider, test_clock, swallow, way=way) as here, here.client() as client:
        assert Code.REQUEST_TOO_LARGE is await refused(client.post(here.url(), content=endless()))
        sync = here.oauth.sync.client("mail")
        assert Code.REQUEST_TOO_LARGE is await refused(asyncio.to_thread(sync.post, here.url(), content=also_endless()))


@pytest.mark.case("109")
@pytest.mark.parametrize("library", LIBRARIES)
async def test_a_silent_provider_is_waited_for_as_long_as_the_tool_says(
    identity_provider: IdentityProvider, test_clock: TestClock, way: Way, library: ModuleType
) -> None:
    async def hang(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with stage(identity_provider, test_clock, hang, way=way) as here, here.client(library=library) as client:
        with pytest.raises(library.ReadTimeout):
            await client.get(here.url(), timeout=0.05)


@pytest.mark.parametrize("library", LIBRARIES)
async def test_a_slow_provider_is_waited_for_longer_if_the_tool_says_so(
    identity_provider: IdentityProvider,
    test_clock: TestClock,
    way: Way,
    library: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("oauthbroker.wiring.call_parts.ApiLimits", lambda: ApiLimits(stall_seconds=0.05))

    async def slow(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.3)
        writer.write(raw_answer(200, b"at last"))

    async with stage(identity_provider, test_clock, slow, way=way) as here, here.client(library=library) as client:
        with pytest.raises(library.ReadTimeout):
            await client.get(here.url())
        assert "at last" == (await client.get(here.url(), timeout=PATIENCE)).text


@pytest.mark.parametrize(
    ("said", "step", "connecting"), [(None, 30, 30), (5, 5, 5), (60, 60, 30), (9000, 300, 30), (-1, 0, 0)]
)
async def test_the_longest_wait_for_a_step(
    here: Stage, said: float | None, step: float, connecting: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    async def connect(dialer: Dialer, host: str, port: int, stall_seconds: float) -> Any:
        waits.append(stall_seconds)
        return await connect_tcp(dialer, host, port, PATIENCE)

    async def exchange(_connection: Any, _request: Any, stall_seconds: float) -> None:
        waits.append(stall_seconds)
        raise TimeoutError

    connect_tcp = Dialer.connect_tcp
    monkeypatch.setattr(Dialer, "connect_tcp", connect)
    monkeypatch.setattr(ApiConnection, "exchange", exchange)
    async with here.client() as client:
        with pytest.raises(httpx2.TransportError):
            await client.get(here.url(), timeout=said)
    assert [connecting, step] == [round(each, 2) for each in waits]  # over HTTP, none is a thousandth of a second


# --- tokens that are refused, and users who must consent


@pytest.mark.parametrize("body", [None, b"a body", b"a body" * LONG])
async def test_a_refused_token_is_reported_and_the_request_is_sent_once_more(
    identity_provider: IdentityProvider, test_clock: TestClock, way: Way, body: bytes | None
) -> None:
    async with stage(
        identity_provider, test_clock, answers(raw_answer(401, b""), raw_answer(200, b"")), way=way
    ) as here:
        async with here.client() as client:
            assert 200 == (await client.post(here.url(), content=body)).status_code
        first, second = here.tokens_sent
        assert f"Bearer {here.token}" == first != second
        assert 1 == len(here.entries(TokenRejected))
        assert 2 == len(here.entries(InjectedAnswer))
        assert here.entries(TokenInjected)


@pytest.mark.parametrize(("tool", "asked"), [("Tool/carried", {"read"}), (None, {"read", "write"})])
async def test_a_refused_token_that_cannot_be_refreshed_asks_for_the_demanded_scopes_within_the_tools_ceiling(
    identity_provider: IdentityProvider, test_clock: TestClock, way: Way, tool: str | None, asked: set[str]
) -> None:
    identity_provider.script.token.alter(lambda found: {**found, "refresh_token": None}, times=None)
    refusal = raw_answer(401, b"", www_authenticate='Bearer error="invalid_token", scope="write"')
    async with stage(
        identity_provider, test_clock, answers(refusal, raw_answer(200, b"")), connected=False, way=way
    ) as here:
        await here.harness.connected(scopes=["read"])
        async with here.harness.broker.oauth(turn(), tool).client("OAuthApp/mail", scopes=["read"]) as client:
            with pytest.raises(AuthorizationRequiredError) as needed:
                await client.get(here.url())
            await here.harness.connect(needed.value.result)
            assert 200 == (await client.get(here.url())).status_code
        grant = await here.harness.grant()
        assert grant is not None
        assert asked == set(grant.scopes)


async def test_a_second_401_is_the_answer(identity_provider: IdentityProvider, test_clock: TestClock, way: Way) -> None:
    async with (
        stage(identity_provider, test_clock, answers(raw_answer(401, b"why")), way=way) as here,
        here.client() as client,
    ):
        answer = await client.get(here.url())
        assert (401, "why") == (answer.status_code, answer.text)
        assert 2 == len(here.tokens_sent)


async def test_a_401_whose_new_token_cannot_be_had_just_now_is_a_refusal_that_may_pass(
    identity_provider: IdentityProvider, test_clock: TestClock, way: Way
) -> None:
    """The API did nothing, so that the tool may send the same again; its 401 would look final."""
    api = answers(raw_answer(401, b"why"), raw_answer(200, b"now"))
    async with stage(identity_provider, test_clock, api, way=way) as here, here.client() as client:
        identity_provider.script.refresh.busy(3, 503, times=1)
        with pytest.raises(RequestRefusedError) as error:
            await client.get(here.url())
        assert (True, 3) == (error.value.result.retryable, error.value.result.retry_after_seconds)
        assert 1 == len(here.tokens_sent)
        test_clock.advance(5)
        assert (200, "now") == ((answer := await client.get(here.url())).status_code, answer.text)


async def test_a_body_that_cannot_be_repeated_is_an_error_of_its_own(
    identity_provider: IdentityProvider, test_clock: TestClock, way: Way
) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen = b""
        while not seen.endswith(b"0\r\n\r\n"):
            seen = seen[-10:] + await reader.read(65536)
        writer.write(raw_answer(401, b""))

    async def pieces() -> AsyncIterator[bytes]:
        yield b"once" * LONG

    async with stage(identity_provider, test_clock, handle, way=way) as here, here.client() as client:
        assert Code.BODY_NOT_REPEATABLE is await refused(client.post(here.url(), content=pieces()))
        assert 1 == len(here.tokens_sent)
        assert 1 == len(here.entries(TokenRejected)), "so that the next request has another token"


@pytest.mark.case("102")
@pytest.mark.parametrize(
    ("address", "code"),
    [
        ("/x/../api/me", Code.REQUEST_INVALID), ("/./api/me", Code.REQUEST_INVALID), ("x/..", Code.REQUEST_INVALID),
        ("{base}/x/../api/me", Code.REQUEST_INVALID), ("/x/%2e%2e/api/me", Code.REQUEST_INVALID),
        ("/x/..;a/me", Code.REQUEST_INVALID), ("//evil.example/x/../y", Code.REQUEST_INVALID),
        ("//evil.example:8443/api/me", Code.API_HOST_FORBIDDEN), ("///api/me", Code.API_HOST_FORBIDDEN),
        ("http:/api/me", Code.API_HOST_FORBIDDEN), ("https:///api/me", Code.API_HOST_FORBIDDEN),
        ("users:get", Code.API_HOST_FORBIDDEN),
    ],
)  # fmt: skip
@pytest.mark.parametrize("library", LIBRARIES)
async def test_an_address_that_the_library_would_change_is_refused_as_the_tool_wrote_it(
    here: Stage, library: ModuleType, address: str, code: Code
) -> None:
    url = address.format(base=f"http://127.0.0.1:{here.api.port}")
    async with here.client(library=library) as client:
        assert code is await refused(client.get(url))
    with here.oauth.sync.client("OAuthApp/mail", library=library) as client:
        assert code is await refused(asyncio.to_thread(client.get, url))
    assert [] == here.api.requests


async def test_an_address_with_a_host_alone_has_the_scheme_of_the_apps_own(here: Stage) -> None:
    async with here.client() as client:
        assert 201 == (await client.get(f"//127.0.0.1:{here.api.port}/v1/x?a=../b")).status_code
        assert 201 == (await client.get("/v1/x?next=/../y#/../z")).status_code
    assert [b"GET /v1/x?a=../b HTTP/1.1", b"GET /v1/x?next=/../y HTTP/1.1"] == [
        head.partition(b"\r\n")[0] for head in here.api.requests
    ]


async def test_bad_requests_have_one_clear_error_each(here: Stage) -> None:
    async with here.client() as client, here.client("bare") as bare:
        assert Code.API_METHOD_FORBIDDEN is await refused(client.delete(here.url()))
        assert Code.API_HOST_FORBIDDEN is await refused(client.get("https://other.example/"))
        assert Code.API_NOT_DECLARED is await refused(bare.get(here.url()))
    async with here.client("nothing") as nothing, here.client(scopes=["write"]) as wide:
        assert Code.OAUTH_APP_NOT_FOUND is await refused(nothing.get(here.url()))
        assert Code.SCOPE_NOT_ALLOWED is await refused(wide.get(here.url()))
    assert [] == here.api.requests


@pytest.mark.parametrize("library", LIBRARIES)
async def test_a_user_who_must_consent_is_one_exception_with_the_link(
    identity_provider: IdentityProvider, test_clock: TestClock, way: Way, library: ModuleType
) -> None:
    async with stage(identity_provider, test_clock, says(200), connected=False, way=way) as here:
        async with here.client(library=library) as client:
            with pytest.raises(AuthorizationRequiredError) as error:
                await client.get(here.url())
        assert "authorization_required" == error.value.result.status
        link = error.value.result.authorization_url
        assert link in error.value.for_model
        assert link not in f"{error.value} {error.value!r}"
        assert [] == here.api.requests


async def test_a_tool_tells_the_model_what_to_do(here: Stage) -> None:
    @errors_for_model
    async def waiting(app: str) -> str:
        async with here.client(app) as client:
            return (await client.get(here.url())).text

    @errors_for_model
    def calling(app: str) -> str:
        with here.oauth.sync.client(app) as client:
            return client.get(here.url()).text

    said: list[Callable[[str], Any]] = [waiting, lambda app: asyncio.to_thread(calling, app)]
    for tool in said:
        assert '{"a": 1}' == await tool("mail")
        assert Code.API_NOT_DECLARED.sentence() == await tool("bare")
        assert "The call names no app in a known form." in await tool("Other/mail")
    assert "waiting" == waiting.__name__


async def test_a_client_goes_on_after_a_reload_with_what_the_configuration_then_says(here: Stage) -> None:
    async with here.client() as client:
        assert 201 == (await client.get(here.url())).status_code
        bundle = here.harness.broker.bundle
        less = replace(bundle.apps["mail"], api=ApiAccess((ApiHost("api.example.com"),)))
        await here.harness.broker.reload(replace(bundle, apps={**bundle.apps, "mail": less}))
        assert Code.API_HOST_FORBIDDEN is await refused(client.get(here.url()))


async def test_the_exceptions_are_one_family() -> None:
    assert issubclass(AuthorizationRequiredError, InjectionError)
    assert issubclass(RequestRefusedError, InjectionError)
