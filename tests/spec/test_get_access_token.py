"""12.5.1: what a token call means, rule by rule."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from oauthbroker import Turn
from oauthbroker.core.errors import Code
from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready
from tests.kit.running_broker import ALICE, BOB, SCOPES, TEAM, Harness, turn


@pytest.mark.rule("12.5.1-1")
@pytest.mark.parametrize("app, subject", [("mail", ALICE), ("team", TEAM)])
async def test_1_the_app_is_found_by_reference_and_the_turn_gives_the_subject_its_mode_names(
    harness: Harness, app: str, subject: str
) -> None:
    """An app in user mode acts for the turn's user, one in global mode for the turn's team, and no caller can say whom."""
    await harness.connected(app)
    assert [subject] == [summary.subject async for summary in harness.broker.grants.list()]


@pytest.mark.rule("12.5.1-1")
@pytest.mark.case("37")
@pytest.mark.parametrize(
    "app, of", [("mail", turn(user=None)), ("team", turn(team=None)), ("mail", Turn("planner", "1"))]
)
async def test_1_without_the_subject_of_its_mode_a_call_is_an_error_and_never_another_modes(
    harness: Harness, app: str, of: Turn
) -> None:
    """No person is asked either: a turn without a user starts no authorization."""
    await harness.connected("mail")
    await harness.connected("team")
    result = await harness.ask(app, of=of)
    assert isinstance(result, Failed)
    assert Code.SUBJECT_UNAVAILABLE is result.code
    assert None is await harness.broker.pending(of)


@pytest.mark.rule("12.5.1-1")
async def test_1_an_app_that_is_not_configured_is_an_error(harness: Harness) -> None:
    """The reference names a resource of the bundle, or nothing."""
    result = await harness.ask("no-such-app")
    assert isinstance(result, Failed)
    assert Code.OAUTH_APP_NOT_FOUND is result.code


@pytest.mark.rule("12.5.1-2")
@pytest.mark.case("43")
@pytest.mark.parametrize("scopes", [["delete"], ["read", "delete"], ["READ"], ["rea"], ["*"]])
async def test_2_scopes_outside_the_apps_are_an_error_at_once(harness: Harness, scopes: list[str]) -> None:
    """Also when the grant is there and would serve everything else that was asked."""
    await harness.connected()
    result = await harness.ask(scopes=scopes)
    assert isinstance(result, Failed)
    assert Code.SCOPE_NOT_ALLOWED is result.code
    assert None is await harness.broker.pending(turn())


@pytest.mark.rule("12.5.1-2")
async def test_2_left_out_scopes_are_the_apps_own(harness: Harness) -> None:
    """The fixed list of the app is what the person is asked for."""
    session = await harness.session(await harness.ask_link())
    assert SCOPES == session.scopes


@pytest.mark.rule("12.5.1-2")
async def test_2_what_a_call_names_is_all_that_a_first_authorization_asks_for(harness: Harness) -> None:
    """A subset stays a subset on its way to the provider."""
    session = await harness.session(await harness.ask_link(scopes=["write"]))
    assert ("write",) == session.scopes


@pytest.mark.rule("12.5.1-3")
async def test_3_a_grant_belongs_to_one_app_and_one_subject(harness: Harness) -> None:
    """Another app of the same person and another person of the same app have grants of their own, or none."""
    await harness.connected("mail")
    assert isinstance(await harness.ask("files"), AuthorizationRequired)
    assert isinstance(await harness.ask("mail", of=turn(user=BOB)), AuthorizationRequired)
    bobs = await harness.connected("mail", "bob", of=turn(user=BOB))
    mine = await harness.ask("mail")
    assert isinstance(mine, Ready)
    assert mine.access_token != bobs.access_token


@pytest.mark.rule("12.5.1-3")
async def test_3_the_same_app_and_subject_share_a_grant_for_all_agents(harness: Harness) -> None:
    """Who agreed once is not asked again by another agent or conversation of the same subject."""
    mine = await harness.connected()
    other = await harness.ask(of=turn(agent="writer", instance="2"))
    assert isinstance(other, Ready)
    assert mine.access_token == other.access_token


@pytest.mark.rule("12.5.1-4")
async def test_4_a_valid_grant_answers_ready_without_asking_a_person(harness: Harness) -> None:
    """The token is the provider's living one; neither a person nor the provider is bothered."""
    await harness.connected()
    before = len(harness.idp.requests)
    ready = await harness.ask(scopes=["read"])
    assert isinstance(ready, Ready)
    assert harness.idp.is_alive(ready.access_token)
    assert before == len(harness.idp.requests)


