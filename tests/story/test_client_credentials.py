"""Client credentials: a token without a person. It is fetched, kept, shared and fetched again; no person is ever asked."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.core.errors import Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import Client, Redirect
from oauthbroker.model.bundle import ToolAuth
from oauthbroker.model.token_results import Failed, Ready
from oauthbroker.observability.metrics import Metric
from oauthbroker.testing import Canaries, IdentityProvider, TestClock
from oauthbroker.testing.provider import FOREVER
from tests.kit.running_broker import BASE, BOB, SCOPES, TEAM, Harness, UnwellStore, file_store, running, turn
from tests.story.client_credentials_kit import MACHINE, machine_app, machine_failed, machine_ready, team_turn

TOOLS = {"Tool/reader": (ToolAuth(MACHINE, ("read",)),), "Tool/all": (ToolAuth(MACHINE),)}


def asked(idp: IdentityProvider) -> int:
    return idp.count("client_credentials")


async def test_a_token_comes_without_a_person_a_session_or_a_link(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    async with running(identity_provider, [machine_app(identity_provider)], clock=test_clock) as harness:
        got = await machine_ready(harness)
        assert identity_provider.is_alive(got.access_token)
        assert (SCOPES, "bearer", False) == (got.scopes, got.token_type, got.degraded)
        assert [] == [held async for held in harness.repository.sessions()]
        assert await harness.broker.pending(team_turn()) is None
        assert await harness.event(wait=0) is None
        assert (0, 0) == (identity_provider.count("authorize"), identity_provider.count("userinfo"))
        grant = await harness.grant(MACHINE, TEAM)
        assert grant is not None
        assert grant.token is not None
        assert ("client_credentials", None, None) == (grant.flow, grant.token.refresh_token, grant.pinned)


async def test_it_serves_every_call_until_it_runs_out(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    async with running(identity_provider, [machine_app(identity_provider)], clock=test_clock) as harness:
        first = await machine_ready(harness)
        test_clock.advance(3600 - 301)
        assert first.access_token == (await machine_ready(harness)).access_token
        assert 1 == asked(identity_provider)
        test_clock.advance(2)
        second = await machine_ready(harness)
        assert (2, True) == (asked(identity_provider), identity_provider.is_alive(second.access_token))
        assert first.access_token != second.access_token


async def test_many_callers_at_once_are_one_request(identity_provider: IdentityProvider, test_clock: TestClock) -> None:
    async with running(identity_provider, [machine_app(identity_provider)], clock=test_clock) as harness:
        identity_provider.script.token.delay(0.05)
        tokens = await asyncio.gather(*(machine_ready(harness) for _ in range(40)))
        assert (1, 1) == (asked(identity_provider), len({each.access_token.reveal() for each in tokens}))


async def test_two_processes_share_what_one_of_them_fetched(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path
) -> None:
    """Two brokers on one store stand for two processes; the provider lease lies in the store."""
    app = machine_app(identity_provider)
    identity_provider.script.token.delay(0.05)
    async with (
        running(identity_provider, [app], clock=test_clock, store=file_store(tmp_path, test_clock)) as one,
        running(identity_provider, [app], clock=test_clock, store=file_store(tmp_path, test_clock)) as other,
    ):
        tokens = await asyncio.gather(*(machine_ready(harness) for harness in (one, other) * 5))
        assert (1, 1) == (asked(identity_provider), len({each.access_token.reveal() for each in tokens}))


@pytest.mark.rule("12.5.1-2", "Tool.spec.auth")
async def test_a_tool_gets_the_apps_one_token_and_never_more_than_the_apps_scopes(
    identity_provider: IdentityProvider,
) -> None:
    """The request names all of the app's scopes, not those of the first call; a tool that wants more is refused here."""
    app = machine_app(identity_provider, scopes=("read", "write"))
    async with running(identity_provider, [app], tools=TOOLS) as harness:
        narrow = await harness.broker.oauth(team_turn(), tool="Tool/reader").get_access_token(MACHINE)
        wide = await harness.broker.oauth(team_turn(), tool="Tool/all").get_access_token(MACHINE)
        assert isinstance(narrow, Ready)
        assert isinstance(wide, Ready)
        assert (narrow.access_token, 1) == (wide.access_token, asked(identity_provider))
        [request] = identity_provider.seen("token")
        assert "read write" == request.form["scope"]
        for tool, scopes in (("Tool/reader", ["write"]), ("Tool/all", ["admin"])):
            result = await harness.broker.oauth(team_turn(), tool=tool).get_access_token(MACHINE, scopes)
            assert isinstance(result, Failed)
            assert Code.SCOPE_NOT_ALLOWED is result.code
        assert 1 == asked(identity_provider)


