"""A token that is about to end is refreshed before a call fails; a provider's behaviour changes the answer, not
the grant."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from oauthbroker.audit import TokenRefreshed
from oauthbroker.core.errors import Code
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready
from oauthbroker.refresh.job import RefreshJob
from tests.kit.running_broker import ALICE, Harness, turn
from tests.story.refresh_kit import connected_and_resumed, with_expired_token

HOUR = timedelta(hours=1)


@pytest.mark.rule("12.5.1-6")
async def test_a_token_about_to_end_is_refreshed_and_stored(harness: Harness):
    first = await with_expired_token(harness)
    second = await harness.ask("mail")
    assert isinstance(second, Ready)
    assert second.access_token != first.access_token
    assert second.expires_at == harness.clock.now() + HOUR
    assert (await harness.ask("mail")).access_token == second.access_token
    assert 1 == harness.idp.count("refresh_token")
    assert 1 == len([entry for entry in harness.audit.entries if isinstance(entry, TokenRefreshed)])


async def test_a_refresh_token_of_another_registration_is_sent_nowhere(harness: Harness):
    """The app got another client while a call was on its way to the refresh."""
    await with_expired_token(harness)
    versioned = await harness.repository.grant(GrantKey("mail", ALICE))
    app = harness.broker.bundle.apps["mail"]
    moved = replace(app, client=replace(app.client, client_id="another"))
    assert versioned is not None
    refreshed = await harness.parts.manager.refresh.refresh(
        RefreshJob(app=moved, key=GrantKey("mail", ALICE), seen=versioned)
    )
    same = refreshed.grant is not None and versioned.record.token == refreshed.grant.token
    assert (True, None) == (same, refreshed.error)
    assert 0 == harness.idp.count("refresh_token")


async def test_twenty_tools_that_wake_up_at_once_send_one_refresh(harness: Harness):
    await with_expired_token(harness)
    answers = await asyncio.gather(*(harness.ask("mail") for _ in range(20)))
    assert {"ready"} == {answer.status for answer in answers}
    assert 1 == len({answer.access_token.reveal() for answer in answers if isinstance(answer, Ready)})
    assert 1 == harness.idp.count("refresh_token")


async def test_hours_of_refreshes_keep_one_family_alive(harness: Harness):
    await connected_and_resumed(harness)
    for _ in range(5):
        harness.clock.advance(3600)
        assert "ready" == (await harness.ask("mail")).status
    (family,) = harness.idp.families("client-mail")
    assert (dict.fromkeys(range(1, 6), 1), "") == (dict(family.redeemed), family.ended_by)


async def test_a_provider_that_is_down_leaves_a_living_token_in_use(harness: Harness):
    await connected_and_resumed(harness)
    harness.clock.advance((HOUR - timedelta(seconds=200)).total_seconds())
    harness.idp.script.refresh.answer(500)
    degraded = await harness.ask("mail")
    assert isinstance(degraded, Ready)
    assert degraded.degraded


@pytest.mark.case("52")
async def test_a_dead_refresh_token_needs_a_person_and_its_record_is_kept(harness: Harness):
    await with_expired_token(harness)
    harness.idp.revoke_all("client-mail", "alice")
    answer = await harness.ask("mail")
    assert isinstance(answer, AuthorizationRequired)
    assert "expired" == answer.reason
    grant = await harness.grant("mail")
    assert grant is not None
    assert ("dead", False) == (grant.refresh_state.ended, grant.revoked)
    assert grant.token is not None
    assert grant.token.refresh_token is not None
    assert "authorization_required" == (await harness.ask("mail")).status
    assert 1 == harness.idp.count("refresh_token")


async def test_a_lost_answer_is_reported_as_uncertain_and_never_as_a_silent_end(harness: Harness):
    await with_expired_token(harness)
    harness.idp.script.refresh.close_after_accept(after_work=True)
    lost = await harness.ask("mail")
    assert isinstance(lost, Failed)
    assert Code.PROVIDER_UNREACHABLE is lost.code
    assert "error" == (await harness.ask("mail")).status
    assert 1 == harness.idp.count("refresh_token")
    harness.clock.advance(2)
    answer = await harness.ask("mail")
    assert isinstance(answer, AuthorizationRequired)
    assert "refreshUncertain" == answer.reason


async def test_a_lost_answer_within_the_grace_of_the_provider_is_made_good(harness: Harness):
    harness.idp.change("client-mail", reuse_grace=60)
    await with_expired_token(harness)
    harness.idp.script.refresh.close_after_accept(after_work=True)
    assert "error" == (await harness.ask("mail")).status
    harness.clock.advance(2)
    assert "ready" == (await harness.ask("mail")).status
    grant = await harness.grant("mail")
    assert grant is not None
    assert grant.refresh_state.intent is None


@pytest.mark.case("61")
async def test_fifty_reports_of_one_rejected_token_are_one_refresh(harness: Harness):
    first = await connected_and_resumed(harness)
    oauth = harness.broker.oauth(turn())
    answers = await asyncio.gather(*(oauth.report_rejected("mail", first.access_token) for _ in range(50)))
    assert {"ready"} == {answer.status for answer in answers}
    assert 1 == len({answer.access_token.reveal() for answer in answers if isinstance(answer, Ready)})
    assert 1 == harness.idp.count("refresh_token")
    assert "ready" == (await oauth.report_rejected("mail", first.access_token)).status
    assert 1 == harness.idp.count("refresh_token")


@pytest.mark.case("52", "61")
async def test_a_rejected_token_whose_refresh_token_is_dead_too_needs_a_person_at_once(harness: Harness):
    """The provider has ended the whole grant: the first report says so, with a link, and so does every other one."""
    first = await connected_and_resumed(harness)
    harness.idp.script.refresh.refuse("invalid_grant")
    for _ in range(3):
        answer = await harness.broker.oauth(turn()).report_rejected("mail", first.access_token)
        assert isinstance(answer, AuthorizationRequired)
        assert "expired" == answer.reason
    assert 1 == harness.idp.count("refresh_token")


@pytest.mark.case("61")
async def test_a_rejected_token_whose_refresh_was_lost_and_then_refused_is_reported_as_uncertain(harness: Harness):
    first, oauth = await connected_and_resumed(harness), harness.broker.oauth(turn())
    harness.idp.script.refresh.close_after_accept(after_work=True)
    lost = await oauth.report_rejected("mail", first.access_token)
    assert isinstance(lost, Failed)
    assert (Code.PROVIDER_UNREACHABLE, True) == (lost.code, lost.retryable)
    harness.clock.advance(2)
    answer = await oauth.report_rejected("mail", first.access_token)
    assert isinstance(answer, AuthorizationRequired)
    assert "refreshUncertain" == answer.reason


@pytest.mark.case("61")
async def test_a_tool_that_rejects_every_token_is_stopped_within_the_hour(harness: Harness):
    token = (await connected_and_resumed(harness)).access_token
    oauth = harness.broker.oauth(turn())
    for _ in range(harness.broker.bundle.settings.limits.rejections_per_hour):
        answer = await oauth.report_rejected("mail", token)
        assert isinstance(answer, Ready)
        token = answer.access_token
    refused = await oauth.report_rejected("mail", token)
    assert isinstance(refused, Failed)
    assert (Code.RATE_LIMITED, 3600) == (refused.code, refused.retry_after_seconds)
    assert "ready" == (await harness.ask("mail")).status


async def test_the_callers_leaving_cancels_nothing(harness: Harness):
    await with_expired_token(harness)
    hanging = harness.idp.script.refresh.hang(after_work=True)
    caller = asyncio.create_task(harness.ask("mail"))
    await hanging.arrived()
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    hanging.release()
    answer = await harness.ask("mail")
    assert ("ready", 1) == (answer.status, harness.idp.count("refresh_token"))


@pytest.mark.case("53")
async def test_a_revoke_during_a_refresh_wins_and_the_fresh_token_dies_too(harness: Harness):
    await with_expired_token(harness)
    hanging = harness.idp.script.refresh.hang(after_work=True)
    caller = asyncio.create_task(harness.ask("mail"))
    await hanging.arrived()
    revoke = asyncio.create_task(harness.broker.revoke("mail", subject=ALICE))
    while not (grant := await harness.grant("mail")) or not grant.revoked:
        await asyncio.sleep(0.01)
    hanging.release()
    assert ("authorization_required", True) == ((await caller).status, await revoke)
    assert 0 == harness.idp.living_tokens("client-mail", "alice")


@pytest.mark.case("61")
async def test_a_rejected_token_that_cannot_be_replaced_is_never_handed_out_again(harness: Harness):
    """Its hour is not over, but the API has refused it and the provider has refused a new one."""
    first = await connected_and_resumed(harness)
    harness.idp.revoke_all("client-mail", "alice")
    reported = await harness.broker.oauth(turn()).report_rejected("mail", first.access_token)
    assert isinstance(reported, AuthorizationRequired)
    assert isinstance(await harness.ask("mail"), AuthorizationRequired)
    assert 1 == harness.idp.count("refresh_token")
