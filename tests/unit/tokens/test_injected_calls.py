"""Tokens that a tool never gets: `delivery: injected`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from oauthbroker.audit import TokenInjected, TokenIssued, TokenRejected
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.injection.targets import Target
from oauthbroker.model.bundle import Bundle, ToolAuth
from oauthbroker.model.provider_api import AccountHost, ApiAccess, ApiHost
from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready, TokenResult
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.tokens.context import OAuthContext
from tests.kit.running_broker import Harness, running, turn, user_app
from tests.kit.samples import app_with

API = ApiAccess((ApiHost("api.example.com"),))
TARGET = Target(app=app_with(), method="GET", host=ApiHost("api.example.com"), path="/")
TOOLS = {
    "Tool/carried": (ToolAuth("mail", ("read",), injected=True),),
    "Tool/holder": (ToolAuth("mail"),),
    "Tool/other": (ToolAuth("closed"),),
}


@pytest.fixture
async def harness(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Harness]:
    apps = [
        user_app(identity_provider, api=API),
        user_app(identity_provider, "closed", api=replace(API, injected=True)),
    ]
    async with running(identity_provider, apps, clock=test_clock, tools=TOOLS, background=False) as harness:
        await harness.connected()
        yield harness


def context_of(harness: Harness, tool: str | None) -> OAuthContext:
    return harness.broker.oauth(turn(), tool)


def code_of(result: TokenResult) -> Code | str:
    return result.code if isinstance(result, Failed) else result.status


@pytest.mark.parametrize(("tool", "app"), [("Tool/carried", "mail"), ("Tool/other", "closed"), (None, "closed")])
async def test_a_token_that_is_injected_is_not_handed_out(harness: Harness, tool: str | None, app: str) -> None:
    context = context_of(harness, tool)
    before = len(harness.audit.entries)
    answers = [
        await context.get_access_token(app),
        await context.get_access_token(app, ["read"]),
        await context.report_rejected(app, Secret("a-token")),
    ]
    assert [Code.TOKEN_INJECTED_ONLY] * 3 == [code_of(answer) for answer in answers]
    said = await context.getAccessToken({"oauthAppRef": f"OAuthApp/{app}"})
    assert Code.TOKEN_INJECTED_ONLY.value == said["error"]["code"]
    assert [] == harness.audit.entries[before:]


async def test_a_token_that_was_injected_before_is_not_handed_out_from_the_cache(harness: Harness) -> None:
    context = context_of(harness, "Tool/carried")
    for _ in range(3):
        assert isinstance(await context.injected_calls("mail").token(TARGET), Ready)
        assert Code.TOKEN_INJECTED_ONLY is code_of(await context.get_access_token("mail"))


async def test_an_injected_token_has_the_tools_scopes_and_an_audit_entry_of_its_own(harness: Harness) -> None:
    calls = context_of(harness, "Tool/carried").injected_calls("OAuthApp/mail")
    before = len(harness.audit.entries)
    first, second = await calls.token(TARGET), await calls.token(TARGET)
    assert isinstance(first, Ready)
    assert first == second
    entries = [entry for entry in harness.audit.entries[before:] if isinstance(entry, TokenInjected)]
    assert [("Tool/carried", "GET", "api.example.com")] * 2 == [(each.tool, each.method, each.host) for each in entries]
    assert entries == harness.audit.entries[before:]
    assert Code.SCOPE_NOT_ALLOWED is code_of(
        await context_of(harness, "Tool/carried").injected_calls("mail", ["write"]).token(TARGET)
    )


async def test_a_tool_that_gets_tokens_has_them_injected_as_well(harness: Harness) -> None:
    context = context_of(harness, "Tool/holder")
    handed, injected = await context.get_access_token("mail"), await context.injected_calls("mail").token(TARGET)
    assert isinstance(handed, Ready)
    assert isinstance(injected, Ready)
    assert handed.access_token == injected.access_token
    assert [TokenIssued, TokenInjected] == [type(entry) for entry in harness.audit.entries[-2:]]


async def test_a_refused_token_is_reported_by_the_broker_and_another_one_is_injected(harness: Harness) -> None:
    calls = context_of(harness, "Tool/carried").injected_calls("mail")
    first = await calls.token(TARGET)
    assert isinstance(first, Ready)
    second = await calls.rejected(TARGET, first.access_token, frozenset(), "")
    assert isinstance(second, Ready)
    assert first.access_token != second.access_token
    assert any(isinstance(entry, TokenRejected) for entry in harness.audit.entries)
    assert isinstance(harness.audit.entries[-1], TokenInjected)


async def test_a_token_of_another_account_is_not_injected(harness: Harness) -> None:
    calls = context_of(harness, "Tool/carried").injected_calls("mail")
    for _ in range(2):
        assert Code.API_HOST_FORBIDDEN is code_of(
            await calls.token(replace(TARGET, account=AccountHost("instance_url", ".example.com")))
        )


async def test_a_person_is_asked_as_for_a_token(harness: Harness) -> None:
    assert isinstance(
        await context_of(harness, "Tool/other").injected_calls("closed").token(TARGET), AuthorizationRequired
    )


async def test_a_target_is_checked_after_the_caller(harness: Harness) -> None:
    calls = context_of(harness, "Tool/carried").injected_calls("mail")
    by_url, by_host = (
        calls.target("GET", "https://api.example.com/v1"),
        calls.target_at("GET", "api.example.com", "/v1"),
    )
    for target in (by_url, by_host):
        assert ("https", "api.example.com", "/v1") == (target.host.scheme, target.host.authority, target.path)
    for tool, app, code in (
        ("Tool/carried", "mail", Code.API_HOST_FORBIDDEN),
        ("Tool/carried", "closed", Code.APP_FORBIDDEN),
        ("Tool/carried", "nothing", Code.OAUTH_APP_NOT_FOUND),
    ):
        with pytest.raises(BrokerError) as error:
            context_of(harness, tool).injected_calls(app).target("GET", "https://evil.example/")
        assert code is error.value.code


async def test_a_demand_that_comes_with_a_reload_holds_at_once(harness: Harness) -> None:
    context, bundle = context_of(harness, "Tool/holder"), harness.broker.bundle
    assert isinstance(await context.get_access_token("mail"), Ready)
    assert isinstance(await context.get_access_token("mail"), Ready)
    app = replace(bundle.apps["mail"], api=replace(API, injected=True))
    await harness.broker.reload(Bundle(bundle.settings, {**bundle.apps, "mail": app}, bundle.tools))
    assert Code.TOKEN_INJECTED_ONLY is code_of(await context.get_access_token("mail"))


@pytest.mark.parametrize(
    ("tool", "app", "answer"),
    [
        ("Tool/carried", "mail", None),
        ("Tool/holder", "mail", None),
        ("Tool/other", "closed", AuthorizationRequired),
        ("Tool/other", "mail", Code.APP_FORBIDDEN),
        (None, "unknown", Code.OAUTH_APP_NOT_FOUND),
        (None, "Tool/mail", Code.REQUEST_INVALID),
    ],
)
async def test_missing_consent_is_asked_for_and_no_token_is_issued(harness, tool, app, answer):
    before = len(harness.audit.entries)
    found = await harness.broker.oauth(turn(), tool).missing_consent(app)
    if isinstance(answer, Code):
        assert isinstance(found, Failed)
        assert answer is found.code
    else:
        assert found is None if answer is None else isinstance(found, answer)
    issued = [each for each in harness.audit.entries[before:] if isinstance(each, TokenIssued | TokenInjected)]
    assert [] == issued


async def test_a_token_that_was_injected_before_is_not_injected_again_once_the_turn_has_ended(harness: Harness) -> None:
    calls = context_of(harness, "Tool/carried").injected_calls("mail")
    assert isinstance(await calls.token(TARGET), Ready)
    ended = False

    async def holds() -> None:
        if ended:
            raise BrokerError(Code.TURN_ENDED)

    calls = replace(calls, caller=replace(calls.caller, turn_holds=holds))
    assert isinstance(await calls.token(TARGET), Ready)
    ended = True
    assert Code.TURN_ENDED is code_of(await calls.token(TARGET))
