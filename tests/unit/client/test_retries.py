"""What the client does with a network and a broker that misbehave: every call ends in time, with an answer or a code."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from oauthbroker.client import BrokerError, Code, Failed, OAuth, Options, Ready, Runtime, SyncOAuth, SyncRuntime, Turn
from oauthbroker.client.address import parse_address
from oauthbroker.client.client_call import Reply
from oauthbroker.client.retries import PAUSES, pause_of
from oauthbroker.client.transport import MAX_BYTES
from oauthbroker.testing import Canaries, TestClock
from tests.unit.client.kit import ASK, KEY, READY, TURN_TOKEN, fake_broker, patient, refuses, says

Ask = Callable[..., Awaitable[Any]]
TURN = Turn("planner", "1700000000.000100")
BEGUN = {"turnId": "turn-x", "turnToken": TURN_TOKEN, "toolTokens": {}, "expiresAt": "2026-02-01T10:00:00Z"}
TRIES = len(PAUSES) + 1


async def ask_async(url: str, options: Options) -> Any:
    async with OAuth(url, TURN_TOKEN, options) as oauth:
        return await oauth.get_access_token("mail")


async def ask_sync(url: str, options: Options) -> Any:
    def tool() -> Any:
        with SyncOAuth(url, TURN_TOKEN, options) as oauth:
            return oauth.get_access_token("mail")

    return await asyncio.to_thread(tool)


@pytest.fixture(params=[ask_async, ask_sync], ids=["async", "sync"])
def ask(request: pytest.FixtureRequest) -> Ask:
    """Request a token with either client: each has a network of its own."""

    def one(url: str, options: Options | None = None) -> Awaitable[Any]:
        return request.param(url, options or patient())  # type: ignore[no-any-return]

    return one


@pytest.mark.rule("12.5.1-1")
async def test_a_token_call_is_the_specifications_request_with_the_turn_token() -> None:
    async with fake_broker(says(200, READY)) as fake, OAuth(fake.url, TURN_TOKEN) as oauth:
        ready = await oauth.get_access_token("OAuthApp/mail", ["read"], 60, switch_account=True)
        assert isinstance(ready, Ready)
        await oauth.getAccessToken(ASK)
    first, second = fake.asked
    assert ("POST", "/v1/tokens") == (first.method, first.path)
    assert {**ASK, "scopes": ["read"], "minTtlSeconds": 60, "switchAccount": True} == first.body
    assert ASK == second.body
    assert f"Bearer {TURN_TOKEN}" == first.headers["authorization"]
    assert "cookie" not in second.headers


PASSING_THEN_GOOD = {
    "the broker is busy": refuses(503, "serverBusy"),
    "the store is busy": refuses(503, "storeLocked"),
    "too many calls": refuses(429, "rateLimited", retry_after="2"),
    "a proxy before it": says(502, b"<html>bad gateway</html>", media="text/html"),
    "a connection that broke": None,
}


@pytest.mark.parametrize("first", PASSING_THEN_GOOD.values(), ids=PASSING_THEN_GOOD)
async def test_a_token_call_is_tried_again_when_that_can_help(ask: Ask, first: bytes | None) -> None:
    async with fake_broker(first, says(200, READY)) as fake:
        assert isinstance(await ask(fake.url), Ready)
        assert 2 == len(fake.asked)


FINAL: dict[str, tuple[bytes, Code]] = {
    "a redirect is not followed": (says(307, location="http://127.0.0.1:1/"), Code.BROKER_ANSWER_INVALID),
    "not JSON": (says(200, b"{"), Code.BROKER_ANSWER_INVALID),
    "JSON of another kind": (says(200, [1]), Code.BROKER_ANSWER_INVALID),
    "a page": (says(200, b"<html>", media="text/html"), Code.BROKER_ANSWER_INVALID),
    "none of the three": (says(200, {"status": "maybe"}), Code.BROKER_ANSWER_INVALID),
    "ready without a token": (says(200, {**READY, "accessToken": None}), Code.BROKER_ANSWER_INVALID),
    "scopes that are none": (says(200, {**READY, "scopes": "read"}), Code.BROKER_ANSWER_INVALID),
    "a time that is none": (says(200, {**READY, "expiresAt": "soon"}), Code.BROKER_ANSWER_INVALID),
    "duplicate names": (says(200, b'{"status":"ready","status":"error"}'), Code.BROKER_ANSWER_INVALID),
    "too deep": (says(200, b"[" * 100_000), Code.BROKER_ANSWER_INVALID),
    "not our API": (says(404, {"detail": "Not Found"}), Code.BROKER_ANSWER_INVALID),
    "a code of a later version": (refuses(400, "somethingNew"), Code.BROKER_ANSWER_INVALID),
    "a turn that is over": (refuses(401, "turnEnded"), Code.TURN_ENDED),
    "a token that is none": (refuses(401, "unauthenticated"), Code.UNAUTHENTICATED),
    "a caller of the other kind": (refuses(403, "notAllowed"), Code.NOT_ALLOWED),
    "an error of the broker's own": (says(500, {"status": 500}, media="application/problem+json"), Code.BROKER_ANSWER_INVALID),
}  # fmt: skip


@pytest.mark.parametrize("answer, code", FINAL.values(), ids=FINAL)
async def test_what_another_try_cannot_fix_is_answered_at_once(ask: Ask, answer: bytes, code: Code) -> None:
    async with fake_broker(answer) as fake:
        failed = await ask(fake.url)
        assert isinstance(failed, Failed)
        assert (code, False) == (failed.code, failed.retryable)
        assert 1 == len(fake.asked)


async def test_an_answer_without_end_is_cut(ask: Ask) -> None:
    async def pour(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(2 * MAX_BYTES // 65536):
            writer.write(b"10000\r\n" + b" " * 65536 + b"\r\n")
            await writer.drain()

    async with fake_broker(pour) as fake:
        failed = await ask(fake.url)
        assert isinstance(failed, Failed)
        assert Code.BROKER_ANSWER_INVALID is failed.code
        assert 1 == len(fake.asked)


async def _silence(_writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(30)


async def _drip(writer: asyncio.StreamWriter) -> None:
    """A byte now and then: no single read takes long."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 10000\r\n\r\n")
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("slow", [_silence, _drip], ids=["silence", "drip"])
async def test_a_call_ends_at_its_deadline_however_slow_the_answer(ask: Ask, slow: Any) -> None:
    begun = time.monotonic()
    async with fake_broker(slow) as fake:
        failed = await ask(fake.url, patient(0.2))
        assert isinstance(failed, Failed)
        assert (Code.BROKER_UNREACHABLE, True) == (failed.code, failed.retryable)
    assert time.monotonic() - begun < 30


