"""What a user of a CredentialApp meets when something fails: dead, rotated and ended keys, an API that is away, many
callers at once, a worker that dies, and a team's key in place of one's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from oauthbroker.audit import TokenInjected
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.apps import Owner
from oauthbroker.model.grant_key import GrantKey, grant_id
from oauthbroker.model.static_credential import packed
from oauthbroker.model.token_results import AuthorizationRequired
from oauthbroker.records import Grant, Token
from oauthbroker.records.auth_session import MAX_PRESSES
from oauthbroker.repository.repository import PAIR_WAIT_SECONDS
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.running_broker import ALICE, BOB, TEAM, Harness, running, turn, user_app
from tests.story.keys_kit import (
    DEAD,
    GOOD,
    NEWER,
    OF_BOB,
    KeyApi,
    asked_for,
    key_api,
    key_app,
    sent,
    type_key,
    with_key,
)

CALLERS = 50
DAY = 86_400


@pytest.fixture
async def harness(api: KeyApi, test_clock: TestClock) -> AsyncIterator[Harness]:
    apps = [
        key_app(api),
        key_app(api, "short", life_days=30),
        key_app(api, "unchecked", verification=None, owner=Owner(binding="localOperator")),
        key_app(api, "shared", team_fallback=True),
    ]
    async with (
        IdentityProvider(clock=test_clock) as idp,
        running(idp, [*apps, user_app(idp)], clock=test_clock) as harness,
    ):
        yield harness


def checks(api: KeyApi) -> int:
    return [it.path for it in api.seen].count("/me")


async def test_fifty_callers_without_a_key_get_one_link(harness: Harness, api: KeyApi) -> None:
    found = await asyncio.gather(*(asked_for(harness, api) for _ in range(CALLERS)))
    assert 1 == len({it.authorization_url for it in found})


async def test_fifty_callers_with_a_dead_key_ask_the_provider_once_and_get_one_link(
    harness: Harness, api: KeyApi
) -> None:
    await with_key(harness, api)
    del api.keys[GOOD]
    before = checks(api)
    found = await asyncio.gather(*(sent(harness, api) for _ in range(CALLERS)))
    assert {"keyRejected"} == {it.reason for it in found}
    assert 1 == len({it.authorization_url for it in found})
    assert before + 1 == checks(api)
    page = await type_key(harness, found[0], NEWER)
    assert "is connected" in page.text
    assert {200} == {it.status_code for it in await asyncio.gather(*(sent(harness, api) for _ in range(CALLERS)))}


async def test_fifty_callers_of_a_path_that_refuses_every_key_lose_none(harness: Harness, api: KeyApi) -> None:
    await with_key(harness, api)
    before = checks(api)
    found = await asyncio.gather(*(sent(harness, api, "/locked") for _ in range(CALLERS)))
    assert {401} == {it.status_code for it in found}
    assert before + 1 == checks(api)


async def test_a_key_typed_after_one_that_was_found_good_is_checked_for_itself(harness: Harness, api: KeyApi) -> None:
    await with_key(harness, api)
    assert 401 == (await sent(harness, api, "/locked")).status_code
    await harness.change_grant("meter", next_credential=packed({"apiKey": NEWER}))
    del api.keys[GOOD]
    harness.clock.advance(61)
    api.status = 0
    assert 200 == (await sent(harness, api)).status_code
    assert NEWER == api.seen[-1].headers["x-api-key"]
    del api.keys[NEWER]
    assert isinstance(await sent(harness, api), AuthorizationRequired)


async def test_a_key_that_dies_within_a_minute_of_its_predecessors_check_is_asked_for(
    harness: Harness, api: KeyApi
) -> None:
    await with_key(harness, api)
    assert 401 == (await sent(harness, api, "/locked")).status_code
    await harness.change_grant("meter", rejected=True)
    await with_key(harness, api, NEWER)
    del api.keys[NEWER]
    assert isinstance(await sent(harness, api), AuthorizationRequired)


async def test_a_rotated_key_is_replaced_by_the_next_one_without_a_pause(harness: Harness, api: KeyApi) -> None:
    await with_key(harness, api)
    await harness.change_grant("meter", next_credential=packed({"apiKey": NEWER}))
    del api.keys[GOOD]
    found = await asyncio.gather(*(sent(harness, api) for _ in range(CALLERS)))
    assert {200} == {it.status_code for it in found}
    grant = await harness.grant("meter")
    assert grant is not None
    assert (packed({"apiKey": NEWER}), None, False) == (
        grant.token and grant.token.access_token,
        grant.next_credential,
        grant.rejected,
    )


async def test_an_api_that_is_away_costs_no_key(harness: Harness, api: KeyApi) -> None:
    await with_key(harness, api)
    for status in (500, 503, 429, 403):
        api.status = status
        assert status == (await sent(harness, api)).status_code
    api.status = 0
    del api.keys[GOOD]
    api.statuses = {"/me": 503}
    assert 401 == (await sent(harness, api)).status_code
    api.keys[GOOD], api.statuses = "U234567", {}
    assert 200 == (await sent(harness, api)).status_code


@pytest.mark.case("157")
async def test_a_403_alone_takes_no_key(harness: Harness, api: KeyApi) -> None:
    await with_key(harness, api)
    api.statuses = {"/data": 403}
    assert 403 == (await sent(harness, api)).status_code
    api.statuses = {}
    assert 200 == (await sent(harness, api)).status_code
    assert 1 == checks(api)


@pytest.mark.case("157")
async def test_without_a_check_a_401_asks_for_a_new_key(harness: Harness, api: KeyApi) -> None:
    await with_key(harness, api, app="unchecked")
    result = await sent(harness, api, "/locked", app="unchecked")
    assert "keyRejected" == result.reason


async def test_a_worker_that_died_with_the_session_claimed_leaves_a_link_that_takes_the_key(
    harness: Harness, api: KeyApi
) -> None:
    asked = await asked_for(harness, api)
    versioned = await harness.repository.session(asked.auth_session_id.removeprefix("as-"))
    assert versioned is not None
    assert await harness.parts.finish.claim(versioned, 60.0) is not None
    assert 400 == (await harness.browser().open(asked.authorization_url)).status
    harness.clock.advance(61 + PAIR_WAIT_SECONDS)
    page = await type_key(harness, asked, GOOD)
    assert "is connected" in page.text


async def test_the_sweep_gives_a_dead_workers_session_back_and_ends_it_in_time(harness: Harness, api: KeyApi) -> None:
    asked = await asked_for(harness, api)
    versioned = await harness.repository.session(asked.auth_session_id.removeprefix("as-"))
    assert versioned is not None
    assert await harness.parts.finish.claim(versioned, 60.0) is not None
    harness.clock.advance(61 + PAIR_WAIT_SECONDS)
    await harness.parts.sweep.once()
    session = await harness.session(asked)
    assert (True, None) == (session.open, session.claim)
    harness.clock.advance(3600)
    await harness.parts.sweep.once()
    assert "expired" == (await harness.session(asked)).status


async def test_a_clock_that_is_set_back_costs_no_key(harness: Harness, api: KeyApi) -> None:
    for app in ("meter", "short"):
        await with_key(harness, api, app=app)
    harness.clock.set(harness.clock.now() - timedelta(days=2))
    for app in ("meter", "short"):
        assert 200 == (await sent(harness, api, app=app)).status_code


@pytest.mark.case("158")
async def test_a_key_with_a_life_is_announced_by_a_link_and_asked_for_at_its_end(harness: Harness, api: KeyApi) -> None:
    await with_key(harness, api, app="short")
    (listed,) = [it async for it in harness.broker.grants.list(app="short")]
    assert "2" == str(listed.endsAt)[0], "lists name the end"
    assert "auth.granted" == (await harness.events())[0]["type"]
    harness.clock.advance(27.5 * DAY)
    await harness.parts.expiring.run_pass()
    await harness.parts.relay.once()
    (event,) = await harness.events()
    assert "auth.expiring" == event["type"]
    browser = harness.browser()
    page = await browser.open(event["payload"]["connectUrl"])
    while page.location is not None:
        page = await browser.follow()
    page = await browser.submit(
        {"decision": "continue", "credential.apiKey": NEWER}, form=browser.page.form("decision")
    )
    while page.location is not None:
        page = await browser.follow()
    assert "is connected" in page.text
    harness.clock.advance(29 * DAY)
    assert NEWER in repr((await sent(harness, api, app="short"), api.seen[-1].headers))
    harness.clock.advance(1.1 * DAY)
    assert "expired" == (await sent(harness, api, app="short")).reason


# a team's key in place of one's own


async def team_has(harness: Harness, key: str, app: str = "shared") -> None:
    now = harness.clock.now()
    team = Grant(
        app=app,
        provider="meter",
        subject=TEAM,
        flow="static_credential",
        scopes=(),
        token=Token(access_token=packed({"apiKey": key}), token_type="credential", refresh_token=None),
        created_at=now,
        updated_at=now,
        registration=harness.parts.apps[app].registration,
    )
    await harness.repository.save_grant(team, expect=0)


def credential_of(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.headers.get("oauthbroker-credential", "")


def injected(harness: Harness) -> list[tuple[str, bool]]:
    return [(it.grant, it.team) for it in harness.audit.entries if isinstance(it, TokenInjected)]


async def test_a_user_without_a_key_uses_the_teams_and_is_told_until_there_is_an_own_one(
    harness: Harness, api: KeyApi
) -> None:
    asked = await asked_for(harness, api, app="shared")
    await team_has(harness, NEWER)
    for _ in range(4):  # also a call that was answered before
        assert (200, "team") == credential_of(await sent(harness, api, app="shared"))
        assert NEWER == api.seen[-1].headers["x-api-key"]
    assert "is connected" in (await type_key(harness, asked, GOOD)).text
    for _ in range(4):
        assert (200, "") == credential_of(await sent(harness, api, app="shared"))
        assert GOOD == api.seen[-1].headers["x-api-key"]
    team, own = grant_id("shared", TEAM), grant_id("shared", ALICE)
    assert [(team, True)] * 4 + [(own, False)] * 4 == injected(harness)


async def test_an_own_key_counts_at_once_for_a_client_that_is_warm(harness: Harness, api: KeyApi) -> None:
    asked = await asked_for(harness, api, app="shared")
    await team_has(harness, NEWER)
    async with harness.broker.oauth(turn()).client("shared") as client:
        for _ in range(3):
            assert (200, "team") == credential_of(await client.get(api.url("/data")))
        await type_key(harness, asked, GOOD)
        assert (200, "") == credential_of(await client.get(api.url("/data")))


async def test_the_api_cannot_say_whose_key_it_was(harness: Harness, api: KeyApi) -> None:
    await with_key(harness, api, app="shared")
    api.headers = [(b"oauthbroker-credential", b"team"), (b"OAuthBroker_Credential", b"team")]
    answer = await sent(harness, api, app="shared")
    assert 200 == answer.status_code
    assert "credential" not in repr(answer.headers).lower()


async def test_without_the_fallback_or_for_an_oauth_app_no_team_grant_is_used(harness: Harness, api: KeyApi) -> None:
    for app in ("meter", "mail"):
        await team_has(harness, NEWER, app=app)
    assert "noGrant" == (await asked_for(harness, api)).reason
    assert "noGrant" == (await harness.ask_link("mail", [])).reason


async def test_no_user_gets_the_key_of_another(harness: Harness, api: KeyApi) -> None:
    await with_key(harness, api, OF_BOB, BOB, app="shared")
    assert isinstance(await sent(harness, api, app="shared"), AuthorizationRequired)
    assert isinstance(await sent(harness, api, of=turn(team=None), app="shared"), AuthorizationRequired)


async def test_a_path_that_refuses_the_teams_key_too_is_no_reason_to_ask_the_user(
    harness: Harness, api: KeyApi
) -> None:
    await team_has(harness, NEWER)
    assert (401, "team") == credential_of(await sent(harness, api, "/locked", app="shared"))
    assert (200, "team") == credential_of(await sent(harness, api, app="shared"))


@pytest.mark.parametrize("dead", ["the team's", "one's own"])
async def test_a_401_takes_the_key_that_was_refused_and_no_other(harness: Harness, api: KeyApi, dead: str) -> None:
    asked = await asked_for(harness, api, app="shared")
    await team_has(harness, NEWER)
    if dead == "one's own":
        await type_key(harness, asked, GOOD)
        del api.keys[GOOD]
        assert (200, "team") == credential_of(await sent(harness, api, app="shared"))
    else:
        del api.keys[NEWER]
        assert "noGrant" == (await sent(harness, api, app="shared")).reason
    own, team = await harness.grant("shared"), await harness.grant("shared", TEAM)
    assert team is not None
    assert (dead == "the team's") is team.rejected
    assert (dead == "one's own") is (own is not None and own.rejected)


# what the entry refuses


def ticket(asked: AuthorizationRequired) -> str:
    return asked.authorization_url.rsplit("/", 1)[-1]


async def entered(harness: Harness, asked: AuthorizationRequired, key: str) -> Code | None:
    """Send the form of a page that was loaded before, and return why it was refused."""
    try:
        await harness.parts.pages.service.enter(ticket(asked), {}, "", {"apiKey": key}, None)
    except BrokerError as error:
        return error.code
    return None


async def test_a_403_of_the_check_refuses_the_key(harness: Harness, api: KeyApi) -> None:
    asked = await asked_for(harness, api)
    api.statuses = {"/me": 403}
    assert Code.CREDENTIAL_REFUSED is await entered(harness, asked, GOOD)


async def test_a_store_that_fails_at_the_commit_leaves_the_link_as_it_was(
    harness: Harness, api: KeyApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = await asked_for(harness, api)

    async def fails(*_: object) -> None:
        raise BrokerError(Code.STORE_UNAVAILABLE)

    with monkeypatch.context() as patched:
        patched.setattr("oauthbroker.authorization.finish.Finish.commit", fails)
        assert Code.STORE_UNAVAILABLE is await entered(harness, asked, GOOD)
    session = await harness.session(asked)
    assert (True, None) == (session.open, session.claim)
    assert await harness.event(wait=0) is None, "nothing has failed for the agent"
    assert await entered(harness, asked, GOOD) is None


async def test_a_link_takes_a_limited_number_of_wrong_keys(harness: Harness, api: KeyApi) -> None:
    asked = await asked_for(harness, api)
    for _ in range(MAX_PRESSES):
        assert Code.CREDENTIAL_REFUSED is await entered(harness, asked, DEAD)
    assert Code.STATE_UNKNOWN is await entered(harness, asked, GOOD)
    assert MAX_PRESSES == checks(api)


async def test_a_page_of_an_app_that_has_other_fields_by_now_stores_nothing(harness: Harness, api: KeyApi) -> None:
    """Another process has opened it, and the sweep has not seen it yet."""
    asked = await asked_for(harness, api)
    versioned = await harness.repository.session(asked.auth_session_id.removeprefix("as-"))
    assert versioned is not None
    older = replace(versioned.record, config_digest="of other fields")
    await harness.repository.save_session(older, expect=versioned.generation)
    assert Code.STATE_UNKNOWN is await entered(harness, asked, GOOD)
    assert 0 == checks(api)


async def test_a_key_is_of_no_use_for_an_app_with_another_host(harness: Harness, api: KeyApi) -> None:
    await with_key(harness, api)
    async with key_api() as other:
        bundle = harness.broker.bundle
        await harness.broker.reload(replace(bundle, apps={**bundle.apps, "meter": key_app(other)}))
        assert "noGrant" == (await sent(harness, other)).reason
        assert [] == other.seen


async def test_under_a_login_of_the_broker_a_key_is_typed_after_it(harness: Harness, api: KeyApi) -> None:
    bundle = harness.broker.bundle
    app = key_app(api, owner=Owner(binding="brokerLogin"))
    await harness.broker.reload(replace(bundle, apps={**bundle.apps, "meter": app}))
    asked = await asked_for(harness, api)
    assert Code.OWNER_BINDING_FAILED is await entered(harness, asked, GOOD)
    assert 0 == checks(api)


async def test_a_refusal_that_is_noted_is_not_asked_for_again(harness: Harness, api: KeyApi) -> None:
    await with_key(harness, api)
    del api.keys[GOOD]
    before, app = checks(api), harness.parts.apps["meter"]
    for _ in range(3):
        await harness.parts.manager.rejections.report(app, GrantKey("meter", ALICE), packed({"apiKey": GOOD}))
    assert before + 1 == checks(api)


async def test_an_erasure_ends_the_session_of_a_worker_that_died(harness: Harness, api: KeyApi) -> None:
    asked = await asked_for(harness, api)
    versioned = await harness.repository.session(asked.auth_session_id.removeprefix("as-"))
    assert versioned is not None
    assert await harness.parts.finish.claim(versioned, 60.0) is not None
    harness.clock.advance(61 + PAIR_WAIT_SECONDS)
    assert (await harness.broker.erase(ALICE)).done
    assert (await harness.broker.erasure.find_records(ALICE)).empty
    assert Code.STATE_UNKNOWN is await entered(harness, asked, GOOD)
