"""12.5.1: what a token call means, rule by rule."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from oauthbroker import Turn
from oauthbroker.core.errors import Code
from oauthbroker.model.results import AuthorizationRequired, Failed, Ready
from tests.kit.running_broker import ALICE, BOB, SCOPES, TEAM, House, turn


@pytest.mark.rule("12.5.1-1")
@pytest.mark.parametrize("app, subject", [("mail", ALICE), ("team", TEAM)])
async def test_1_the_app_is_found_by_reference_and_the_turn_gives_the_subject_its_mode_names(
    house: House, app: str, subject: str
) -> None:
    """An app in user mode acts for the turn's user, one in global mode for the turn's team, and no caller can say whom."""
    await house.connected(app)
    assert [subject] == [summary.subject async for summary in house.broker.grants.list()]


@pytest.mark.rule("12.5.1-1")
@pytest.mark.case("37")
@pytest.mark.parametrize(
    "app, of", [("mail", turn(user=None)), ("team", turn(team=None)), ("mail", Turn("planner", "1"))]
)
async def test_1_without_the_subject_of_its_mode_a_call_is_an_error_and_never_another_modes(
    house: House, app: str, of: Turn
) -> None:
    """Nobody is asked either: a turn for nobody starts no authorization."""
    await house.connected("mail")
    await house.connected("team")
    result = await house.ask(app, of=of)
    assert isinstance(result, Failed)
    assert Code.SUBJECT_UNAVAILABLE is result.code
    assert None is await house.broker.pending(of)


@pytest.mark.rule("12.5.1-1")
async def test_1_an_app_that_is_not_configured_is_an_error(house: House) -> None:
    """The reference names a resource of the bundle, or nothing."""
    result = await house.ask("no-such-app")
    assert isinstance(result, Failed)
    assert Code.OAUTH_APP_NOT_FOUND is result.code


@pytest.mark.rule("12.5.1-2")
@pytest.mark.case("43")
@pytest.mark.parametrize("scopes", [["delete"], ["read", "delete"], ["READ"], ["rea"], ["*"]])
async def test_2_scopes_outside_the_apps_are_an_error_at_once(house: House, scopes: list[str]) -> None:
    """Also when the grant is there and would serve everything else that was asked."""
    await house.connected()
    result = await house.ask(scopes=scopes)
    assert isinstance(result, Failed)
    assert Code.SCOPE_NOT_ALLOWED is result.code
    assert None is await house.broker.pending(turn())


@pytest.mark.rule("12.5.1-2")
async def test_2_left_out_scopes_are_the_apps_own(house: House) -> None:
    """The fixed list of the app is what the person is asked for."""
    session = await house.session(await house.ask_link())
    assert SCOPES == session.scopes


@pytest.mark.rule("12.5.1-2")
async def test_2_what_a_call_names_is_all_that_a_first_authorization_asks_for(house: House) -> None:
    """A subset stays a subset on its way to the provider."""
    session = await house.session(await house.ask_link(scopes=["write"]))
    assert ("write",) == session.scopes


@pytest.mark.rule("12.5.1-3")
async def test_3_a_grant_belongs_to_one_app_and_one_subject(house: House) -> None:
    """Another app of the same person and another person of the same app have grants of their own, or none."""
    await house.connected("mail")
    assert isinstance(await house.ask("files"), AuthorizationRequired)
    assert isinstance(await house.ask("mail", of=turn(user=BOB)), AuthorizationRequired)
    bobs = await house.connected("mail", "bob", of=turn(user=BOB))
    mine = await house.ask("mail")
    assert isinstance(mine, Ready)
    assert mine.access_token != bobs.access_token


@pytest.mark.rule("12.5.1-3")
async def test_3_the_same_app_and_subject_share_a_grant_whatever_agent_asks(house: House) -> None:
    """Who agreed once is not asked again by another agent or conversation of the same subject."""
    mine = await house.connected()
    other = await house.ask(of=turn(agent="writer", instance="2"))
    assert isinstance(other, Ready)
    assert mine.access_token == other.access_token


@pytest.mark.rule("12.5.1-4")
async def test_4_a_valid_grant_answers_ready_without_asking_anybody(house: House) -> None:
    """The token is the provider's living one; neither a person nor the provider is bothered."""
    await house.connected()
    before = len(house.idp.requests)
    ready = await house.ask(scopes=["read"])
    assert isinstance(ready, Ready)
    assert house.idp.is_alive(ready.access_token)
    assert before == len(house.idp.requests)