def nobody() -> tuple[socket.socket, str]:
    """A port that is ours, without a listener: connections are refused."""
    held = socket.socket()
    held.bind(("127.0.0.1", 0))
    return held, f"http://127.0.0.1:{held.getsockname()[1]}"


async def test_an_unreachable_broker_is_an_answer_after_a_few_tries(ask: Ask) -> None:
    (held, url), clock = nobody(), TestClock()
    began = clock.monotonic()
    failed = await ask(url, Options(timeout=30, clock=clock))
    held.close()
    assert isinstance(failed, Failed)
    assert (Code.BROKER_UNREACHABLE, True) == (failed.code, failed.retryable)
    assert failed.message.endswith(f" ({url})")
    assert sum(PAUSES) / 2 <= clock.monotonic() - began <= sum(PAUSES) * 1.5


async def test_retry_after_is_honoured_and_told_when_it_does_not_fit(ask: Ask) -> None:
    clock = TestClock()
    began = clock.monotonic()
    async with fake_broker(refuses(429, "rateLimited", retry_after="7"), says(200, READY)) as fake:
        assert isinstance(await ask(fake.url, Options(timeout=30, clock=clock)), Ready)
        assert clock.monotonic() - began >= 7
    async with fake_broker(refuses(429, "rateLimited", retry_after="600")) as fake:
        failed = await ask(fake.url)
        assert isinstance(failed, Failed)
        assert (Code.RATE_LIMITED, True, 600) == (failed.code, failed.retryable, failed.retry_after_seconds)
        assert 1 == len(fake.asked)


@pytest.mark.parametrize(("timeout", "tries"), [(7, 1), (8, 2)])
async def test_a_pause_that_ends_with_the_calls_time_is_not_waited_for(ask: Ask, timeout: int, tries: int) -> None:
    """Nothing could be asked behind it, and the answer that is there would be lost."""
    clock = TestClock()
    async with fake_broker(refuses(429, "rateLimited", retry_after="7"), says(200, READY)) as fake:
        found = await ask(fake.url, Options(timeout=timeout, clock=clock))
        assert tries == len(fake.asked)
    assert isinstance(found, Ready) or Code.RATE_LIMITED is found.code


