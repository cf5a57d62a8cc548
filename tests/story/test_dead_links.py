"""A link that leads nowhere any more says so when it is opened, not after its button: what the button would have said."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest

from oauthbroker.core.errors import Code
from oauthbroker.model.token_results import AuthorizationRequired
from oauthbroker.records.auth_session import MAX_PRESSES
from oauthbroker.testing import Browser, IdentityProvider, TestClock
from tests.kit.callback_pages import assert_error_page
from tests.kit.running_broker import Harness, running, user_app

Wear = Callable[[Harness, AuthorizationRequired], Awaitable[object]]


@pytest.fixture
async def harness(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Harness]:
    async with running(identity_provider, [user_app(identity_provider)], clock=test_clock, background=False) as harness:
        yield harness


async def shown(harness: Harness, asked: AuthorizationRequired) -> Browser:
    person = harness.browser()
    await person.open(asked.authorization_url)
    assert person.page.form("decision")
    return person


async def use(harness: Harness, asked: AuthorizationRequired) -> None:
    assert 200 == (await harness.connect(asked)).status


async def decline(harness: Harness, asked: AuthorizationRequired) -> None:
    person = await shown(harness, asked)
    assert 303 == (await person.submit({"decision": "cancel"})).status


async def withdraw(harness: Harness, asked: AuthorizationRequired) -> None:
    assert await harness.broker.cancel(asked.auth_session_id)


async def expire(harness: Harness, _: AuthorizationRequired) -> None:
    harness.clock.advance(harness.broker.bundle.settings.limits.session_seconds + 1)


async def press_too_often(harness: Harness, asked: AuthorizationRequired) -> None:
    for _ in range(MAX_PRESSES):
        person = await shown(harness, asked)
        await person.submit()


WORN: dict[str, Wear] = {
    "used": use,
    "declined": decline,
    "withdrawn": withdraw,
    "expired": expire,
    "pressed too often": press_too_often,
}


@pytest.mark.case("17")
@pytest.mark.parametrize("wear", WORN.values(), ids=WORN)
async def test_a_dead_link_says_so_at_once_like_its_button(harness: Harness, wear: Wear) -> None:
    asked = await harness.ask_link()
    early = await shown(harness, asked)
    await wear(harness, asked)
    left = await harness.session(asked)
    stranger = harness.browser()
    for _ in range(3):
        page = await stranger.open(asked.authorization_url)
        assert_error_page(page, Code.STATE_UNKNOWN)
        assert [] == page.document.forms
    assert left == await harness.session(asked), "looking changes nothing"
    pressed = await early.submit()
    assert_error_page(pressed, Code.STATE_UNKNOWN)
    assert (page.status, page.text) == (pressed.status, pressed.text)
    never = await stranger.open(asked.authorization_url[:-65] + "x" * 65)
    assert (page.status, page.text) == (never.status, never.text), "the answer does not reveal that there was one"


@pytest.mark.case("17")
async def test_a_link_of_another_configuration_says_so_at_once_and_is_ended_by_its_button_alone(
    harness: Harness, identity_provider: IdentityProvider
) -> None:
    asked = await harness.ask_link()
    early, late = await shown(harness, asked), await shown(harness, asked)
    left = await harness.session(asked)
    changed = replace(user_app(identity_provider), scopes=("read",))
    async with running(
        identity_provider, [changed], clock=harness.clock, store=harness.store, background=False
    ) as reconfigured:
        for person in (early, late):
            person.serve(reconfigured.origin, reconfigured.broker.asgi.app)
        page = await late.open(asked.authorization_url)
        assert_error_page(page, Code.STATE_UNKNOWN, "otherConfig")
        assert ([], left) == (page.document.forms, await reconfigured.session(asked))
        assert_error_page(await early.submit(), Code.STATE_UNKNOWN)
        assert not (await reconfigured.session(asked)).open


async def test_who_is_on_the_way_by_a_link_that_was_pressed_too_often_still_arrives(harness: Harness) -> None:
    asked, person = await harness.ask_link(), harness.browser()
    for _ in range(MAX_PRESSES - 1):
        await (await shown(harness, asked)).submit()
    back = await harness.way_back(asked, person)
    assert_error_page(await harness.browser().open(asked.authorization_url), Code.STATE_UNKNOWN)
    assert 303 == (await person.follow(back)).status
    assert "ready" == (await harness.ask()).status
