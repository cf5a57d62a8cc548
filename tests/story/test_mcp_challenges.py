"""What an MCP server may answer to our client's transport, and what a hostile one gets by it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from oauthbroker.audit import TokenInjected
from oauthbroker.mcp import McpTransport
from oauthbroker.mcp.client_transport import MOST_ASKED
from oauthbroker.mcp.consent import INPUT
from oauthbroker.model.bundle import ToolAuth
from oauthbroker.model.provider_api import ApiAccess, ApiHost
from oauthbroker.testing import IdentityProvider, TestClock, connect_through
from tests.kit.running_broker import Harness, running, turn, user_app
from tests.story.mcp_apps_kit import mcp_app, mcp_site
from tests.unit.protocol.kit import RawServer, raw_answer

DONE = raw_answer(200, b'{"jsonrpc": "2.0", "id": 1, "result": {"resultType": "complete", "content": []}}')

ELICITS: dict[str, Any] = {"_meta": {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"url": {}}}}}


def demands(scope: str) -> bytes:
    challenge = f'Bearer error="insufficient_scope", scope="{scope}", resource_metadata="https://mcp.example/x"'
    return raw_answer(403, b"", www_authenticate=challenge)


class Session:
    """A host's session with an MCP server that a test scripts, below the SDK."""

    def __init__(self, harness: Harness, server: RawServer, transport: McpTransport) -> None:
        self.harness, self.server = harness, server
        self.http = httpx2.AsyncClient(transport=transport, headers={"mcp-protocol-version": "2026-07-28"})

    async def call(self, **params: Any) -> httpx2.Response:
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "send", **ELICITS, **params}}
        return await self.http.post(f"{self.server.url}/mcp", json=body)

    async def result(self, **params: Any) -> dict[str, Any]:
        result = (await self.call(**params)).json()["result"]
        assert isinstance(result, dict)
        return result

    @property
    def received(self) -> list[dict[str, Any]]:
        """Return the params that the server got."""
        found = [json.loads(each.partition(b"\r\n\r\n")[2])["params"] for each in self.server.requests]
        return [{name: value for name, value in params.items() if name not in ELICITS} for params in found]

    async def consent(self, result: dict[str, Any]) -> None:
        url = result["inputRequests"][INPUT]["params"]["url"]
        await connect_through(self.harness.browser(), self.harness.idp, url)


@asynccontextmanager
async def session(
    idp: IdentityProvider, clock: TestClock, script: Iterable[bytes], granted: list[str] | None, *, seconds: float = 0
) -> AsyncIterator[Session]:
    """A session that starts with the scope `read`. The server gives one answer of the script after the other."""
    left = list(script)

    async def handle(_: Any, writer: Any) -> None:
        await asyncio.sleep(seconds)
        writer.write(left.pop(0) if len(left) > 1 else left[0])
        await writer.drain()

    async with RawServer(handle) as server:
        access = ApiAccess((ApiHost("127.0.0.1", server.port, "http"),), ("GET", "POST"))
        async with running(idp, [user_app(idp, api=access)], clock=clock, background=False) as harness:
            await harness.connected(scopes=granted)
            transport = McpTransport(harness.broker, turn(), "OAuthApp/mail", scopes=["read"], patience_seconds=1)
            yield Session(harness, server, transport)


