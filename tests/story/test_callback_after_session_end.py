"""A browser that comes back to a session that is over: its own browser is told the truth, every other browser is told
the same as of a link that never was. And the pages that say how it ended, which only a browser that comes from there
can see."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from urllib.parse import urlencode

import pytest

from oauthbroker.core.errors import Code
from oauthbroker.model.results import AuthorizationRequired, Ready, SessionOutcome
from oauthbroker.model.settings import Limits
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.testing.browser import Browser, Page
from oauthbroker.web.browsers import ARRIVAL_SECONDS as SECONDS
from tests.kit.callback_pages import CALLBACK, UNKNOWN_STATE, assert_error_page, without_request_id
from tests.kit.running_broker import BASE, House, running, turn, user_app
from tests.story.binding_kit import (
    ALICE,
    broker_login,
    came_back,
    corp_turn,
    handle_on,
    login_app,
    login_callback,
    of_alice,
    parked_app,
    settings_for,
)

CONNECTED = "Mail is connected"
CALL_FOR_ANOTHER = ("new one", "new link", "새 링크")

Ended = Callable[[House, AuthorizationRequired, Browser], Awaitable[str]]


def cookie_of(asked: AuthorizationRequired) -> str:
    return f"oab-{asked.auth_session_id.removeprefix('as-')}"


def assert_says_connected(page: Page) -> None:
    """The code of a used link, and that nothing is left to do."""
    assert_error_page(page, Code.STATE_USED)
    assert CONNECTED in page.text
    assert not [words for words in CALL_FOR_ANOTHER if words in page.text]


# the states in which a session can be over; each returns the callback's address


async def late(house: House, asked: AuthorizationRequired, person: Browser) -> str:
    url = await house.way_back(asked, person)
    house.clock.advance(601)
    return url


async def late_and_swept(house: House, asked: AuthorizationRequired, person: Browser) -> str:
    url = await late(house, asked, person)
    assert_error_page(await person.follow(url), Code.STATE_EXPIRED)
    assert "expired" == (await house.session(asked)).status
    return url


async def under_way(house: House, asked: AuthorizationRequired, person: Browser) -> str:
    url = await house.way_back(asked, person)
    held = await house.repository.session(asked.auth_session_id.removeprefix("as-"))
    assert held is not None
    claimed = held.record.claimed("another callback", house.clock.now() + timedelta(minutes=5))
    await house.repository.save_session(claimed, expect=held.generation)
    return url


async def declined(house: House, asked: AuthorizationRequired, person: Browser) -> str:
    house.idp.script.authorize.error()
    url = await house.way_back(asked, person)
    assert_error_page(await person.follow(url), Code.PROVIDER_DENIED)
    return url


async def stolen(house: House, asked: AuthorizationRequired, person: Browser) -> str:
    url = await house.way_back(asked, person)
    assert_error_page(await house.browser().open(url), Code.OWNER_BINDING_FAILED)
    return url


async def connected(house: House, asked: AuthorizationRequired, person: Browser) -> str:
    url = await house.way_back(asked, person)
    assert 303 == (await person.follow(url)).status
    return url


async def connected_elsewhere(house: House, asked: AuthorizationRequired, person: Browser) -> str:
    """By another link, while this browser was at the provider."""
    url = await house.way_back(asked, person)
    other = await house.ask_link(of=turn(instance="another conversation"))
    assert 200 == (await house.connect(other)).status
    return url


OVER: dict[str, tuple[Ended, Code, bool]] = {
    "late": (late, Code.STATE_EXPIRED, False),
    "late, and the record says so": (late_and_swept, Code.STATE_EXPIRED, False),
    "being finished": (under_way, Code.STATE_USED, False),
    "declined at the provider": (declined, Code.STATE_USED, False),
    "failed": (stolen, Code.STATE_USED, False),
    "connected": (connected, Code.STATE_USED, True),
    "connected by another link": (connected_elsewhere, Code.STATE_USED, True),
}
table = pytest.mark.parametrize("end, code, is_connected", OVER.values(), ids=OVER)


@pytest.mark.case("3", "4")
@table
@pytest.mark.parametrize("by", ["the link", "its button", "the callback"])
async def test_the_sessions_own_browser_is_told_what_became_of_it(
    house: House, end: Ended, code: Code, is_connected: bool, by: str
) -> None:
    asked, person = await house.ask_link(), house.browser()
    connect_page = await person.open(asked.authorization_url)
    url = await end(house, asked, person)
    exchanges = house.idp.count("token")
    if by == "its button":
        form = connect_page.form()
        page = await person.post(asked.authorization_url, [*form.fields, form.buttons[0]], initiator=connect_page)
    else:
        page = await person.open(url if by == "the callback" else asked.authorization_url)
    if is_connected:
        assert_says_connected(page)
    else:
        assert_error_page(page, code)
        assert CONNECTED not in page.text
    assert exchanges == house.idp.count("token")


@pytest.mark.case("2", "3", "4")
@table
async def test_every_other_browser_is_told_what_an_unknown_link_is_told(
    house: House, end: Ended, code: Code, is_connected: bool
) -> None:
    """Without the session's cookie, with a made-up one, and with that of another session: byte for byte."""
    asked, person, other = await house.ask_link(), house.browser(), house.browser()
    elsewhere = await house.ask_link("files")
    await house.to_provider(elsewhere, other)
    url = await end(house, asked, person)
    tossed, swapped = house.browser(), house.browser()
    tossed.cookies.set(cookie_of(asked), "x" * 43, "127.0.0.1")
    swapped.cookies.set(cookie_of(asked), other.cookies[cookie_of(elsewhere)].value, "127.0.0.1")
    strangers = [house.browser(), tossed, swapped]
    unknown = await house.browser().open(f"{BASE}/connect/{UNKNOWN_STATE}")
    assert_error_page(unknown, Code.STATE_UNKNOWN)
    for stranger in strangers:
        assert without_request_id(unknown) == without_request_id(await stranger.open(asked.authorization_url))
    if end is not late:  # a stranger's callback of an open session ends it: that is ownerBindingFailed (case 5)
        unknown = await house.browser().open(f"{CALLBACK}?{urlencode({'code': 'abc', 'state': UNKNOWN_STATE})}")
        for stranger in strangers:
            assert without_request_id(unknown) == without_request_id(await stranger.open(url))