async def test_the_token_belongs_to_the_turns_global_subject(identity_provider: IdentityProvider) -> None:
    async with running(identity_provider, [machine_app(identity_provider)]) as harness:
        await machine_ready(harness)
        none = await harness.ask(MACHINE, None, turn(user=BOB, team=None))
        assert isinstance(none, Failed)
        assert Code.SUBJECT_UNAVAILABLE is none.code
        other = await harness.ask(MACHINE, None, turn(team="idp:team:T999"))
        assert isinstance(other, Ready)
        assert (2, True) == (asked(identity_provider), await harness.grant(MACHINE, "idp:team:T999") is not None)


@pytest.mark.case("54")
@pytest.mark.parametrize("error", ["invalid_client", "unauthorized_client", "invalid_scope", "invalid_grant"])
async def test_a_client_that_is_refused_is_the_operators_and_no_persons(
    identity_provider: IdentityProvider, test_clock: TestClock, error: str
) -> None:
    async with running(identity_provider, [machine_app(identity_provider)], clock=test_clock) as harness:
        identity_provider.script.token.refuse(error, times=FOREVER)
        failed = await machine_failed(harness)
        assert (Code.APP_MISCONFIGURED, False) == (failed.code, failed.retryable)
        assert await harness.grant(MACHINE, TEAM) is None
        assert Code.APP_MISCONFIGURED is (await machine_failed(harness)).code
        assert 1 == asked(identity_provider), "a provider that refuses our client is left in peace for a while"
        identity_provider.script.reset()
        test_clock.advance(61)
        await machine_ready(harness)


