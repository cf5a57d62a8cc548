"""A CredentialApp on each way that sends requests: asked for, typed, resumed, injected, rejected, replaced."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client as McpClient
from mcp.client.streamable_http import streamable_http_client
from mcp.server.mcpserver import MCPServer

from oauthbroker import AuthorizationRequired, AuthorizationRequiredError, InjectionError, Turn
from oauthbroker.client import Options, Runtime, SyncRuntime
from oauthbroker.core.secret import Secret
from oauthbroker.flowtools.running.ports import AGENT, Ports
from oauthbroker.flowtools.running.requests import BrokerRequests
from oauthbroker.flowtools.running.resuming import resuming
from oauthbroker.flowtools.specification.failures import Actor
from oauthbroker.integrations import OAuthMcp, consent_for, pause, resume
from oauthbroker.integrations.consent import lacked
from oauthbroker.mcp.client_transport import McpTransport
from oauthbroker.mcp.gateway import McpGateway
from oauthbroker.mcp.spec import McpServerSpec
from oauthbroker.model.bundle import ToolAuth
from oauthbroker.model.plugin_resources import PluginResource, PluginResources
from oauthbroker.model.provider_api import ApiAccess, ApiHost
from oauthbroker.model.settings import Settings
from oauthbroker.model.token_results import result_from_json
from oauthbroker.testing import Canaries, IdentityProvider, TestClock
from oauthbroker.tools.base.http_fetch import handlers
from tests.kit.running_broker import ALICE, BASE, Harness, running, turn
from tests.story.api.clients import listening
from tests.story.api.kit import Callers
from tests.story.api.proxy_kit import STATUS
from tests.story.keys_kit import GOOD, NEWER, KeyApi, key_api, key_app, type_key
from tests.story.mcp_kit import served, text_of
from tests.story.paused_runs_kit import Runs
from tests.unit.flowtools.kit import chain
from tests.unit.flowtools.run_kit import world_in
from tests.unit.tools.contexts import authorized

APP, TOOL = "CredentialApp/meter", "Tool/metrics"
TOOLS = {TOOL: (ToolAuth("meter", None, injected=True),)}
DATA = {"id": "U234567"}
ROUNDS = (("noGrant", GOOD, ""), ("keyRejected", NEWER, GOOD))
REF = {"kind": "CredentialApp", "name": "meter"}


class Keyed:
    """An MCP server that takes keys, and keeps those that came."""

    def __init__(self, api: KeyApi) -> None:
        server = MCPServer("meter")

        @server.tool()
        def whose() -> str:
            return "a reading"

        self._api, self._app = api, server.streamable_http_app(json_response=True)
        self.keys: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            key = dict(scope["headers"]).get(b"x-api-key", b"").decode()
            self.keys.append(key)
            if key not in self._api.keys:
                await send({"type": "http.response.start", "status": 401, "headers": []})
                await send({"type": "http.response.body", "body": b""})
                return
        await self._app(scope, receive, send)


@dataclass
class Stage:
    """A broker on loopback, an API and an MCP server that take keys, and a runtime's API key."""

    harness: Harness
    api: KeyApi
    mcp: Keyed
    port: int
    url: str
    runtime_key: Secret

    def oauth(self) -> Any:
        return self.harness.broker.oauth(turn(), TOOL)

    async def type(self, asked: Any, key: str, reason: str, of: Turn | None = None) -> None:
        """Type the key that the request asks for, and see the turn resume."""
        assert isinstance(asked, AuthorizationRequired), asked
        assert reason == asked.reason
        block = await self.harness.broker.pending(of or turn())
        assert block is not None
        (item,) = block["items"]
        assert (REF, asked.auth_session_id) == (item["oauthAppRef"], item["authSessionId"])
        assert "is connected" in (await type_key(self.harness, asked, key)).text
        assert await self.harness.broker.pending(of or turn()) is None


@pytest.fixture
async def stage(identity_provider: IdentityProvider, test_clock: TestClock, canaries: Canaries) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(key_api())
        keyed = Keyed(api)
        port, _ = await stack.enter_async_context(served(keyed))
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        access = ApiAccess((api.host, ApiHost("127.0.0.1", port, "http")), ("GET", "POST", "DELETE"), injected=True)
        said = {"url": f"http://127.0.0.1:{port}/mcp", "oauthAppRef": APP, "tools": ["*"]}
        server = PluginResource("McpServer", "meter", McpServerSpec.model_validate(said))
        plugins = {
            "mcp": PluginResources((server,)),
            "flowtools": PluginResources(()),
            "integrations": PluginResources(()),
        }
        hosts = (f"127.0.0.1:{listener.getsockname()[1]}",)
        settings = Settings(BASE, weaken=frozenset({"plainHttpProvider"}), allowed_hosts=hosts)
        app = replace(key_app(api), api=access)
        more: dict[str, Any] = {"tools": TOOLS, "plugins": plugins, "settings": settings}
        harness = await stack.enter_async_context(running(identity_provider, [app], clock=test_clock, **more))
        _, key = await harness.broker.api_keys.create("runtime", ["runtime"])
        canaries.add(key, "API key")
        url = await stack.enter_async_context(listening(harness.broker.asgi.api, listener))
        yield Stage(harness, api, keyed, port, url, key)


