"""Requests of flow tools: they carry a token that no flow gets, to the hosts of its app alone, and nothing is sent twice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.flowtools.running.ports import Ports
from oauthbroker.flowtools.running.requests import MOST_BYTES, BrokerRequests
from oauthbroker.flowtools.running.working import RunResult
from oauthbroker.flowtools.specification.failures import Actor
from oauthbroker.flowtools.specification.source import FlowRefused
from oauthbroker.model.provider_api import ApiAccess, ApiHost
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.running_broker import Harness, running, turn, user_app
from tests.unit.flowtools.kit import chain
from tests.unit.flowtools.run_kit import World, world_in
from tests.unit.protocol.kit import Handler, RawServer, raw_answer

pytestmark = pytest.mark.rule("000-types-http")
ALICE = Actor(id="alice", turn=turn())
OK = raw_answer(200, b'{"id": "m1", "n": 2}', content_type="application/json")


class Stage:
    """A provider's API that a test scripts, and runs that call it."""

    def __init__(self, harness: Harness, api: RawServer, world: World, token: str) -> None:
        self.harness, self.api, self.world, self.token = harness, api, world, token

    def node(self, at: str = "/v1", /, **config: Any) -> tuple[str, dict[str, Any]]:
        url = f"http://127.0.0.1:{self.api.port}{at}"
        return ("httpRequest", {"url": url, "oauthAppRef": "OAuthApp/mail", **config})

    async def call(self, nodes: dict[str, Any], data: Any = None, actor: Actor = ALICE, **more: Any) -> RunResult:
        def work() -> RunResult:
            flow = self.world.flow(nodes, chain(*nodes), **more)
            return self.world.runs.call(flow, {"id": "a"} if data is None else data, actor)

        return await asyncio.to_thread(work)

    def headers(self) -> list[dict[str, str]]:
        heads = [head.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:] for head in self.api.requests]
        return [{line.split(": ")[0].lower(): line.split(": ")[1] for line in head} for head in heads]


@asynccontextmanager
async def stage(
    idp: IdentityProvider, clock: TestClock, folder: Path, handler: Handler, *, connected: bool = True
) -> AsyncIterator[Stage]:
    async with RawServer(handler) as api:
        access = ApiAccess((ApiHost("127.0.0.1", api.port, "http"),), ("GET", "POST", "PUT"))
        async with running(idp, [user_app(idp, api=access)], clock=clock, background=False) as harness:
            token = (await harness.connected()).access_token.reveal() if connected else ""
            world = world_in(folder, ports=Ports(requests=BrokerRequests(harness.broker)))
            yield Stage(harness, api, world, token)
            world.database.engine.dispose()