@pytest.mark.rule("12.5.1-5")
async def test_5_no_grant_opens_a_session_and_asks(house: House) -> None:
    """Nothing is there: a link is made."""
    asked = await house.ask_link()
    assert "noGrant" == asked.reason
    assert "pending" == (await house.session(asked)).status


@pytest.mark.rule("12.5.1-5")
async def test_5_a_revoked_grant_asks_again(house: House) -> None:
    """What was withdrawn is not used, and says so."""
    await house.connected()
    assert await house.broker.revoke("mail", subject=ALICE)
    assert "revoked" == (await house.ask_link()).reason


@pytest.mark.rule("12.5.1-5")
@pytest.mark.case("44")
async def test_5_a_grant_with_fewer_scopes_asks_for_the_rest_and_still_serves_what_it_has(house: House) -> None:
    """The request is for both together, so that agreeing to the second never takes the first away."""
    await house.connected(scopes=["read"])
    asked = await house.ask_link(scopes=["write"])
    assert ("scopes", ("read", "write")) == (asked.reason, (await house.session(asked)).scopes)
    assert isinstance(await house.ask(scopes=["read"]), Ready)


@pytest.mark.rule("12.5.1-6", "12.5.1-5")
@pytest.mark.parametrize("seconds", [3600 - 120, 3600, 90_000], ids=["about to end", "ended", "long ended"])
async def test_6_it_is_refreshed_stored_and_ready(house: House, seconds: int) -> None:
    first = await house.connected()
    house.clock.advance(seconds)
    ready = await house.ask()
    assert isinstance(ready, Ready)
    assert (False, first.scopes, house.clock.now() + timedelta(hours=1)) == (
        ready.degraded,
        ready.scopes,
        ready.expires_at,
    )
    grant = await house.grant()
    assert grant is not None
    assert grant.token is not None
    assert ready.access_token == grant.token.access_token
    assert ready.access_token != first.access_token


@pytest.mark.rule("12.5.1-6")
async def test_6_a_token_that_cannot_be_refreshed_is_served_as_degraded_while_it_lives(house: House) -> None:
    """With the true time of its end, so that the caller can judge."""
    house.idp.change("client-mail", issue_refresh=False)
    first = await house.connected()
    house.clock.advance(3600 - 120)
    ready = await house.ask()
    assert isinstance(ready, Ready)
    assert (True, first.expires_at) == (ready.degraded, ready.expires_at)


@pytest.mark.rule("12.5.1-5")
async def test_5_once_it_has_ended_and_cannot_be_refreshed_a_person_is_asked(house: House) -> None:
    house.idp.change("client-mail", issue_refresh=False)
    await house.connected()
    house.clock.advance(3601)
    assert "expired" == (await house.ask_link()).reason
    assert 0 == house.idp.count("refresh_token")


@pytest.mark.rule("12.5.1-5")
async def test_5_a_refresh_token_that_the_provider_took_back_leads_to_a_link(house: House) -> None:
    await house.connected()
    house.idp.revoke_all("client-mail", "alice")
    house.clock.advance(3601)
    assert "expired" == (await house.ask_link()).reason


@pytest.mark.rule("12.5.1-6")
async def test_6_a_caller_who_needs_longer_than_is_left_gets_a_fresh_one(house: House) -> None:
    """An explicit minimum is a condition, not a wish."""
    first = await house.connected()
    house.clock.advance(3600 - 120)
    short = await house.ask(min_ttl_seconds=100)
    assert isinstance(short, Ready)
    assert short.access_token == first.access_token
    longer = await house.ask(min_ttl_seconds=600)
    assert isinstance(longer, Ready)
    assert longer.access_token != first.access_token


@pytest.mark.rule("12.5.3-3")
async def test_3_one_flight_per_app_and_subject(house: House) -> None:
    """Of one pair one request, however many ask; another pair is not held up by it."""
    await house.connected()
    await house.connected(account="bob", of=turn(user=BOB))
    house.clock.advance(3600)
    hanging = house.idp.script.refresh.hang()
    callers = [asyncio.create_task(house.ask()) for _ in range(10)]
    await hanging.arrived()
    assert isinstance(await house.ask(of=turn(user=BOB)), Ready)
    assert not any(caller.done() for caller in callers)
    hanging.release()
    await asyncio.gather(*callers)
    assert 2 == house.idp.count("refresh_token")