@table
async def test_a_program_is_told_the_code(house: House, end: Ended, code: Code, is_connected: bool) -> None:
    asked, person = await house.ask_link(), house.browser()
    await end(house, asked, person)
    page = await person.open(asked.authorization_url, headers={"accept": "application/json"})
    assert (code.status, True) == (page.status, f'"{code.value}"' in page.source)


async def test_the_truth_is_told_for_an_hour(identity_provider: IdentityProvider, test_clock: TestClock) -> None:
    """As long as the record of the session is kept; then its browser is a stranger like any other."""
    limits = Limits(sweep_seconds=0.02)
    async with running(identity_provider, [user_app(identity_provider)], clock=test_clock, limits=limits) as house:
        asked, person = await house.ask_link(), house.browser()
        await connected(house, asked, person)
        house.clock.advance(3500)
        await asyncio.sleep(0.1)  # several sweeps
        assert_says_connected(await person.open(asked.authorization_url))
        house.clock.advance(101)
        async with asyncio.timeout(60):
            while await house.store.count("sessions"):
                await asyncio.sleep(0.01)
        assert_error_page(await person.open(asked.authorization_url), Code.STATE_UNKNOWN)


async def test_an_open_session_is_not_spoken_of(house: House) -> None:
    """A state that was made up is unknown, also in the browser that the session is of (case 2)."""
    asked, person = await house.ask_link(), house.browser()
    await house.to_provider(asked, person)
    forged = asked.auth_session_id.removeprefix("as-") + "x" * 43
    page = await person.open(f"{CALLBACK}?{urlencode({'code': 'abc', 'state': forged})}")
    assert_error_page(page, Code.STATE_UNKNOWN)
    assert (await house.session(asked)).open


@pytest.mark.parametrize("when", ["late", "connected"])
async def test_a_browser_that_was_at_the_brokers_own_login_is_told_too(
    identity_provider: IdentityProvider, test_clock: TestClock, when: str
) -> None:
    with IdentityProvider(clock=test_clock) as corp:
        login = broker_login(corp)
        async with running(
            identity_provider,
            [login_app(identity_provider)],
            clock=test_clock,
            settings=settings_for(),
            login=login,
            corp=corp,
        ) as house:
            asked, person = await house.ask_link(of=corp_turn()), house.browser()
            url = await login_callback(house, asked, person)
            if when == "late":
                house.clock.advance(601)
            else:
                other = await house.ask_link(of=corp_turn(instance="another conversation"))
                assert 200 == (await house.connect(other)).status
            unknown = await house.browser().open(f"{BASE}/connect/{UNKNOWN_STATE}")
            assert without_request_id(unknown) == without_request_id(
                await house.browser().open(asked.authorization_url)
            )
            for place in (url, asked.authorization_url):
                page = await person.open(place)
                if when == "late":
                    assert_error_page(page, Code.STATE_EXPIRED)
                else:
                    assert_says_connected(page)