@pytest.fixture(autouse=True)
def _loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the specifications of this module name the API on loopback. The broker assesses hosts as ever."""
    monkeypatch.setattr("oauthbroker.flowtools.specification.spec.is_public_url", lambda _: True)


@pytest.fixture
def made(identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path) -> Callable[..., Any]:
    return lambda *answers, **more: stage(identity_provider, test_clock, tmp_path, one_by_one(*answers), **more)


def one_by_one(*answers: bytes) -> Handler:
    """A handler that gives one raw answer after the other, the last one again and again; an empty one hangs up."""
    left = list(answers or (OK,))

    async def handle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(left.pop(0) if len(left) > 1 else left[0])
        await writer.drain()

    return handle


async def test_a_request_carries_the_token_and_the_flow_never_gets_it(made: Callable[..., Any], tmp_path: Path) -> None:
    async with made() as here:
        result = await here.call({"r": here.node(), "t": ("transform", {"expression": "r.result.body.n * 2"})})
        assert ("succeeded", {"result": 4.0}) == (result.state, result.output)
        assert f"Bearer {here.token}" == here.headers()[0]["authorization"]
        assert [] == [
            path for path in tmp_path.rglob("*") if path.is_file() and here.token.encode() in path.read_bytes()
        ]


async def test_values_stand_in_path_query_and_body_and_a_key_goes_with_an_effect(made: Callable[..., Any]) -> None:
    async with made() as here:
        values = {"path": {"id": "input.id"}, "query": {"q": "'a&b'", "n": "2", "none": "null"}}
        nodes = {
            "g": here.node("/v1/{id}/x", **values),
            "p": here.node("/v1", method="POST", body={"n": "input.n", "half": "0.5", "all": "g.result.body"}),
        }
        for _ in range(2):
            given = {"id": "a b", "n": 7}
            assert "succeeded" == (await here.call(nodes, given, idempotencyKey="input.id")).state
        get, post = here.api.requests
        assert get.startswith(b"GET /v1/a%20b/x?q=a%26b&n=2 HTTP/1.1\r\n")
        assert {"n": 7, "half": 0.5, "all": {"id": "m1", "n": 2}} == json.loads(post.partition(b"\r\n\r\n")[2])
        keys = [head.get("idempotency-key") for head in here.headers()]
        assert (None, 40) == (keys[0], len(str(keys[1])))


@pytest.mark.parametrize(
    "value", ["..", ".", "", "a/b", "a\\b", "%2e%2e", "a?b", "a#b", "a;b", "a\nb", "\u202e", "x" * 257]
)
async def test_a_value_that_is_more_than_a_segment_of_the_path_is_refused_before_anything_is_sent(
    made: Callable[..., Any], value: str
) -> None:
    async with made() as here:
        result = await here.call({"r": here.node("/v1/{id}/x", path={"id": "input.id"})}, {"id": value})
        assert ("failed", "requestInvalid") == (result.state, result.code)
        assert [] == here.api.requests


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"url": "http://127.0.0.2/v1"}, "apiHostForbidden"),
        ({"url": "https://api.example.com/v1"}, "apiHostForbidden"),
        ({"method": "DELETE"}, "apiMethodForbidden"),
        ({"oauthAppRef": "OAuthApp/none"}, "oauthAppNotFound"),
    ],
)
async def test_a_host_or_method_that_the_app_does_not_list_is_refused_before_it_runs(
    made: Callable[..., Any], change: dict[str, str], why: str
) -> None:
    async with made() as here:
        with pytest.raises(FlowRefused, match=why):
            here.world.flow({"r": here.node(**change)}, [])


async def test_a_host_that_the_app_lists_no_longer_is_refused_at_run_time(made: Callable[..., Any]) -> None:
    async with made() as here:
        flow = here.world.flow({"r": here.node(method="POST")}, [])
        bundle = here.harness.broker.bundle
        apps = {"mail": user_app(here.harness.idp, api=ApiAccess((ApiHost("api.example.com"),)))}
        await here.harness.broker.reload(type(bundle)(bundle.settings, apps))
        result = await asyncio.to_thread(here.world.runs.call, flow, {"id": "a"}, ALICE)
        assert ("failed", "externalFailed", "r: apiHostForbidden") == (result.state, result.code, result.message)
        assert [] == here.api.requests


HANGS_UP = b""
LARGE = raw_answer(200, b"x" * (MOST_BYTES + 1))
RETRY = ("retry", {"attempts": 3, "backoffSeconds": 0})
# what the API answers, the method, whether it takes keys; how the run ends, and how often it was sent
OUTCOMES: dict[str, tuple[list[bytes], str, bool, str, int]] = {
    "a lost answer of an effect": ([HANGS_UP, OK], "POST", False, "unknown", 1),
    "a lost answer, and the API takes keys": ([HANGS_UP, OK], "POST", True, "succeeded", 2),
    "a lost answer of a read": ([HANGS_UP, OK], "GET", False, "succeeded", 2),
    "lost each time": ([HANGS_UP], "GET", False, "failed", 3),
    "an error of the server behind an effect": ([raw_answer(502, b""), OK], "PUT", False, "unknown", 1),
    "an error of the server behind a read": ([raw_answer(502, b""), OK], "GET", False, "succeeded", 2),
    "too many requests": ([raw_answer(429, b""), OK], "POST", False, "succeeded", 2),
    "refused": ([raw_answer(404, b""), OK], "POST", False, "failed", 1),
    "a redirect": ([raw_answer(302, b"", location="https://evil.example/"), OK], "POST", False, "failed", 1),
    "an answer that is too large": ([LARGE], "POST", False, "unknown", 1),
}


@pytest.mark.parametrize("name", OUTCOMES)
async def test_an_effect_is_never_repeated_blindly(made: Callable[..., Any], name: str) -> None:
    answers, method, keys, state, sent = OUTCOMES[name]
    async with made(*answers) as here:
        nodes = {"again": RETRY, "r": here.node(method=method, takesKeys=keys)}
        results = [await here.call(nodes, idempotencyKey="input.id") for _ in range(2 if state != "failed" else 1)]
        assert ({state}, sent) == ({each.state for each in results}, len(here.api.requests))
        assert 1 == len({head.get("idempotency-key") for head in here.headers()})


async def test_a_late_answer_ends_with_the_timeout_node_and_is_unknown(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path
) -> None:
    async def hang(*_: Any) -> None:
        await asyncio.sleep(3600)

    async with stage(identity_provider, test_clock, tmp_path, hang) as here:
        result = await here.call({"t": ("timeout", {"seconds": 1}), "r": here.node(method="POST")})
        assert ("unknown", 1) == (result.state, len(here.api.requests))


async def test_a_caller_without_a_turn_gets_no_token(made: Callable[..., Any]) -> None:
    async with made() as here:
        result = await here.call({"r": here.node()}, actor=Actor(id="alice"))
        assert ("failed", "r: subjectUnavailable") == (result.state, result.message)
        assert [] == here.api.requests