async def embedded(stage: Stage, library: Any = None) -> Any:
    async with stage.oauth().client(APP, library=library) as client:
        try:
            return (await client.get(stage.api.url("/data"))).json()
        except InjectionError as error:
            return error.result


async def embedded_httpx(stage: Stage) -> Any:
    return await embedded(stage, httpx)


async def from_a_thread(stage: Stage, library: Any = None) -> Any:
    oauth = stage.oauth().sync

    def work() -> Any:
        with oauth.client(REF, library=library) as client:
            try:
                return client.get(stage.api.url("/data")).json()
            except InjectionError as error:
                return error.result

    return await asyncio.to_thread(work)


async def from_a_thread_httpx(stage: Stage) -> Any:
    return await from_a_thread(stage, httpx)


def read(answer: Any) -> Any:
    return answer.json() if hasattr(answer, "json") else answer


async def async_client(stage: Stage) -> Any:
    async with (
        Runtime(stage.url, stage.runtime_key, Options(timeout=60)) as runtime,
        runtime.turn(turn(), tools=TOOLS) as of,
    ):
        return read(await of.oauth(TOOL).fetch(APP, "GET", stage.api.url("/data")))


async def sync_client(stage: Stage) -> Any:
    def work() -> Any:
        with SyncRuntime(stage.url, stage.runtime_key, Options(timeout=60)) as runtime:
            of = runtime.begin(turn(), tools=TOOLS)
            return read(of.oauth(TOOL).fetch(APP, "GET", stage.api.url("/data")))

    return await asyncio.to_thread(work)


async def base_tool(stage: Stage) -> Any:
    ctx = authorized(stage.oauth())
    try:
        return json.loads((await handlers["get"](ctx, {"url": stage.api.url("/data"), "app": APP}))["body"])
    except InjectionError as error:
        return error.result


Ask = Callable[[Stage], Awaitable[Any]]
WAYS: list[Ask] = [
    embedded, embedded_httpx, from_a_thread, from_a_thread_httpx, async_client, sync_client, base_tool,
]  # fmt: skip


async def granted(harness: Harness) -> dict[str, Any]:
    leased = await harness.broker.events.lease("planner", wait=5)
    assert leased is not None
    assert await leased.ack()
    assert "auth.granted" == leased.event.type
    return dict(leased.event.payload["oauthAppRef"])


@pytest.mark.parametrize("way", WAYS)
async def test_each_way_asks_resumes_carries_and_asks_again_after_a_401(stage: Stage, way: Ask) -> None:
    for reason, key, old in ROUNDS:
        stage.api.keys.pop(old, None)
        await stage.type(await way(stage), key, reason)
        assert REF == await granted(stage.harness)
        assert DATA == await way(stage)
        assert key == stage.api.seen[-1].headers["x-api-key"]


async def test_the_proxy_says_what_each_answer_is(stage: Stage) -> None:
    """Also where the request names the app without its kind."""
    tool = await (await Callers.of(stage.harness)).tool(TOOL, tools=dict.fromkeys(TOOLS))
    path = f"/v1/proxy/meter/127.0.0.1:{stage.api.port}/data"
    for reason, key, old in ROUNDS:
        stage.api.keys.pop(old, None)
        asked = await tool.send("GET", path, allow=["ticket"])
        assert (403, "authorization_required") == (asked.status, asked.headers[STATUS])
        said = asked.json()
        assert {"status": "authorization_required", "reason": reason}.items() <= said.items()
        result = result_from_json(said)
        await stage.type(result, key, reason)
        answer = await tool.send("GET", path)
        assert (200, "forwarded", DATA) == (answer.status, answer.headers[STATUS], answer.json())
        assert REF == await granted(stage.harness)


@pytest.mark.parametrize("ref", [REF, APP, "meter"])
async def test_the_api_takes_references_of_the_kind(stage: Stage, ref: Any) -> None:
    callers = await Callers.of(stage.harness)
    tool = await callers.tool(TOOL, tools={TOOL: [{"oauthAppRef": ref}]})
    refused = (await tool.post("/v1/tokens", {"oauthAppRef": ref})).json()
    assert "ctx.oauth.client" in refused["error"]["message"]
    await stage.type(await embedded(stage), GOOD, "noGrant")
    name = ref if isinstance(ref, str) else APP
    [grant] = (await callers.operator.get(f"/v1/grants?app={name}")).json()["grants"]
    assert "meter" == grant["app"]


