"""A link that leads nowhere any more says so when it is opened, not after its button: what the button would have said."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest

from oauthbroker.core.errors import Code
from oauthbroker.model.results import AuthorizationRequired
from oauthbroker.records.session import MAX_PRESSES
from oauthbroker.testing import Browser, IdentityProvider, TestClock
from tests.kit.callback_pages import assert_error_page
from tests.kit.running_broker import House, running, user_app

Wear = Callable[[House, AuthorizationRequired], Awaitable[object]]


@pytest.fixture
async def house(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[House]:
    async with running(identity_provider, [user_app(identity_provider)], clock=test_clock, background=False) as house:
        yield house


async def shown(house: House, asked: AuthorizationRequired) -> Browser:
    person = house.browser()
    await person.open(asked.authorization_url)
    assert person.page.form("decision")
    return person


async def use(house: House, asked: AuthorizationRequired) -> None:
    assert 200 == (await house.connect(asked)).status


async def decline(house: House, asked: AuthorizationRequired) -> None:
    person = await shown(house, asked)
    assert 303 == (await person.submit({"decision": "cancel"})).status


async def withdraw(house: House, asked: AuthorizationRequired) -> None:
    assert await house.broker.cancel(asked.auth_session_id)


async def expire(house: House, _: AuthorizationRequired) -> None:
    house.clock.advance(house.broker.bundle.settings.limits.session_seconds + 1)


async def press_too_often(house: House, asked: AuthorizationRequired) -> None:
    for _ in range(MAX_PRESSES):
        person = await shown(house, asked)
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
async def test_a_worn_out_link_says_so_at_once_and_no_more_than_its_button(house: House, wear: Wear) -> None:
    asked = await house.ask_link()
    early = await shown(house, asked)
    await wear(house, asked)
    left = await house.session(asked)
    stranger = house.browser()
    for _ in range(3):
        page = await stranger.open(asked.authorization_url)
        assert_error_page(page, Code.STATE_UNKNOWN)
        assert [] == page.document.forms
    assert left == await house.session(asked), "looking changes nothing"
    pressed = await early.submit()
    assert_error_page(pressed, Code.STATE_UNKNOWN)
    assert (page.status, page.text) == (pressed.status, pressed.text)
    never = await stranger.open(asked.authorization_url[:-65] + "x" * 65)
    assert (page.status, page.text) == (never.status, never.text), "nobody learns that there was one"


@pytest.mark.case("17")
async def test_a_link_of_another_configuration_says_so_at_once_and_is_ended_by_its_button_alone(
    house: House, identity_provider: IdentityProvider
) -> None:
    asked = await house.ask_link()
    early, late = await shown(house, asked), await shown(house, asked)
    left = await house.session(asked)
    changed = replace(user_app(identity_provider), scopes=("read",))
    async with running(
        identity_provider, [changed], clock=house.clock, store=house.store, background=False
    ) as reconfigured:
        for person in (early, late):
            person.serve(reconfigured.origin, reconfigured.broker.web)
        page = await late.open(asked.authorization_url)
        assert_error_page(page, Code.STATE_UNKNOWN)
        assert ([], left) == (page.document.forms, await reconfigured.session(asked))
        assert_error_page(await early.submit(), Code.STATE_UNKNOWN)
        assert not (await reconfigured.session(asked)).open


async def test_who_is_on_the_way_by_a_link_that_was_pressed_too_often_still_arrives(house: House) -> None:
    asked, person = await house.ask_link(), house.browser()
    for _ in range(MAX_PRESSES - 1):
        await (await shown(house, asked)).submit()
    back = await house.way_back(asked, person)
    assert_error_page(await house.browser().open(asked.authorization_url), Code.STATE_UNKNOWN)
    assert 303 == (await person.follow(back)).status
    assert "ready" == (await house.ask()).status
