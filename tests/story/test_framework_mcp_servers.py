"""The shared piece below the MCP clients of frameworks: the consent that a call lacks, its user, and the list of tools."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from oauthbroker import AuthorizationRequired, Turn
from oauthbroker.integrations import OAuthMcp
from oauthbroker.model.bundle import ToolAuth
from oauthbroker.model.provider_api import ApiAccess, ApiHost
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.running_broker import BOB, Harness, running, turn
from tests.story.mcp_apps_kit import McpSite, mcp_app, mcp_site
from tests.unit.protocol.kit import raw_answer

CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "send"}}
DONE = raw_answer(200, b'{"jsonrpc": "2.0", "id": 1, "result": {"content": []}}')
LARGER = raw_answer(403, b"", www_authenticate='Bearer error="insufficient_scope", scope="write"')


@asynccontextmanager
async def stage(idp: IdentityProvider, clock: TestClock) -> AsyncIterator[tuple[Harness, OAuthMcp, McpSite]]:
    """A user who has granted `read`, at a server that demands `write` once."""
    idp.takes_clients = True
    async with mcp_site(idp) as site:
        script, unknown = [LARGER, DONE], site.answer
        site.challenge = 'Bearer scope="read"'
        site.answer = lambda request: script.pop(0) if b"authorization: bearer" in request.lower() else unknown(request)  # type: ignore[method-assign]
        app = mcp_app(site, api=ApiAccess((ApiHost("127.0.0.1", site.server.port, "http"),), ("GET", "POST")))
        tools = {"Tool/tickets": (ToolAuth("mail", ("read", "write")),)}
        async with running(idp, [app], clock=clock, background=False, tools=tools) as harness:
            yield harness, OAuthMcp(harness.broker, "tickets"), site


async def called(server: OAuthMcp, site: McpSite, of: Turn) -> str:
    async with server.http_clients(of)() as http:
        return (await http.post(site.url, json=CALL)).json()["result"]["content"][0]["text"]  # type: ignore[no-any-return]


async def test_a_server_that_demands_larger_scopes_in_a_call_pauses_the_turn_and_no_other(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    async with stage(identity_provider, test_clock) as (harness, server, site):
        first = await server.missing(turn())
        assert isinstance(first, AuthorizationRequired)
        await harness.connect(first)
        assert await server.missing(turn()) is None
        text = await called(server, site, turn())
        lacks = server.lacks(turn(), text)
        assert lacks is not None
        assert lacks.result == await server.missing(turn())
        assert server.lacks(turn(user=BOB), text) is None
        assert server.lacks(turn(), "another text") is None
        (asked,) = await harness.broker.sessions.list(status="pending")
        assert {"read", "write"} == set(asked.scopes)
        await harness.connect(lacks.result)
        assert await server.missing(turn()) is None


async def test_tools_are_listed_when_the_user_has_consented_and_before_only_the_one_that_connects(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    async def tools() -> list[Any]:
        return ["send"]

    async with stage(identity_provider, test_clock) as (harness, server, _):
        assert ["ours"] == await server.listed(turn(), tools, "ours")
        first = await server.missing(turn())
        assert isinstance(first, AuthorizationRequired)
        await harness.connect(first)
        assert ["send"] == await server.listed(turn(), tools, "ours")
        assert ["ours"] == await server.listed(turn(user=BOB), tools, "ours")


@pytest.mark.parametrize("declared", [(), (ToolAuth("mail"), ToolAuth("mail", ("read",)))], ids=["none", "two"])
async def test_a_tool_that_declares_no_app_or_several_is_named(
    identity_provider: IdentityProvider, test_clock: TestClock, declared: tuple[ToolAuth, ...]
) -> None:
    async with stage(identity_provider, test_clock) as (harness, _, __):
        bundle = harness.broker.bundle
        object.__setattr__(harness.broker._services.config, "bundle", replace(bundle, tools={"Tool/x": declared}))
        with pytest.raises(ValueError, match="Tool/x declares no app, or several"):
            _ = OAuthMcp(harness.broker, "x").app