@pytest.mark.case("54")
async def test_a_refused_client_leaves_a_living_token_usable(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    async with running(identity_provider, [machine_app(identity_provider)], clock=test_clock) as harness:
        first = await machine_ready(harness)
        identity_provider.script.token.refuse("invalid_client", times=FOREVER)
        test_clock.advance(3600 - 60)
        late = await machine_ready(harness)
        assert (first.access_token, True) == (late.access_token, late.degraded)
        test_clock.advance(61)
        assert Code.APP_MISCONFIGURED is (await machine_failed(harness)).code


DOWN = [
    pytest.param(lambda token: token.answer(503, times=FOREVER), Code.PROVIDER_UNREACHABLE, id="503"),
    pytest.param(lambda token: token.busy("9", 429, times=FOREVER), Code.PROVIDER_RATE_LIMITED, id="429"),
    pytest.param(lambda token: token.close_after_accept(times=FOREVER), Code.PROVIDER_UNREACHABLE, id="hangs up"),
    pytest.param(
        lambda token: token.close_after_accept(after_work=True, times=FOREVER),
        Code.PROVIDER_UNREACHABLE,
        id="answer lost",
    ),
]


@pytest.mark.case("55", "56")
@pytest.mark.parametrize("spoil, code", DOWN)
async def test_while_the_provider_is_down_an_expired_token_is_an_error_that_may_pass(
    identity_provider: IdentityProvider, test_clock: TestClock, spoil: Any, code: Code
) -> None:
    async with running(identity_provider, [machine_app(identity_provider)], clock=test_clock) as harness:
        await machine_ready(harness)
        spoil(identity_provider.script.token)
        test_clock.advance(3600)
        failed = await machine_failed(harness)
        assert (code, True) == (failed.code, failed.retryable)
        assert [] == [held async for held in harness.repository.sessions()]
        identity_provider.script.reset()
        test_clock.advance(61)
        await machine_ready(harness)


ODD = [
    pytest.param({"access_token": None}, Code.TOKEN_RESPONSE_INVALID, id="no token"),
    pytest.param({"token_type": "DPoP"}, Code.TOKEN_RESPONSE_INVALID, id="unasked kind"),
    pytest.param({"expires_in": "soon"}, Code.TOKEN_RESPONSE_INVALID, id="odd lifetime"),
    pytest.param({"scope": "read write admin everything"}, Code.SCOPE_EXCEEDED, id="wider"),
]


@pytest.mark.parametrize("members, code", ODD)
async def test_an_answer_that_is_not_believed_stores_nothing(
    identity_provider: IdentityProvider, members: dict[str, Any], code: Code
) -> None:
    async with running(identity_provider, [machine_app(identity_provider)]) as harness:
        identity_provider.script.token.fields(**members)
        assert Code.PROVIDER_UNREACHABLE is (await machine_failed(harness)).code
        assert await harness.grant(MACHINE, TEAM) is None
        [line] = [line for line in map(json.loads, harness.log.getvalue().splitlines()) if "fetched" in line["event"]]
        assert (MACHINE, code.value) == (line["app"], line["code"])
        assert 1 == harness.broker.metrics.value(Metric.REFRESH_FAILURES, code.value)
        harness.clock.advance(61)  # not at every call: the next answer is likely to be as bad
        await machine_ready(harness)


async def test_a_refresh_token_and_an_id_token_that_come_along_are_not_kept(
    identity_provider: IdentityProvider, test_clock: TestClock, canaries: Canaries
) -> None:
    """RFC 6749 section 4.4.3. When the token runs out, a new one is fetched."""
    stray = canaries.mint("refresh token").reveal()
    identity_provider.script.token.fields(refresh_token=stray, id_token="a.b.c")
    async with running(identity_provider, [machine_app(identity_provider)], clock=test_clock) as harness:
        await machine_ready(harness)
        grant = await harness.grant(MACHINE, TEAM)
        assert grant is not None
        assert () == grant.refresh_tokens
        test_clock.advance(3600)
        await machine_ready(harness)
        assert (2, 0) == (asked(identity_provider), identity_provider.count("refresh_token"))


async def test_fewer_scopes_than_asked_are_reported_and_not_asked_for_again_and_again(
    identity_provider: IdentityProvider,
) -> None:
    async with running(identity_provider, [machine_app(identity_provider)]) as harness:
        identity_provider.script.token.fields(scope="read", times=FOREVER)
        assert ("read",) == (await machine_ready(harness, ["read"])).scopes
        for _ in range(3):
            assert Code.SCOPE_INSUFFICIENT is (await machine_failed(harness, ["write"])).code
        assert 1 == asked(identity_provider)


@pytest.mark.case("60")
async def test_a_minimum_beyond_what_the_provider_gives_is_told_without_asking_again(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    async with running(identity_provider, [machine_app(identity_provider)], clock=test_clock) as harness:
        await machine_ready(harness)
        for seconds in (3600, 7200):
            assert Code.MIN_TTL_UNSATISFIABLE is (await machine_failed(harness, min_ttl_seconds=seconds)).code
        assert 1 == asked(identity_provider)
        test_clock.advance(10)
        assert 3600 == await _left(harness, await machine_ready(harness, min_ttl_seconds=3595))
        assert 2 == asked(identity_provider)


async def _left(harness: Harness, got: Ready) -> float:
    assert got.expires_at is not None
    return (got.expires_at - harness.clock.now()).total_seconds()


async def test_a_token_without_an_end_is_kept(identity_provider: IdentityProvider, test_clock: TestClock) -> None:
    identity_provider.script.token.fields(expires_in=None, times=FOREVER)
    async with running(identity_provider, [machine_app(identity_provider)], clock=test_clock) as harness:
        first = await machine_ready(harness)
        test_clock.advance(10 * 24 * 3600)
        assert first.access_token == (await machine_ready(harness, min_ttl_seconds=86_400)).access_token
        assert (1, None) == (asked(identity_provider), first.expires_at)


@pytest.mark.case("61")
async def test_a_token_that_the_api_refuses_is_replaced_once_for_all_who_say_so(
    identity_provider: IdentityProvider,
) -> None:
    async with running(identity_provider, [machine_app(identity_provider)]) as harness:
        first = await machine_ready(harness)
        tools = [harness.broker.oauth(team_turn()) for _ in range(20)]
        newer = await asyncio.gather(*(tool.report_rejected(MACHINE, first.access_token) for tool in tools))
        assert 2 == asked(identity_provider)
        assert 1 == len({each.access_token.reveal() for each in newer if isinstance(each, Ready)})


@pytest.mark.case("61")
@pytest.mark.parametrize("again", ["the same token", "an error", "silence"])
async def test_a_report_counts_with_any_outcome(
    identity_provider: IdentityProvider, test_clock: TestClock, again: str
) -> None:
    """A provider that keeps its tokens for as long as they live gives the same one again, report or no report."""
    async with running(identity_provider, [machine_app(identity_provider)], clock=test_clock) as harness:
        first = await machine_ready(harness)
        token = identity_provider.script.token
        if again == "the same token":
            token.fields(access_token=first.access_token.reveal(), times=FOREVER)
        elif again == "an error":
            token.answer(200, {"expires_in": 3600}, times=FOREVER)
        else:
            token.close_after_accept(times=FOREVER)
        tool = harness.broker.oauth(team_turn())
        codes = {"the same token": Code.TOKEN_UNCHANGED, "an error": Code.TOKEN_RESPONSE_INVALID}
        test_clock.advance(61)
        reported = await tool.report_rejected(MACHINE, first.access_token)
        assert isinstance(reported, Failed)
        assert codes.get(again, Code.PROVIDER_UNREACHABLE) is reported.code
        for _ in range(39):
            test_clock.advance(61)
            reported = await tool.report_rejected(MACHINE, first.access_token)
        assert isinstance(reported, Failed)
        assert Code.RATE_LIMITED is reported.code
        assert 1 + harness.broker.bundle.settings.limits.rejections_per_hour == asked(identity_provider)
        assert first.access_token == (await machine_ready(harness)).access_token


@pytest.mark.parametrize("first", [True, False], ids=["the first one", "a later one"])
async def test_while_the_disk_is_full_nothing_is_asked_for_that_could_not_be_kept(
    identity_provider: IdentityProvider, test_clock: TestClock, *, first: bool
) -> None:
    store = UnwellStore(test_clock)
    async with running(identity_provider, [machine_app(identity_provider)], clock=test_clock, store=store) as harness:
        if not first:
            await machine_ready(harness)
            test_clock.advance(3600)
        before, store.refuses = asked(identity_provider), 1000
        for _ in range(10):
            failed = await machine_failed(harness)
            assert (Code.STORE_UNAVAILABLE, True) == (failed.code, failed.retryable)
        assert before == asked(identity_provider)
        store.refuses = 0
        got = await machine_ready(harness)
        grant = await harness.grant(MACHINE, TEAM)
        assert grant is not None
        assert grant.token is not None
        assert (before + 1, got.access_token) == (asked(identity_provider), grant.token.access_token)


async def test_a_revoked_one_is_told_to_the_provider_and_fetched_anew_when_needed(
    identity_provider: IdentityProvider,
) -> None:
    """Revoking ends the token, not the app: to stop its tokens, take the app out of the configuration."""
    async with running(identity_provider, [machine_app(identity_provider)]) as harness:
        first = await machine_ready(harness)
        await harness.broker.revoke(MACHINE, subject=TEAM)
        assert not identity_provider.is_alive(first.access_token)
        grant = await harness.grant(MACHINE, TEAM)
        assert grant is not None
        assert grant.revoked
        assert await harness.event(wait=0) is None
        second = await machine_ready(harness)
        assert (2, True) == (asked(identity_provider), identity_provider.is_alive(second.access_token))


async def test_the_next_secret_is_tried_and_the_token_comes(
    identity_provider: IdentityProvider, canaries: Canaries
) -> None:
    app = machine_app(identity_provider)
    wrong: Secret = canaries.mint("client secret")
    client = Client(app.client.client_id, wrong, later_secrets=app.client.secrets)
    async with running(identity_provider, [replace(app, client=client)]) as harness:
        await machine_ready(harness)
        assert ["invalid_client"] == [each.error for each in identity_provider.refusals("client_credentials")]


async def test_it_has_no_page_of_its_own(identity_provider: IdentityProvider) -> None:
    """No callback path is served for it, and asking for another account starts no consent."""
    async with running(
        identity_provider, [machine_app(identity_provider, redirect=Redirect("/oauth/callback/machine", BASE))]
    ) as harness:
        page = await harness.browser().open(f"{BASE}/oauth/callback/machine?state={'A' * 65}&code=abc")
        assert 404 == page.status
        assert isinstance(await harness.ask(MACHINE, None, team_turn(), switch_account=True), Ready)


@pytest.mark.parametrize("member", [{"scope": "read everything"}, {"expires_in": 0}, {"token_type": "mac"}])
async def test_an_answer_that_is_of_no_use_is_not_asked_for_at_every_call(
    identity_provider: IdentityProvider, test_clock: TestClock, member: dict[str, Any]
) -> None:
    app = machine_app(identity_provider)
    async with running(identity_provider, [app], clock=test_clock, background=False) as harness:
        harness.idp.script.token.fields(**member, times=FOREVER)
        for _ in range(50):
            await machine_failed(harness)
        assert 1 == asked(harness.idp)
        harness.idp.script.reset()
        harness.clock.advance(61)
        await machine_ready(harness)
