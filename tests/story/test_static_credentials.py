"""A CredentialApp from the first request without a key to the last: asked, typed, checked, injected, rejected, replaced."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from oauthbroker.core.errors import Code
from oauthbroker.model.token_results import AuthorizationRequired, Failed
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.running_broker import ALICE, BOB, Harness, running, turn
from tests.story.keys_kit import (
    DEAD,
    GOOD,
    NEWER,
    OF_BOB,
    KeyApi,
    asked_for,
    key_app,
    sent,
    type_key,
    with_key,
)


@pytest.fixture
async def harness(api: KeyApi, test_clock: TestClock) -> AsyncIterator[Harness]:
    async with IdentityProvider(clock=test_clock) as idp, running(idp, [key_app(api)], clock=test_clock) as harness:
        yield harness


async def test_a_key_is_typed_checked_and_injected(harness: Harness, api: KeyApi) -> None:
    asked = await asked_for(harness, api)
    assert "noGrant" == asked.reason
    page = await type_key(harness, asked, f"  {GOOD}\n")
    assert "Meter is connected" in page.text
    assert [("/me", GOOD)] == [(it.path, it.headers["x-api-key"]) for it in api.seen]
    answer = await sent(harness, api)
    assert (200, {"id": "U234567"}) == (answer.status_code, answer.json())
    assert GOOD == api.seen[-1].headers["x-api-key"]


async def test_the_turn_resumes_by_an_event(harness: Harness, api: KeyApi) -> None:
    await with_key(harness, api)
    leased = await harness.broker.events.lease("planner", wait=5)
    assert leased is not None
    event = leased.event
    assert ("auth.granted", {"kind": "CredentialApp", "name": "meter"}) == (event.type, event.payload["oauthAppRef"])
    assert GOOD not in repr(event)


@pytest.mark.case("152")
async def test_a_token_call_never_hands_it_out_and_says_the_way(harness: Harness, api: KeyApi) -> None:
    await with_key(harness, api)
    for _ in range(3):
        result = await harness.ask("meter")
        assert isinstance(result, Failed)
        assert Code.REQUEST_INVALID is result.code
        assert "ctx.oauth.client" in result.message
    assert isinstance(await harness.broker.oauth(turn()).report_rejected("meter", GOOD), Failed)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (DEAD, "did not accept"),
        (OF_BOB, "another account"),
        ("", "Enter a value"),
        ("a\u200bb", "character"),
        ("é" * 9, "character"),
        ("x" * 8193, "too long"),
    ],
)
@pytest.mark.case("154")
async def test_a_wrong_key_is_told_and_nothing_is_stored(harness: Harness, api: KeyApi, key: str, words: str) -> None:
    asked = await asked_for(harness, api)
    page = await type_key(harness, asked, key)
    assert words in page.text
    assert 400 <= page.status < 500
    assert not key or key not in page.text
    assert isinstance(await sent(harness, api), AuthorizationRequired)
    page = await type_key(harness, asked, GOOD)
    assert "is connected" in page.text, "the link goes on working"


@pytest.mark.parametrize("status", [500, 503, 429, 302, 404])
@pytest.mark.case("154")
async def test_a_key_that_could_not_be_checked_is_not_stored(harness: Harness, api: KeyApi, status: int) -> None:
    asked = await asked_for(harness, api)
    api.status = status
    page = await type_key(harness, asked, GOOD)
    assert (503, True) == (page.status, "could not be asked" in page.text)
    api.status = 0
    assert isinstance(await sent(harness, api), AuthorizationRequired)


@pytest.mark.case("157")
async def test_a_dead_key_is_asked_for_again_and_replaced_in_place(harness: Harness, api: KeyApi) -> None:
    await with_key(harness, api)
    before = [it.grantId async for it in harness.broker.grants.list(app="meter")]
    del api.keys[GOOD]
    result = await sent(harness, api)
    assert isinstance(result, AuthorizationRequired)
    assert "keyRejected" == result.reason
    page = await type_key(harness, result, DEAD)
    assert 403 == page.status
    page = await type_key(harness, result, NEWER)
    assert "is connected" in page.text
    assert 200 == (await sent(harness, api)).status_code
    assert before == [it.grantId async for it in harness.broker.grants.list(app="meter")]


@pytest.mark.case("157")
async def test_a_path_that_refuses_every_key_costs_no_key(harness: Harness, api: KeyApi) -> None:
    await with_key(harness, api)
    assert 401 == (await sent(harness, api, "/locked")).status_code
    assert 200 == (await sent(harness, api)).status_code
    checks = [it.path for it in api.seen].count("/me")
    assert 401 == (await sent(harness, api, "/locked")).status_code
    assert checks == [it.path for it in api.seen].count("/me"), "it was checked a moment ago"


async def test_another_user_has_a_key_of_their_own(harness: Harness, api: KeyApi) -> None:
    await with_key(harness, api)
    await with_key(harness, api, OF_BOB, BOB)
    assert {"id": "U345678"} == (await sent(harness, api, of=turn(user=BOB))).json()
    assert {"id": "U234567"} == (await sent(harness, api, of=turn(user=ALICE))).json()


async def test_what_the_api_repeats_is_masked(harness: Harness, api: KeyApi) -> None:
    await with_key(harness, api)
    answer = await sent(harness, api, "/echo")
    assert GOOD not in answer.text
    assert GOOD not in repr(answer.headers)
    assert "*" * len(GOOD) in answer.text


async def test_a_callers_own_header_of_that_name_is_dropped(harness: Harness, api: KeyApi) -> None:
    await with_key(harness, api)
    await sent(harness, api, headers={"x_api_key": "mine", "X-API-KEY": "mine"})
    assert GOOD == api.seen[-1].headers["x-api-key"]
    assert "mine" not in repr(api.seen[-1])