@pytest.mark.rule("12.5.1-5")
async def test_5_no_grant_opens_a_session_and_asks(harness: Harness) -> None:
    """Nothing is there: a link is made."""
    asked = await harness.ask_link()
    assert "noGrant" == asked.reason
    assert "pending" == (await harness.session(asked)).status


@pytest.mark.rule("12.5.1-5")
async def test_5_a_revoked_grant_asks_again(harness: Harness) -> None:
    """A withdrawn grant is not used, and the answer says so."""
    await harness.connected()
    assert await harness.broker.revoke("mail", subject=ALICE)
    assert "revoked" == (await harness.ask_link()).reason


@pytest.mark.rule("12.5.1-5")
@pytest.mark.case("44")
async def test_5_a_grant_with_fewer_scopes_asks_for_the_rest_and_still_serves_its_own(harness: Harness) -> None:
    """The request is for both together, so that agreeing to the second never takes the first away."""
    await harness.connected(scopes=["read"])
    asked = await harness.ask_link(scopes=["write"])
    assert ("scopes", ("read", "write")) == (asked.reason, (await harness.session(asked)).scopes)
    assert isinstance(await harness.ask(scopes=["read"]), Ready)


@pytest.mark.rule("12.5.1-6", "12.5.1-5")
@pytest.mark.parametrize("seconds", [3600 - 120, 3600, 90_000], ids=["about to end", "ended", "long ended"])
async def test_6_it_is_refreshed_stored_and_ready(harness: Harness, seconds: int) -> None:
    first = await harness.connected()
    harness.clock.advance(seconds)
    ready = await harness.ask()
    assert isinstance(ready, Ready)
    assert (False, first.scopes, harness.clock.now() + timedelta(hours=1)) == (
        ready.degraded,
        ready.scopes,
        ready.expires_at,
    )
    grant = await harness.grant()
    assert grant is not None
    assert grant.token is not None
    assert ready.access_token == grant.token.access_token
    assert ready.access_token != first.access_token


@pytest.mark.rule("12.5.1-6")
async def test_6_a_token_that_cannot_be_refreshed_is_served_as_degraded_while_it_lives(harness: Harness) -> None:
    """With the true time of its end, so that the caller can check."""
    harness.idp.change("client-mail", issue_refresh=False)
    first = await harness.connected()
    harness.clock.advance(3600 - 120)
    ready = await harness.ask()
    assert isinstance(ready, Ready)
    assert (True, first.expires_at) == (ready.degraded, ready.expires_at)


@pytest.mark.rule("12.5.1-5")
async def test_5_once_it_has_ended_and_cannot_be_refreshed_a_person_is_asked(harness: Harness) -> None:
    harness.idp.change("client-mail", issue_refresh=False)
    await harness.connected()
    harness.clock.advance(3601)
    assert "expired" == (await harness.ask_link()).reason
    assert 0 == harness.idp.count("refresh_token")


@pytest.mark.rule("12.5.1-5")
async def test_5_a_refresh_token_that_the_provider_took_back_leads_to_a_link(harness: Harness) -> None:
    await harness.connected()
    harness.idp.revoke_all("client-mail", "alice")
    harness.clock.advance(3601)
    assert "expired" == (await harness.ask_link()).reason


@pytest.mark.rule("12.5.1-6")
async def test_6_a_caller_who_needs_longer_than_is_left_gets_a_fresh_one(harness: Harness) -> None:
    """An explicit minimum is a condition, not a wish."""
    first = await harness.connected()
    harness.clock.advance(3600 - 120)
    short = await harness.ask(min_ttl_seconds=100)
    assert isinstance(short, Ready)
    assert short.access_token == first.access_token
    longer = await harness.ask(min_ttl_seconds=600)
    assert isinstance(longer, Ready)
    assert longer.access_token != first.access_token


@pytest.mark.rule("12.5.3-3")
async def test_3_one_refresh_per_app_and_subject(harness: Harness) -> None:
    """Of one pair one request, however many ask; another pair is not held up by it."""
    await harness.connected()
    await harness.connected(account="bob", of=turn(user=BOB))
    harness.clock.advance(3600)
    hanging = harness.idp.script.refresh.hang()
    callers = [asyncio.create_task(harness.ask()) for _ in range(10)]
    await hanging.arrived()
    assert isinstance(await harness.ask(of=turn(user=BOB)), Ready)
    assert not any(caller.done() for caller in callers)
    hanging.release()
    await asyncio.gather(*callers)
    assert 2 == harness.idp.count("refresh_token")
