"""A tool reports that a provider's API refused its token: who gets another one, and when the user is asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.bundle import ToolAuth
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.mcp_server import McpServer
from oauthbroker.model.settings import Limits
from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.tokens.manager import OAuthManager
from oauthbroker.tokens.token_call import Caller
from tests.kit.running_broker import ALICE, Harness, running, turn, user_app
from tests.kit.samples import app_with

PER_HOUR = 3


@pytest.fixture
async def harness(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Harness]:
    apps, limits = [user_app(identity_provider)], Limits(rejections_per_hour=PER_HOUR)
    async with running(identity_provider, apps, clock=test_clock, background=False, limits=limits) as harness:
        yield harness


async def report(harness: Harness, token: Any) -> Any:
    return await harness.broker.oauth(turn()).report_rejected("mail", token)


async def test_a_reported_token_is_replaced_once_however_often_it_is_reported(harness: Harness) -> None:
    first = await harness.connected()
    second = await report(harness, first.access_token)
    assert isinstance(second, Ready)
    assert first.access_token != second.access_token
    again = await report(harness, first.access_token)
    assert isinstance(again, Ready)
    assert second.access_token == again.access_token, "another token than the present one costs no refresh"


async def test_a_grant_that_cannot_be_refreshed_asks_its_user_because_its_token_was_revoked(harness: Harness) -> None:
    first = await harness.connected()
    versioned = await harness.repository.grant(GrantKey("mail", ALICE))
    assert versioned is not None
    assert versioned.record.token is not None
    grant = replace(versioned.record, token=replace(versioned.record.token, refresh_token=None))
    await harness.repository.save_grant(grant, expect=versioned.generation)
    answer = await report(harness, first.access_token)
    assert isinstance(answer, AuthorizationRequired)
    assert "revoked" == answer.reason
    other = await report(harness, "another-token")
    assert isinstance(other, Ready)


async def test_a_reported_token_is_not_handed_out_again_once_its_refresh_token_is_dead(harness: Harness) -> None:
    first = await harness.connected()
    harness.idp.revoke_all("client-mail")
    assert isinstance(await report(harness, first.access_token), AuthorizationRequired)
    assert isinstance(await harness.ask(), AuthorizationRequired)


async def test_a_flood_of_reports_is_stopped_for_an_hour(harness: Harness, test_clock: TestClock) -> None:
    ready = await harness.connected()
    for _ in range(PER_HOUR):
        ready = await report(harness, ready.access_token)
        assert isinstance(ready, Ready)
    refused = await report(harness, ready.access_token)
    assert isinstance(refused, Failed)
    assert Code.RATE_LIMITED is refused.code
    assert refused.retry_after_seconds is not None
    assert 3590 <= refused.retry_after_seconds <= 3600
    test_clock.advance(3600)
    assert isinstance(await report(harness, (await harness.ask()).access_token), Ready)


# The scopes that an MCP server asks for first


@pytest.mark.parametrize(
    ("app", "declared", "wanted", "expected"),
    [
        ("mcp", None, ("read",), ("read",)),
        ("mcp", ("write", "read"), ("read", "write"), ("write", "read")),
        ("mcp", ("write",), ("read",), None),
        ("mcp", None, (), None),
        ("mail", None, ("read",), None),
        ("gone", None, ("read",), None),
    ],
)
async def test_the_first_scopes_are_those_of_the_server_within_the_callers(
    app: str, declared: Any, wanted: tuple[str, ...], expected: Any
) -> None:
    async def first_scopes(_: object) -> tuple[str, ...]:
        return wanted

    apps = {"mail": app_with(), "mcp": app_with(name="mcp", mcp=McpServer("https://m.example"))}
    manager = SimpleNamespace(calls=SimpleNamespace(apps=apps), mcp_clients=SimpleNamespace(first_scopes=first_scopes))
    tools = None if declared is None else (ToolAuth("mcp", declared),)
    caller = Caller(turn(), "Tool/x" if tools else None, tools)
    assert expected == await OAuthManager.first_scopes(cast("Any", manager), caller, app)


async def test_the_first_scopes_of_an_app_that_a_tool_did_not_declare_are_refused() -> None:
    apps = {"mcp": app_with(name="mcp", mcp=McpServer("https://m.example"))}
    manager = SimpleNamespace(calls=SimpleNamespace(apps=apps))
    with pytest.raises(BrokerError) as raised:
        await OAuthManager.first_scopes(cast("Any", manager), Caller(turn(), "Tool/x", ()), "mcp")
    assert Code.APP_FORBIDDEN is raised.value.code