async def test_tries_have_an_end(ask: Ask) -> None:
    async with fake_broker(refuses(503, "storeUnavailable")) as fake:
        failed = await ask(fake.url)
        assert isinstance(failed, Failed)
        assert Code.STORE_UNAVAILABLE is failed.code
        assert len(fake.asked) == TRIES


ONCE: dict[str, tuple[bytes | None, int]] = {
    "a connection that broke after it was sent": (None, 1),
    "the store is busy": (refuses(503, "storeLocked"), 1),
    "too many calls: nothing was done": (refuses(429, "rateLimited"), TRIES),
}


@pytest.mark.parametrize("answer, times", ONCE.values(), ids=ONCE)
async def test_a_turn_is_begun_again_only_where_surely_nothing_was_begun(answer: bytes | None, times: int) -> None:
    async with fake_broker(answer) as fake, Runtime(fake.url, KEY, patient()) as runtime:
        with pytest.raises(BrokerError):
            await runtime.begin(TURN)
        assert times == len(fake.asked)


async def test_a_turn_is_begun_once_the_broker_is_there() -> None:
    """Refused connections never arrived anywhere."""
    held, url = nobody()

    class Later(TestClock):
        started: asyncio.Server | None = None

        async def sleep(self, seconds: float) -> None:
            self.started = self.started or await asyncio.start_server(fake.serve, sock=held)
            await super().sleep(seconds)

    clock = Later()
    async with fake_broker(says(201, BEGUN)) as fake:
        async with Runtime(url, KEY, Options(clock=clock)) as runtime:
            assert "turn-x" == (await runtime.begin(TURN)).turn_id
        assert clock.started is not None
        clock.started.close()


async def test_connections_are_kept_and_a_closed_one_is_no_trouble() -> None:
    async def closing(writer: asyncio.StreamWriter) -> None:
        writer.write(says(200, READY))
        await writer.drain()

    async with fake_broker(closing, says(200, READY)) as fake, OAuth(fake.url, TURN_TOKEN, patient()) as oauth:
        for _ in range(4):
            assert isinstance(await oauth.get_access_token("mail"), Ready)
        assert 4 == len(fake.asked)


def test_one_client_serves_one_event_loop_after_the_other() -> None:
    async def once(oauth: list[OAuth]) -> Any:
        async with fake_broker(says(200, READY)) as fake:
            if not oauth:
                oauth.append(OAuth(fake.url, TURN_TOKEN, patient()))
            else:
                vars(oauth[0]._wire.transport)["_address"] = parse_address(fake.url)
            result = await oauth[0].get_access_token("mail")
            await oauth[0].aclose()
            return result

    kept: list[OAuth] = []
    assert isinstance(asyncio.run(once(kept)), Ready)
    assert isinstance(asyncio.run(once(kept)), Ready)


async def test_a_unix_socket_is_an_address_like_any_other(ask: Ask, tmp_path_factory: pytest.TempPathFactory) -> None:
    short = tmp_path_factory.mktemp("s")
    async with fake_broker(says(200, READY), socket=str(short / "api.sock")) as fake:
        assert isinstance(await ask(fake.url), Ready)
        assert "localhost" == fake.asked[0].headers["host"]


