"""The device code flow as people live it: a code on one screen, a yes on another, and the agent goes on."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.audit.formatting import line_of
from oauthbroker.core.errors import Code
from oauthbroker.model.apps import Owner
from oauthbroker.model.provider_habits import Revocation
from oauthbroker.model.settings import Limits
from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.testing.provider import FOREVER
from tests.kit.broker_process import ask, outcome
from tests.kit.running_broker import ALICE, BASE, BOB, TEAM, Harness, device_app, global_app, running, turn
from tests.story.device_kit import INTERVAL, World, ask_for_code, device_of, events, prompt_of, session_of, world


@pytest.fixture
def here(identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path) -> World:
    return world(identity_provider, test_clock, tmp_path)


@pytest.mark.rule("12.5.7")
async def test_a_code_typed_elsewhere_wakes_the_agent_and_its_tool_gets_a_token(here: World):
    broker = here.start()
    asked = await ask_for_code(broker)
    prompt = prompt_of(asked)
    assert asked.authorization_url.startswith(f"{BASE}/connect/")
    assert (INTERVAL, f"{prompt.verification_uri}?user_code={prompt.user_code}") == (
        prompt.interval,
        prompt.verification_uri_complete,
    )
    await here.poll()
    assert ["authorization_pending"] == here.polls(prompt)
    assert "connected" in await here.idp.device_agree(prompt.verification_uri, prompt.user_code)
    await here.poll()
    assert ("completed", None) == await outcome(broker, asked)
    assert ["auth.granted"] == await events(broker)
    ready = await ask(broker, "tv")
    assert isinstance(ready, Ready)
    assert here.idp.is_alive(ready.access_token)
    grant = await broker.grant("tv", ALICE)
    assert grant is not None
    assert ("device_code", asked.auth_session_id) == (grant.flow, grant.auth_session_id)
    assert grant.pinned is not None
    await here.poll(after=60)
    assert ["authorization_pending", "granted"] == here.polls(prompt)  # polling has ended


@pytest.mark.rule("12.5.7", "12.5.2", "12.5.8")
async def test_code_and_address_stand_in_the_answer_and_in_the_pending_block(here: World):
    broker = here.start()
    asked = await ask_for_code(broker)
    prompt = prompt_of(asked)
    shown = {
        "verificationUri": here.idp.url("/device"),
        "verificationUriComplete": here.idp.url(f"/device?user_code={prompt.user_code}"),
        "userCode": prompt.user_code,
        "interval": INTERVAL,
    }
    assert shown == asked.to_json()["deviceCode"]
    block = await broker.broker.pending(turn(instance="thread"))
    assert block is not None
    [item] = block["items"]
    assert (shown, asked.authorization_url) == (item["deviceCode"], item["authorizationUrl"])
    device = await device_of(broker, asked)
    assert device.code is not None
    assert device.code.reveal() not in json.dumps([block, asked.to_json()])


async def test_what_the_provider_leaves_out_is_left_out(here: World):
    broker = here.start()
    here.idp.script.device.fields(verification_uri_complete=None, interval=None)
    shown = (await ask_for_code(broker)).to_json()["deviceCode"]
    assert ({"verificationUri", "userCode", "interval"}, 5) == (set(shown), shown["interval"])


@pytest.mark.rule("12.5.3-2")
async def test_neither_code_is_in_the_log_or_in_the_audit(identity_provider: IdentityProvider, test_clock: TestClock):
    async with running(identity_provider, [device_app(identity_provider)], clock=test_clock) as harness:
        asked = await harness.ask_link("tv")
        code = prompt_of(asked).user_code
        await harness.browser().open(asked.authorization_url)
        identity_provider.device_deny(code)
        assert ["auth.denied"] == [event["type"] for event in [await _after_a_poll(harness)]]
        said = harness.log.getvalue() + "".join(line_of(entry, at) for at, entry in harness.audit.lines)
        assert code not in said + repr(asked) + repr(prompt_of(asked)) + repr(await harness.session(asked))


async def _after_a_poll(harness: Harness) -> dict[str, Any]:
    harness.clock.advance(INTERVAL)
    event = await harness.event()
    assert event is not None
    return event


async def test_the_broker_polls_by_itself(identity_provider: IdentityProvider, test_clock: TestClock):
    async with running(identity_provider, [device_app(identity_provider)], clock=test_clock) as harness:
        asked = await harness.ask_link("tv")
        identity_provider.device_approve(prompt_of(asked).user_code)
        event = await _after_a_poll(harness)
        assert ("auth.granted", ALICE) == (event["type"], event["payload"]["subject"])
        assert isinstance(await harness.ask("tv"), Ready)


async def test_twenty_calls_at_once_ask_the_provider_for_one_code(here: World):
    brokers = [here.start(), here.start()]
    asked = await asyncio.gather(*(ask_for_code(broker) for broker in brokers * 10))
    assert 1 == len({each.auth_session_id for each in asked}) == here.idp.count("device")


async def test_a_code_is_shown_again_while_more_than_half_of_its_life_is_left(here: World):
    here.idp.change("client-tv", device_lifetime=1000)
    broker = here.start()
    first = await ask_for_code(broker)
    here.clock.advance(499)
    assert first.auth_session_id == (await ask_for_code(broker)).auth_session_id
    here.clock.advance(2)
    second = await ask_for_code(broker)
    assert first.auth_session_id != second.auth_session_id
    assert 2 == here.idp.count("device")


async def test_a_person_who_still_types_the_older_code_ends_the_wait_for_both(here: World):
    """The broker cannot see who is typing: an older code is never withdrawn in favour of a newer one."""
    broker = here.start()
    first = await ask_for_code(broker)
    here.clock.advance(400)
    second = await ask_for_code(broker)
    here.idp.device_approve(prompt_of(first).user_code)
    await here.poll()
    assert [("completed", None)] * 2 == [await outcome(broker, each) for each in (first, second)]
    assert ["auth.granted"] * 2 == await events(broker)
    asked_before = len(here.polls(prompt_of(second)))
    await here.poll()
    assert asked_before == len(here.polls(prompt_of(second)))


async def test_a_second_code_asks_for_what_the_first_asks_for_too(here: World):
    """Unlike a link, a code cannot take in scopes that were granted meanwhile."""
    broker = here.start()
    await ask_for_code(broker, scopes=["read"])
    wider = await ask_for_code(broker, scopes=["write"], instance="other thread")
    assert ("openid", "read", "write") == here.story(prompt_of(wider)).scopes
    assert (
        wider.auth_session_id == (await ask_for_code(broker, scopes=["read"], instance="other thread")).auth_session_id
    )
    here.idp.device_approve(prompt_of(wider).user_code)
    await here.poll()
    assert isinstance(await ask(broker, "tv", scopes=["read", "write"]), Ready)
    assert ["auth.granted"] * 2 == await events(broker)


async def test_a_step_up_asks_for_the_old_scopes_too(here: World):
    broker = here.start()
    await _connected(here, scopes=["read"])
    asked = await ask_for_code(broker, scopes=["write"])
    assert ("scopes", ("openid", "read", "write")) == (asked.reason, here.story(prompt_of(asked)).scopes)


async def _connected(here: World, account: str = "alice", **more: Any) -> AuthorizationRequired:
    broker = here.brokers[0]
    asked = await ask_for_code(broker, **more)
    here.idp.device_approve(prompt_of(asked).user_code, account)
    await here.poll()
    assert ("completed", None) == await outcome(broker, asked)
    await events(broker)
    return asked


async def test_a_no_at_the_provider_wakes_the_agent(here: World):
    broker = here.start()
    asked = await ask_for_code(broker)
    assert await here.idp.device_agree(prompt_of(asked).verification_uri, prompt_of(asked).user_code, deny=True)
    await here.poll()
    assert ("failed", Code.PROVIDER_DENIED) == await outcome(broker, asked)
    assert ["auth.denied"] == await events(broker)
    assert "noGrant" == (await ask_for_code(broker)).reason


@pytest.mark.parametrize("expired_events", [False, True])
async def test_a_code_that_is_never_typed_ends_silently_unless_asked_otherwise(here: World, expired_events: bool):
    here.idp.change("client-tv", device_lifetime=60)
    broker = here.start()
    broker.parts.polling.expired_events = expired_events
    asked = await ask_for_code(broker)
    here.idp.script.poll.refuse("expired_token")
    await here.poll()
    assert ("expired", None) == await outcome(broker, asked)
    assert (["auth.expired"] if expired_events else []) == await events(broker)
    assert asked.auth_session_id != (await ask_for_code(broker)).auth_session_id


async def test_a_code_ends_when_the_provider_said_it_would_and_after_half_an_hour_at_the_latest(here: World):
    broker = here.start()
    for promised, kept in ((90, 90), (1800, 1800), (86_400, 1800)):
        here.idp.change("client-tv", device_lifetime=promised)
        asked = await ask_for_code(broker, instance=f"thread {promised}")
        assert kept == (asked.expires_at - here.clock.now()).total_seconds()
    here.clock.advance(90)
    assert ("pending", None) == await outcome(broker, asked)
    asked = await ask_for_code(broker, instance="thread 90")
    assert asked.expires_at > here.clock.now()


async def test_after_its_end_no_broker_polls_and_the_sweeper_ends_it(here: World):
    here.idp.change("client-tv", device_lifetime=12)
    broker = here.start()
    asked = await ask_for_code(broker)
    for _ in range(5):
        await here.poll()
    assert ["authorization_pending"] * 2 == here.polls(prompt_of(asked))
    await broker.tend()
    assert "expired" == (await session_of(broker, asked)).status


async def test_who_agrees_in_the_last_moment_is_not_too_late(here: World):
    """The poll left in time; that its answer comes after the end, and after a sweep, costs nothing."""
    here.idp.change("client-tv", device_lifetime=11)
    broker = here.start()
    asked = await ask_for_code(broker)
    await here.poll()
    here.idp.device_approve(prompt_of(asked).user_code)
    hold = here.idp.script.poll.hang(after_work=True)
    polling = asyncio.create_task(here.poll())
    await hold.arrived()
    await broker.tend(after=2)
    hold.release()
    await polling
    assert ("completed", None) == await outcome(broker, asked)
    assert ["auth.granted"] == await events(broker)


async def test_the_runtime_takes_a_request_back(here: World):
    broker = here.start()
    asked = await ask_for_code(broker)
    assert await broker.broker.cancel(asked.auth_session_id)
    await here.poll()
    assert ([], ("expired", None)) == (here.polls(prompt_of(asked)), await outcome(broker, asked))
    assert [] == await events(broker)


@pytest.mark.case("14a")
async def test_another_account_gets_nothing_stored_and_its_tokens_are_revoked(here: World):
    """The owner is compared as in every flow; a code has no browser to bind it to, so this is what protects it."""
    broker = here.start()
    asked = await ask_for_code(broker)
    here.idp.device_approve(prompt_of(asked).user_code, "mallory")
    await here.poll()
    assert ("failed", Code.SUBJECT_MISMATCH) == await outcome(broker, asked)
    assert ["auth.failed"] == await events(broker)
    assert await broker.grant("tv", ALICE) is None
    assert 0 == here.idp.living_tokens("client-tv", "mallory")


@pytest.mark.case("101")
async def test_a_victims_own_tokens_survive_typing_a_strangers_code(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path
):
    """Where a revocation reaches further than one token, what came back is dropped and not revoked."""
    app = device_app(identity_provider, revocation=Revocation(reach="grant"))
    here = world(identity_provider, test_clock, tmp_path, app)
    broker = here.start()
    own = await ask_for_code(broker, user="idp:user:U345678")
    identity_provider.device_approve(prompt_of(own).user_code, "bob")
    await here.poll()
    strange = await ask_for_code(broker)
    identity_provider.device_approve(prompt_of(strange).user_code, "bob")
    await here.poll()
    assert ("failed", Code.SUBJECT_MISMATCH) == await outcome(broker, strange)
    ready = await ask(broker, "tv", user="idp:user:U345678")
    assert isinstance(ready, Ready)
    assert identity_provider.is_alive(ready.access_token)
    assert 0 == identity_provider.count("revoke")


@pytest.mark.case("42")
@pytest.mark.parametrize(("account", "status"), [("alice", "completed"), ("bob", "failed"), ("mallory", "failed")])
async def test_in_global_mode_only_an_authorizer_of_that_team_connects_it(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path, account: str, status: str
):
    app = global_app(identity_provider, flow="deviceCode")
    here = world(identity_provider, test_clock, tmp_path, app)
    broker = here.start()
    asked = await ask_for_code(broker, "team")
    identity_provider.device_approve(prompt_of(asked).user_code, account)
    await here.poll()
    assert status == (await outcome(broker, asked))[0]
    assert (status == "completed") == (await broker.grant("team", TEAM) is not None)


async def test_switching_the_account_asks_anew_and_replaces_the_pinned_account(here: World):
    broker = here.start()
    await _connected(here)
    again = await ask_for_code(broker, switch_account=True)
    here.idp.device_approve(prompt_of(again).user_code)
    await here.poll()
    assert ("completed", None) == await outcome(broker, again)
    grant = await broker.grant("tv", ALICE)
    assert grant is not None
    assert again.auth_session_id == grant.auth_session_id


async def test_an_id_token_without_a_nonce_is_as_good_and_a_forged_one_is_not(here: World):
    """There was no browser to hand a nonce to; everything else is checked (case 32)."""
    broker = here.start()
    asked = await ask_for_code(broker)
    here.idp.script.poll.alter_id_token(claims={"aud": "somebody-else"})
    here.idp.device_approve(prompt_of(asked).user_code)
    await here.poll()
    assert ("failed", Code.ID_TOKEN_INVALID) == await outcome(broker, asked)
    assert 0 == here.idp.living_tokens("client-tv", "alice")


async def test_fewer_scopes_than_were_asked_for_are_stored_and_said(here: World):
    broker = here.start()
    asked = await ask_for_code(broker)
    here.idp.device_approve(prompt_of(asked).user_code, scopes=["read", "openid"])
    await here.poll()
    await broker.parts.relay.once()
    delivery = await broker.broker.events.lease("planner")
    assert delivery is not None
    payload: Any = delivery.to_json()["payload"]
    assert (["read"], ["write", "admin"]) == (payload["scopesGranted"], payload["scopesMissing"])


@pytest.mark.case("99")
@pytest.mark.parametrize(
    "limits, instances",
    [
        (Limits(sessions_per_subject=2), ("thread 0", "thread 1", "one too many")),
        (Limits(sessions_per_conversation=2), ("thread", "thread", "thread")),
        (Limits(sessions_per_app=2), ("thread 0", "thread 1", "one too many")),
        (Limits(sessions_total=2), ("thread 0", "thread 1", "one too many")),
    ],
    ids=["of the subject", "of the conversation", "of the app", "in all"],
)
async def test_a_caller_at_the_cap_is_told_so_before_the_provider_is_asked(
    identity_provider: IdentityProvider, test_clock: TestClock, limits: Limits, instances: tuple[str, ...]
):
    async with running(identity_provider, [device_app(identity_provider)], clock=test_clock, limits=limits) as harness:
        for scopes, instance in zip(("read", "write"), instances[:2], strict=True):
            await harness.ask_link("tv", [scopes], of=turn(instance=instance))
        refused = await harness.ask("tv", of=turn(instance=instances[-1]))
        assert isinstance(refused, Failed)
        assert (Code.RATE_LIMITED, 2) == (refused.code, identity_provider.count("device"))


async def test_a_device_app_has_no_callback(here: World):
    broker = here.start()
    await ask_for_code(broker)
    page = await broker.browser().open(f"{BASE}/oauth/callback/tv?state={'s' * 65}&code=c")
    assert 404 == page.status


async def test_a_call_that_waited_during_a_consent_needs_no_code(here: World):
    """It stood behind the poll that brought the grant: the provider is not asked for a second code."""
    broker = here.start()
    asked = await ask_for_code(broker)
    here.idp.device_approve(prompt_of(asked).user_code)
    hold = here.idp.script.poll.hang(after_work=True)
    polling = asyncio.create_task(here.poll())
    await hold.arrived()
    calling = asyncio.create_task(ask(broker, "tv", instance="other thread"))
    await asyncio.sleep(0.02)
    assert not calling.done()
    hold.release()
    assert isinstance(await calling, Ready)
    await polling
    assert 1 == here.idp.count("device")


@pytest.mark.rule("12.5.7")
async def test_an_app_built_in_code_without_an_owner_check_gets_no_code(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path
):
    app = device_app(identity_provider, owner=Owner(binding="localOperator"))
    here = world(identity_provider, test_clock, tmp_path, app)
    refused = await ask(here.start(), "tv")
    assert isinstance(refused, Failed)
    assert (Code.DEVICE_CODE_UNSUPPORTED, 0) == (refused.code, identity_provider.count("device"))


async def test_a_direct_link_of_an_app_built_in_code_is_our_own_all_the_same(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path
):
    app = device_app(identity_provider)
    app = replace(app, redirect=replace(app.redirect, link="direct"))
    here = world(identity_provider, test_clock, tmp_path, app)
    assert (await ask_for_code(here.start())).authorization_url.startswith(f"{BASE}/connect/")


async def test_junk_from_the_device_endpoint_is_logged_once_and_not_asked_for_at_every_call(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    app = device_app(identity_provider)
    async with running(identity_provider, [app], clock=test_clock, background=False) as harness:
        identity_provider.script.device.answer(200, b"{", times=FOREVER)
        told = [await harness.ask(app.name, of=turn(who)) for who in (ALICE, BOB, BOB)]
        assert isinstance(told[0], Failed)
        assert (Code.TOKEN_RESPONSE_INVALID, False) == (told[0].code, told[0].retryable)
        for each in told[1:]:  # nothing was asked for Bob, and the pause ends by itself
            assert isinstance(each, Failed)
            assert (Code.PROVIDER_UNREACHABLE, True) == (each.code, each.retryable)
            assert each.retry_after_seconds in {1, 2}
        assert 1 == identity_provider.count("device")
        assert 1 == harness.log.getvalue().count("no device codes for now")
        identity_provider.script.reset()
        harness.clock.advance(61)
        assert isinstance(await harness.ask(app.name), AuthorizationRequired)