# how it ended, on a clean page


@pytest.mark.case("92")
@pytest.mark.parametrize("how", ["connected", "declined"])
async def test_how_it_ended_is_shown_to_the_browser_that_comes_from_there_and_only_for_minutes(
    house: House, how: str
) -> None:
    asked, person = await house.ask_link(), house.browser()
    if how == "connected":
        await house.connect(asked, browser=person)
    else:
        await person.open(asked.authorization_url)
        await person.submit({"decision": "cancel"})
    place, other = f"{BASE}/{how}/mail", f"{BASE}/{'declined' if how == 'connected' else 'connected'}/mail"
    nothing = await house.browser().open(f"{BASE}/{how}/no-such-app")
    assert 404 == nothing.status
    for _ in range(2):
        assert 200 == (await person.open(place)).status, "and it may be looked at again"
    assert without_request_id(nothing) == without_request_id(await house.browser().open(place))
    assert without_request_id(nothing) == without_request_id(await person.open(other))
    assert without_request_id(nothing) == without_request_id(await person.open(place.replace("mail", "files")))
    house.clock.advance(SECONDS)
    assert without_request_id(nothing) == without_request_id(await person.open(place))


@pytest.mark.parametrize(
    "forge",
    [
        lambda value: "x" * len(value),
        lambda value: value[:-1] + ("A" if value[-1] != "A" else "B"),
        lambda value: str(int(value.partition("-")[0]) + 1) + "-" + value.partition("-")[2],
        lambda value: value.partition("-")[2],
        lambda value: f"9{value}",
        lambda value: "",
    ],
)
async def test_a_made_up_arrival_shows_nothing(house: House, forge: Callable[[str], str]) -> None:
    person, other = house.browser(), house.browser()
    await house.connect(await house.ask_link(), browser=person)
    other.cookies.set("oab_arrival", forge(person.cookies["oab_arrival"].value), "127.0.0.1")
    nothing = await house.browser().open(f"{BASE}/connected/no-such-app")
    assert without_request_id(nothing) == without_request_id(await other.open(f"{BASE}/connected/mail"))


async def test_an_arrival_is_of_its_session_and_of_no_other(house: House) -> None:
    """Somebody's arrival with another session's locator in it is no arrival."""
    person, other = house.browser(), house.browser()
    await house.connect(await house.ask_link(), browser=person)
    files = await house.ask_link("files")
    assert 200 == (await house.connect(files, browser=other)).status
    value = person.cookies["oab_arrival"].value
    until, proof = value[: value.index("-")], value[-43:]
    locator = files.auth_session_id.removeprefix("as-")
    person.cookies.set("oab_arrival", f"{until}-{locator}-{proof}", "127.0.0.1")
    assert 404 == (await person.open(f"{BASE}/connected/files")).status


async def test_after_a_runtimes_page_it_is_shown_once_it_is_true(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    """The runtime sends the browser there; before it has confirmed, and to another browser, nothing is said."""
    app = parked_app(identity_provider, "runtimeConfirm")
    async with running(identity_provider, [app], clock=test_clock, settings=settings_for()) as house:
        person = house.browser()
        handle = handle_on(await came_back(house, await house.ask_link(of=of_alice()), person))
        assert 404 == (await person.open(f"{BASE}/connected/mail")).status
        assert SessionOutcome("completed").status == (await house.broker.confirm(handle, ALICE)).status
        assert 200 == (await person.open(f"{BASE}/connected/mail")).status
        assert 404 == (await house.browser().open(f"{BASE}/connected/mail")).status


async def test_after_a_direct_link_it_is_shown_too(identity_provider: IdentityProvider) -> None:
    app = user_app(identity_provider)
    app = replace(app, redirect=replace(app.redirect, link="direct"))
    async with running(identity_provider, [app]) as house:
        page = await house.connect(await house.ask_link())
        assert (200, f"{BASE}/connected/mail") == (page.status, page.url)
        assert isinstance(await house.ask(), Ready)