async def test_the_environments_proxies_are_not_asked(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    async with fake_broker(says(200, READY)) as fake:
        assert isinstance(await ask(fake.url), Ready)


WRONG = ["", "broker", "http://127.0.0.1:99999", "ftp://x", "http://broker.example:8420", "https://", "https://u:p@x", "unix:relative", "http://127.0.0.1/?a=b", "https://x y"]  # fmt: skip


@pytest.mark.parametrize("url", WRONG)
def test_an_unsafe_address_is_refused(url: str) -> None:
    with pytest.raises(BrokerError, match=r"address|socket|https"):
        OAuth(url, TURN_TOKEN)


@pytest.mark.parametrize("timeout", [float("inf"), float("nan"), 1e12, 86_400.5, 10**400, -1, None, "60", True])
def test_a_timeout_that_no_network_keeps_is_refused_where_the_options_are_made(timeout: Any) -> None:
    with pytest.raises(BrokerError, match="timeout is a number of seconds from 0 to 86400"):
        Options(timeout=timeout)


async def test_the_longest_timeout_is_kept(ask: Ask) -> None:
    async with fake_broker(says(200, READY)) as fake:
        assert isinstance(await ask(fake.url, Options(timeout=86_400)), Ready)


def test_an_async_client_without_asyncio_names_the_one_to_use() -> None:
    oauth = OAuth("http://127.0.0.1:9", TURN_TOKEN)
    with pytest.raises(RuntimeError, match="runs on asyncio"):
        oauth.get_access_token("mail").send(None)


def test_plain_http_to_another_machine_has_to_be_said() -> None:
    assert "broker.example" in repr(OAuth("http://broker.example:8420/", TURN_TOKEN, patient(plain_http=True)))


@pytest.mark.parametrize("token", ["", "sec ret", "a\r\nX: y", "ünïcode", "x" * 10_000])
def test_what_cannot_stand_in_a_header_is_refused_without_being_quoted(token: str) -> None:
    with pytest.raises(ValueError, match="no token or key") as raised:
        OAuth("http://127.0.0.1", token)
    assert not token or token not in str(raised.value)


@pytest.mark.parametrize("client", [OAuth, SyncOAuth, Runtime, SyncRuntime])
def test_from_env_refuses_a_missing_or_wrong_variable_by_its_name(client: Any) -> None:
    """The program that catches BrokerError round a client catches these, too."""
    here, spaced = {"OAUTHBROKER_URL": "http://127.0.0.1"}, {"OAUTHBROKER_URL": " http://127.0.0.1"}
    wrong = [
        ({}, "OAUTHBROKER_URL is not set"),
        (spaced, "OAUTHBROKER_URL begins or ends"),
        ({"OAUTHBROKER_URL": "x", "OAUTHBROKER_TURN_TOKEN": TURN_TOKEN}, "https://host"),
    ]
    if client in {OAuth, SyncOAuth}:
        wrong.append((here, "OAUTHBROKER_TURN_TOKEN is not set"))
    else:
        wrong.append(({**here, "OAUTHBROKER_API_KEY": "a key"}, "no token or key"))
    for env, says_so in wrong:
        with pytest.raises(BrokerError, match=says_so) as raised:
            client.from_env(env=env)
        assert (Code.CONFIG_INVALID, True) == (raised.value.code, isinstance(raised.value, ValueError))


def test_from_env_reads_a_tools_and_a_runtimes_variables() -> None:
    both = {"OAUTHBROKER_URL": "http://127.0.0.1", "OAUTHBROKER_TURN_TOKEN": TURN_TOKEN}
    assert OAuth.from_env(env=both).turn_token.matches(TURN_TOKEN)
    assert "Runtime(Wire(http://127.0.0.1))" == repr(Runtime.from_env(env=both))


@pytest.mark.case("89", "92")
@pytest.mark.rule("12.5.3-2")
async def test_no_token_is_in_a_log_a_repr_an_exception_or_an_address(canaries: Canaries) -> None:
    """The sweep of every test hears the logs at their finest; here there is something to find."""
    token = "oabt." + "c" * 22 + "." + "Kx3" * 14 + "A"
    canaries.add(token, "turn token")
    access = canaries.mint("access token").reveal()
    answers = [says(200, {**READY, "accessToken": access}), says(200, {"status": access}), refuses(401, "turnEnded")]
    async with fake_broker(*answers, says(500, access.encode())) as fake, OAuth(fake.url, token, patient()) as oauth:
        for _ in answers:
            canaries.look(repr(await oauth.report_rejected("mail", access)), "the repr of a result")
        canaries.look(repr((oauth, oauth.narrow(tool="Tool/x"))), "the repr of a client")
        with pytest.raises(BrokerError) as raised:
            await oauth.apps()
        assert raised.value.__cause__ is None
        assert raised.value.__context__ is None
        canaries.look(str(raised.value), "an exception")
        assert 4 == len(fake.asked)
        canaries.look("".join(asked.path for asked in fake.asked), "the addresses")


@pytest.mark.parametrize(
    ("url", "token", "says"),
    [
        ("http://127.0.0.1:8420/v1", TURN_TOKEN, "leave /v1 out"),
        ("https://broker.example/base/v1/", TURN_TOKEN, "leave /v1 out"),
        ("http://127.0.0.1:8420", None, "is a text, and this is NoneType"),
        ("http://127.0.0.1:8420", 3, "is a text, and this is int"),
    ],
)
def test_a_wrong_address_or_token_is_refused_with_its_right_form(url: str, token: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        OAuth(url, token)


@pytest.mark.parametrize(("asked", "seconds"), [(None, 0.4), (0, 0.4), (7, 7.0)])
def test_a_pause_is_never_shorter_than_ours_also_when_the_answer_asks_for_less(
    asked: int | None, seconds: float
) -> None:
    assert seconds == pause_of(0.4, Reply(status=503, body=b"", retry_after=asked))