async def test_a_flows_request_carries_the_key_and_a_run_waits_for_one(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oauthbroker.flowtools.specification.spec.is_public_url", lambda _: True)
    world = world_in(tmp_path, ports=Ports(requests=BrokerRequests(stage.harness.broker)))
    nodes: dict[str, Any] = {"r": ("httpRequest", {"url": stage.api.url("/data"), "oauthAppRef": APP})}
    flow, broker = world.flow(nodes, chain("r")), stage.harness.broker
    async with resuming(broker, world.runs, lambda _: flow, seconds=3600.0):
        for reason, key, old in ROUNDS:
            stage.api.keys.pop(old, None)
            actor = Actor(id="alice", turn=turn())
            waiting = await asyncio.to_thread(world.runs.call, flow, {"id": "a"}, actor)
            assert "waiting" == waiting.state, waiting
            await stage.type(waiting.authorization, key, reason, Turn(AGENT, str(waiting.run), auth=turn().auth))
            async with asyncio.timeout(60):
                while (run := await asyncio.to_thread(world.runs.find, str(waiting.run))).due is not None:
                    await asyncio.sleep(0.05)
            assert ("succeeded", key) == (run.state, stage.api.seen[-1].headers["x-api-key"])
    world.database.engine.dispose()


async def test_an_mcp_session_carries_the_key_and_a_call_shows_the_link(stage: Stage) -> None:
    shown: list[AuthorizationRequired] = []

    async def show(asked: AuthorizationRequired) -> None:
        shown.append(asked)
        await stage.type(asked, *((GOOD, "noGrant") if len(shown) == 1 else (NEWER, "keyRejected")))

    for key, old in ((GOOD, ""), (NEWER, GOOD)):
        stage.api.keys.pop(old, None)
        transport = McpTransport(stage.harness.broker, turn(), APP, tool=TOOL, show=show)
        async with (
            httpx2.AsyncClient(transport=transport, trust_env=False) as http,
            McpClient(streamable_http_client(f"http://127.0.0.1:{stage.port}/mcp", http_client=http)) as client,
        ):
            assert "a reading" == text_of(await client.call_tool("whose", {}))
        assert key == stage.mcp.keys[-1]
    assert 2 == len(shown)


async def test_the_gateway_shows_a_server_that_takes_a_key(stage: Stage) -> None:
    async with McpClient(McpGateway(stage.harness.broker, ALICE).server, mode="2026-07-28") as client:
        for key, old in ((GOOD, ""), (NEWER, GOOD)):
            stage.api.keys.pop(old, None)
            asking = await client.call_tool("meter__oauthbroker_connect" if key == GOOD else "meter__whose", {})
            assert asking.is_error
            link = next(word for word in text_of(asking).split() if word.startswith("http"))
            person = stage.harness.browser()
            await person.open(link)
            form = person.page.form("decision")
            await person.submit({"decision": "continue", "credential.apiKey": key}, form=form)
            while person.page.location is not None:
                await person.follow()
            assert "is connected" in person.page.text
            assert "a reading" == text_of(await client.call_tool("meter__whose", {}))
            assert key == stage.mcp.keys[-1]


async def test_a_frameworks_run_pauses_for_a_key_and_goes_on(stage: Stage) -> None:
    """Before the tool, and in its middle where the API refuses the key."""
    runs, found = Runs(stage.harness), list[Any]()

    async def went_on(_run: Any, _end: Any) -> None:
        found.append(await embedded(stage))

    runs.then = went_on
    broker = stage.harness.broker
    missing = await consent_for(broker, turn(), "metrics")
    for reason, key, old in ROUNDS:
        stage.api.keys.pop(old, None)
        if old:
            async with stage.oauth().client(APP) as client:
                with pytest.raises(AuthorizationRequiredError) as caught:
                    await client.get(stage.api.url("/data"))
            missing = await lacked(broker, caught.value)
        assert isinstance(missing, AuthorizationRequired), missing
        await pause(broker, turn(), missing, run="thread")
        await stage.type(missing, key, reason)
        async with resume(broker, "planner", runs.go_on):
            await runs.settled()
        assert await consent_for(broker, turn(), "metrics") is None
    assert [DATA, DATA] == found


async def test_a_frameworks_mcp_server_takes_a_key(stage: Stage) -> None:
    server = OAuthMcp(stage.harness.broker, "metrics")
    await stage.type(await server.missing(turn()), GOOD, "noGrant")
    assert await server.missing(turn()) is None
    async with (
        server.http_clients(turn())() as http,
        McpClient(streamable_http_client(f"http://127.0.0.1:{stage.port}/mcp", http_client=http)) as client,
    ):
        assert "a reading" == text_of(await client.call_tool("whose", {}))
        del stage.api.keys[GOOD]
        refused = await client.call_tool("whose", {})
        assert refused.is_error
    await stage.type(await server.missing(turn()), NEWER, "keyRejected")
