"""Two accounts of one user in the tool runtime and in flow tools."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oauthbroker import Turn
from oauthbroker.core.secret import Secret
from oauthbroker.flowtools.running.requests import BrokerRequests
from oauthbroker.flowtools.running.working import RunResult
from oauthbroker.flowtools.specification.failures import Actor
from oauthbroker.flowtools.specification.source import FlowRefused
from oauthbroker.model.apps import IdentityRule, Owner
from oauthbroker.model.bundle import ToolAuth
from oauthbroker.model.token_results import AuthorizationRequired
from oauthbroker.plugins import PluginResources
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.tools.calling.broker_turn import blocks_of
from oauthbroker.tools.types.results import ToolCall
from tests.kit.running_broker import Harness, running, turn, user_app
from tests.story.flow_kit import ConsentWorld, consent_world
from tests.story.tool_calls_kit import performed, registry_of

BOTH = ["work", "private"]
PERSONS = {"work": "alice", "private": "bob"}
SEVERAL: dict[str, Any] = {
    "owner": Owner(binding="localOperator", user_identity=IdentityRule("idToken", "idp:user:{sub}")),
    "several_accounts": True,
}


def listing(default: str | None = None) -> Turn:
    base = turn()
    assert base.auth is not None
    return replace(base, auth=replace(base.auth, accounts={"OAuthApp/mail": {"allowed": BOTH, "default": default}}))


async def connected(harness: Harness, account: str, scopes: list[str] | None = None) -> Secret:
    asked = await harness.ask("mail", scopes, listing(), account=account)
    assert isinstance(asked, AuthorizationRequired)
    assert 200 == (await harness.connect(asked, PERSONS[account])).status
    ready = await harness.ask("mail", scopes, listing(), account=account)
    return Secret(ready.access_token.reveal())


# --- the tool runtime


@pytest.fixture
async def harness(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Harness]:
    plugins, tools = {"tools": PluginResources()}, {"Tool/mail:send": (ToolAuth("mail"),)}
    apps = [user_app(identity_provider, **SEVERAL)]
    async with running(identity_provider, apps, clock=test_clock, plugins=plugins, tools=tools) as made:
        yield made


@pytest.mark.parametrize("waits", [True, False])
async def test_a_tool_of_the_runtime_names_an_account_that_its_turn_lists(harness: Harness, waits: bool) -> None:
    tokens = {account: await connected(harness, account) for account in BOTH}

    def matching(result: Any) -> list[str]:
        if result.status != "ready":
            return [result.code.value]
        return [name for name, token in tokens.items() if token == result.access_token]

    async def waiting(ctx: Any, args: dict[str, Any]) -> Any:
        one = await ctx.oauth.get_access_token("mail", account=args["account"])
        other = await ctx.oauth.get_access_token(f"OAuthApp/mail@{args['account']}")
        return matching(one) + matching(other)

    def blocking(ctx: Any, args: dict[str, Any]) -> Any:
        one = ctx.oauth.get_access_token("mail", account=args["account"])
        other = ctx.oauth.get_access_token(f"OAuthApp/mail@{args['account']}")
        return matching(one) + matching(other)

    handler: Any = waiting if waits else blocking
    registry = registry_of(mail__send=handler)
    for number, account in enumerate([*BOTH, "other"]):
        call = ToolCall(f"turn-1.0.{number}", "mail__send", {"account": account})
        done = await performed(harness.broker, registry, call, of=listing())
        assert [account if account in BOTH else "accountForbidden"] * 2 == done.output


async def test_the_block_of_the_next_step_names_the_account_that_is_asked_for(harness: Harness) -> None:
    async def handler(ctx: Any, args: dict[str, Any]) -> Any:
        return await ctx.oauth.get_access_token("mail@private")

    await performed(harness.broker, registry_of(mail__send=handler), of=listing())
    [block] = await blocks_of(harness.broker, listing())
    assert ["private"] == [item["account"] for item in block["items"]]


# --- flow tools


@pytest.fixture
async def flows(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ConsentWorld]:
    monkeypatch.setattr("oauthbroker.flowtools.specification.spec.is_public_url", lambda _: True)
    async with consent_world(identity_provider, test_clock, tmp_path, **SEVERAL) as made:
        yield made


async def called(flows: ConsentWorld, default: str | None) -> RunResult:
    return await flows.call(Actor(id="alice", roles=frozenset({"staff"}), turn=listing(default)))


def tokens_sent(flows: ConsentWorld) -> list[str]:
    lines = [line for head in flows.api.requests for line in head.split(b"\r\n")]
    return [line.partition(b"earer ")[2].decode() for line in lines if line.lower().startswith(b"authorization:")]


@pytest.mark.parametrize("default", BOTH)
async def test_a_flow_tool_uses_the_default_account_of_its_callers_turn(flows: ConsentWorld, default: str) -> None:
    tokens = {account: await connected(flows.harness, account) for account in BOTH}
    assert "succeeded" == (await called(flows, default)).state
    assert [tokens[default].reveal()] == tokens_sent(flows)


async def test_a_run_waits_for_the_default_account_and_goes_on_with_it(flows: ConsentWorld) -> None:
    await connected(flows.harness, "work")
    async with flows.resuming():
        result = await called(flows, "private")
        assert result.authorization is not None
        assert "private" == (await flows.harness.session(result.authorization)).account
        await flows.harness.connect(result.authorization, "bob")
        assert "succeeded" == (await flows.ended(result.run)).state
    private = await flows.harness.ask(of=listing(), account="private")
    assert [private.access_token.reveal()] == tokens_sent(flows)


async def test_a_flow_tool_of_a_turn_without_a_default_sends_nothing(flows: ConsentWorld) -> None:
    for account in BOTH:
        await connected(flows.harness, account)
    result = await called(flows, None)
    assert "succeeded" != result.state
    assert "accountRequired" in str(result.message)
    assert [] == flows.api.requests


async def test_a_check_before_a_deployment_needs_no_account_and_a_node_names_none(flows: ConsentWorld) -> None:
    requests = BrokerRequests(flows.harness.broker)
    url = f"http://127.0.0.1:{flows.api.port}/v1"
    assert "" == await asyncio.to_thread(requests.problem, "OAuthApp/mail", "POST", url)
    config = {"url": url, "oauthAppRef": "OAuthApp/mail@work", "method": "POST"}
    with pytest.raises(FlowRefused, match="oauthAppRef"):
        flows.world.flow({"r": ("httpRequest", config)}, [])