async def test_scopes_that_the_server_demands_are_used_from_then_on(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    async with session(identity_provider, test_clock, [demands("write read"), DONE], None) as made:
        assert (await made.result())["resultType"] == "complete"
        assert (await made.result())["resultType"] == "complete"
        assert 3 == len(made.server.requests)


async def test_scopes_of_a_401_are_used_from_then_on(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    refused = raw_answer(401, b"", www_authenticate='Bearer error="invalid_token", scope="read write"')
    async with session(identity_provider, test_clock, [refused, refused, DONE], None) as made:
        assert (await made.result())["resultType"] == "complete"
        assert (await made.result())["resultType"] == "complete"
        assert 4 == len(made.server.requests)  # the first token, the refreshed one, and the larger one twice


async def test_scopes_that_the_user_has_not_granted_are_asked_for(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    async with session(identity_provider, test_clock, [demands("write"), DONE], ["read"]) as made:
        asked = await made.result()
        assert "input_required" == asked["resultType"]
        await made.consent(asked)
        assert "complete" == (await made.result(requestState=asked["requestState"]))["resultType"]
        grant = await made.harness.grant()
        assert grant is not None
        assert {"read", "write"} <= set(grant.scopes)


@pytest.mark.parametrize(
    ("challenge", "listed", "tool", "asked"),
    [
        ('Bearer scope="read"', ["write"], None, {"read"}),
        ("Bearer", ["read"], None, {"read"}),
        ("Bearer", None, None, {"read", "write", "admin"}),
        ('Bearer scope="root"', None, None, {"read", "write", "admin"}),
        ('Bearer scope="read write"', None, "Tool/reader", {"read"}),
    ],
    ids=["the challenge's", "the listed ones", "no wish", "a wish beyond the ceiling", "a tool that declared less"],
)
async def test_a_session_begins_with_the_scopes_that_the_server_asks_for(
    identity_provider: IdentityProvider,
    test_clock: TestClock,
    challenge: str,
    listed: list[str] | None,
    tool: str | None,
    asked: set[str],
) -> None:
    """Within the app's, and within what the tool declared. Larger ones are asked for when the server demands them."""
    identity_provider.takes_clients = True
    async with mcp_site(identity_provider) as site:
        site.challenge = challenge
        site.publish(scopes_supported=listed)
        app = mcp_app(site, api=ApiAccess((ApiHost("127.0.0.1", site.server.port, "http"),), ("GET", "POST")))
        tools = {"Tool/reader": (ToolAuth("mail", ("read",)),)}
        async with running(identity_provider, [app], clock=test_clock, background=False, tools=tools) as harness:
            transport = McpTransport(harness.broker, turn(), "OAuthApp/mail", tool=tool)
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "send", **ELICITS}}
            headers = {"mcp-protocol-version": "2026-07-28"}
            async with httpx2.AsyncClient(transport=transport, headers=headers) as http:
                assert "input_required" in (await http.post(site.url, json=body)).text
            (session,) = await harness.broker.sessions.list()
            assert asked == set(session.scopes)


@pytest.mark.case("115")
async def test_scopes_beyond_the_ceiling_end_the_call_and_are_not_asked_for_again(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    async with session(identity_provider, test_clock, [demands("read root")], None) as made:
        refused = await made.result()
        assert refused["isError"]
        assert 1 == len(made.server.requests)
        assert 403 == (await made.call()).status_code
        assert 2 == len(made.server.requests)


@pytest.mark.case("115")
async def test_a_server_that_demands_again_and_again_gets_two_requests(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    script = [demands("write"), demands("admin"), demands("write admin")]
    async with session(identity_provider, test_clock, script, None) as made:
        assert 403 == (await made.call()).status_code
        assert 2 == len(made.server.requests)
        assert 403 == (await made.call()).status_code
        assert 3 == len(made.server.requests)


@pytest.mark.case("115")
async def test_a_server_that_refuses_every_token_asks_the_user_twice_at_most(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    """Its tokens cannot be refreshed, so each refusal asks for consent."""
    identity_provider.script.token.alter(lambda found: {**found, "refresh_token": None}, times=None)
    refused = raw_answer(401, b"", www_authenticate='Bearer error="invalid_token"')
    async with session(identity_provider, test_clock, [refused], None) as made:
        asked = await made.result()
        for _ in range(2):
            assert "input_required" == asked["resultType"]
            await made.consent(asked)
            ours = {"requestState": asked["requestState"], "inputResponses": {INPUT: {"action": "accept"}}}
            asked = await made.result(**ours)
        assert asked["isError"]
        assert "has just consented" in asked["content"][0]["text"]


@pytest.mark.parametrize(("scope", "asked"), [("write", {"read", "write"}), ("write root", {"read"})])
async def test_a_401_that_no_refresh_can_fix_asks_at_once_for_the_demanded_scopes_within_the_ceiling(
    identity_provider: IdentityProvider, test_clock: TestClock, scope: str, asked: set[str]
) -> None:
    """A demand that goes beyond the ceiling asks for nothing more."""
    identity_provider.script.token.alter(lambda found: {**found, "refresh_token": None}, times=None)
    refused = raw_answer(401, b"", www_authenticate=f'Bearer error="invalid_token", scope="{scope}"')
    async with session(identity_provider, test_clock, [refused, DONE], ["read"]) as made:
        first = await made.result()
        assert "input_required" == first["resultType"]
        await made.consent(first)
        assert "complete" == (await made.result(requestState=first["requestState"]))["resultType"]
        grant = await made.harness.grant()
        assert grant is not None
        assert asked == set(grant.scopes)
        assert 2 == len(made.server.requests)


@pytest.mark.case("116")
async def test_state_and_answers_of_the_server_pass_and_ours_never_reach_it(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    theirs = {"requestState": "sealed by the server", "inputResponses": {"theirs": {"action": "accept"}}}
    async with session(identity_provider, test_clock, [DONE], None) as made:
        await made.result(**theirs)
        assert await made.harness.broker.revoke("OAuthApp/mail", subject="idp:user:U234567")
        asked = await made.result(**theirs)
        await made.consent(asked)
        ours = {"requestState": asked["requestState"], "inputResponses": {INPUT: {"action": "accept"}}}
        assert "complete" == (await made.result(**ours))["resultType"]
        assert [{"name": "send", **theirs}] * 2 == made.received


@pytest.mark.case("116")
async def test_state_of_another_users_session_gets_nothing(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    async with session(identity_provider, test_clock, [DONE], None) as made:
        assert await made.harness.broker.revoke("OAuthApp/mail", subject="idp:user:U234567")
        asked = await made.result()
        other = turn("idp:user:U345678")
        of_bob = Session(
            made.harness, made.server, McpTransport(made.harness.broker, other, "OAuthApp/mail", scopes=["read"])
        )
        await made.consent(asked)
        assert "input_required" == (await of_bob.result(requestState=asked["requestState"]))["resultType"]
        assert [] == made.server.requests


@pytest.mark.case("116")
async def test_our_state_never_reaches_the_server_even_if_its_request_is_forgotten(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    async with session(identity_provider, test_clock, [DONE], None) as made:
        assert await made.harness.broker.revoke("OAuthApp/mail", subject="idp:user:U234567")
        first = await made.result()
        for _ in range(MOST_ASKED):
            await made.result()
        ours, theirs = {INPUT: {"action": "accept"}}, {"theirs": {"action": "accept"}}
        again = await made.result(requestState=first["requestState"], inputResponses=ours)
        assert "input_required" == again["resultType"]
        await made.consent(again)
        for responses in ({**ours, **theirs}, ours, "no object"):
            assert (
                "complete"
                == (await made.result(requestState=first["requestState"], inputResponses=responses))["resultType"]
            )
        assert [{"name": "send", "inputResponses": theirs}, *[{"name": "send"}] * 2] == made.received


@pytest.mark.case("138")
@pytest.mark.parametrize("state", [f"{INPUT}-0", f"{INPUT}-as-0123456789012345678901-0", f"{INPUT}:0", "sealed", 7])
async def test_a_server_that_imitates_our_question_takes_no_waiting_request_and_ends_no_authorization(
    identity_provider: IdentityProvider, test_clock: TestClock, state: Any
) -> None:
    link = {"mode": "url", "message": "Connect", "url": "https://hostile.example"}
    asks = {INPUT: {"method": "elicitation/create", "params": link}}
    imitation = {"resultType": "input_required", "requestState": state, "inputRequests": asks}
    script = [raw_answer(200, json.dumps({"jsonrpc": "2.0", "id": 1, "result": imitation}).encode()), DONE]
    async with session(identity_provider, test_clock, script, None) as made:
        assert imitation == await made.result()
        assert await made.harness.broker.revoke("OAuthApp/mail", subject="idp:user:U234567")
        asked = await made.result()
        said = {"requestState": state, "inputResponses": {INPUT: {"action": "decline"}}}
        assert "input_required" == (await made.result(**said))["resultType"]
        await made.consent(asked)
        assert "complete" == (await made.result(requestState=asked["requestState"]))["resultType"]
        assert 2 == len(made.server.requests)


@pytest.mark.parametrize(
    "capabilities", [None, "url", {}, {"elicitation": None}, {"elicitation": {}}, {"elicitation": {"form": {}}}]
)
async def test_without_url_elicitation_in_the_request_the_link_is_a_text(
    identity_provider: IdentityProvider, test_clock: TestClock, capabilities: Any
) -> None:
    async with session(identity_provider, test_clock, [DONE], None) as made:
        assert await made.harness.broker.revoke("OAuthApp/mail", subject="idp:user:U234567")
        for meta in ({"io.modelcontextprotocol/clientCapabilities": capabilities}, capabilities):
            made.harness.clock.advance(3600)  # a new link: nothing waits for the first one
            asked = await made.result(_meta=meta)
            assert asked["isError"]
            assert "/connect/" in asked["content"][0]["text"]


@pytest.mark.case("117")
@pytest.mark.parametrize("place", ["http://127.0.0.1:9/mcp", "https://elsewhere.example/mcp"])
async def test_the_token_goes_to_no_host_but_the_apps_own(
    identity_provider: IdentityProvider, test_clock: TestClock, place: str
) -> None:
    moved = raw_answer(307, b"", location=place)
    async with session(identity_provider, test_clock, [moved], None) as made:
        assert 307 == (await made.call()).status_code
        answer = await made.http.post(place, json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {}})
        assert answer.json()["result"]["isError"]
        hosts = {each.host for each in made.harness.audit.entries if isinstance(each, TokenInjected)}
        assert {f"127.0.0.1:{made.server.port}"} == hosts


async def test_a_slow_tool_outlives_the_timeout_of_the_hosts_http_client(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    async with session(identity_provider, test_clock, [DONE], None, seconds=0.3) as made:
        made.http.timeout = 0.05
        assert "complete" == (await made.result())["resultType"]


@pytest.mark.parametrize("body", [b'{"jsonrpc": "2.0", "method": "notifications/progress"}', b"[]", b"no JSON"])
async def test_a_message_that_has_no_answer_fails_without_one(
    identity_provider: IdentityProvider, test_clock: TestClock, body: bytes
) -> None:
    async with session(identity_provider, test_clock, [DONE], None) as made:
        assert await made.harness.broker.revoke("OAuthApp/mail", subject="idp:user:U234567")
        assert 503 == (await made.http.post(f"{made.server.url}/mcp", content=body)).status_code
        assert [] == made.server.requests
