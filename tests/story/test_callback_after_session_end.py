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
from oauthbroker.model.settings import Limits
from oauthbroker.model.token_results import AuthorizationRequired, Ready, SessionOutcome
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.testing.browser import Browser, Page
from oauthbroker.web.gate.browsers import ARRIVAL_SECONDS as SECONDS
from tests.kit.callback_pages import (
    CALLBACK,
    UNKNOWN_STATE,
    arrival_name,
    assert_already_connected,
    assert_error_page,
    without_request_id,
)
from tests.kit.running_broker import BASE, Harness, running, turn, user_app
from tests.story.binding_kit import (
    ALICE,
    broker_login,
    came_back,
    confirming_app,
    corp_turn,
    handle_on,
    login_app,
    login_callback,
    of_alice,
    settings_for,
)

CONNECTED = "Mail is connected"

Ended = Callable[[Harness, AuthorizationRequired, Browser], Awaitable[str]]


def cookie_of(asked: AuthorizationRequired) -> str:
    return f"oab-{asked.auth_session_id.removeprefix('as-')}"


def assert_says_connected(page: Page) -> None:
    """The code of a used link, and that nothing is left to do."""
    assert_already_connected(page)
    assert CONNECTED in page.text


# the states in which a session can be over; each returns the callback's address


async def late(harness: Harness, asked: AuthorizationRequired, person: Browser) -> str:
    url = await harness.way_back(asked, person)
    harness.clock.advance(601)
    return url


async def late_and_swept(harness: Harness, asked: AuthorizationRequired, person: Browser) -> str:
    url = await late(harness, asked, person)
    assert_error_page(await person.follow(url), Code.STATE_EXPIRED)
    assert "expired" == (await harness.session(asked)).status
    return url


async def under_way(harness: Harness, asked: AuthorizationRequired, person: Browser) -> str:
    url = await harness.way_back(asked, person)
    versioned = await harness.repository.session(asked.auth_session_id.removeprefix("as-"))
    assert versioned is not None
    claimed = versioned.record.claimed("another callback", harness.clock.now() + timedelta(minutes=5))
    await harness.repository.save_session(claimed, expect=versioned.generation)
    return url


async def declined(harness: Harness, asked: AuthorizationRequired, person: Browser) -> str:
    harness.idp.script.authorize.error()
    url = await harness.way_back(asked, person)
    assert_error_page(await person.follow(url), Code.PROVIDER_DENIED)
    return url


async def stolen(harness: Harness, asked: AuthorizationRequired, person: Browser) -> str:
    url = await harness.way_back(asked, person)
    assert_error_page(await harness.browser().open(url), Code.OWNER_BINDING_FAILED)
    return url


async def connected(harness: Harness, asked: AuthorizationRequired, person: Browser) -> str:
    url = await harness.way_back(asked, person)
    assert 303 == (await person.follow(url)).status
    return url


async def connected_elsewhere(harness: Harness, asked: AuthorizationRequired, person: Browser) -> str:
    """By another link, while this browser was at the provider."""
    url = await harness.way_back(asked, person)
    other = await harness.ask_link(of=turn(instance="another conversation"))
    assert 200 == (await harness.connect(other)).status
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
    harness: Harness, end: Ended, code: Code, is_connected: bool, by: str
) -> None:
    asked, person = await harness.ask_link(), harness.browser()
    connect_page = await person.open(asked.authorization_url)
    url = await end(harness, asked, person)
    exchanges = harness.idp.count("token")
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
    assert exchanges == harness.idp.count("token")


@pytest.mark.case("2", "3", "4")
@table
async def test_every_other_browser_is_told_what_an_unknown_link_is_told(
    harness: Harness, end: Ended, code: Code, is_connected: bool
) -> None:
    """Without the session's cookie, with a made-up one, and with that of another session: byte for byte."""
    asked, person, other = await harness.ask_link(), harness.browser(), harness.browser()
    elsewhere = await harness.ask_link("files")
    await harness.to_provider(elsewhere, other)
    url = await end(harness, asked, person)
    tossed, swapped = harness.browser(), harness.browser()
    tossed.cookies.set(cookie_of(asked), "x" * 43, "127.0.0.1")
    swapped.cookies.set(cookie_of(asked), other.cookies[cookie_of(elsewhere)].value, "127.0.0.1")
    strangers = [harness.browser(), tossed, swapped]
    unknown = await harness.browser().open(f"{BASE}/connect/{UNKNOWN_STATE}")
    assert_error_page(unknown, Code.STATE_UNKNOWN)
    for stranger in strangers:
        assert without_request_id(unknown) == without_request_id(await stranger.open(asked.authorization_url))
    if end is not late:  # a stranger's callback of an open session ends it: that is ownerBindingFailed (case 5)
        unknown = await harness.browser().open(f"{CALLBACK}?{urlencode({'code': 'abc', 'state': UNKNOWN_STATE})}")
        for stranger in strangers:
            assert without_request_id(unknown) == without_request_id(await stranger.open(url))


@table
async def test_a_program_is_told_the_code(harness: Harness, end: Ended, code: Code, is_connected: bool) -> None:
    asked, person = await harness.ask_link(), harness.browser()
    await end(harness, asked, person)
    page = await person.open(asked.authorization_url, headers={"accept": "application/json"})
    assert (code.status, True) == (page.status, f'"{code.value}"' in page.source)


async def test_the_truth_is_told_for_an_hour(identity_provider: IdentityProvider, test_clock: TestClock) -> None:
    """As long as the record of the session is kept; then its browser is a stranger like any other."""
    limits = Limits(sweep_seconds=0.02)
    async with running(identity_provider, [user_app(identity_provider)], clock=test_clock, limits=limits) as harness:
        asked, person = await harness.ask_link(), harness.browser()
        await connected(harness, asked, person)
        harness.clock.advance(3500)
        await asyncio.sleep(0.1)  # several sweeps
        assert_says_connected(await person.open(asked.authorization_url))
        harness.clock.advance(101)
        async with asyncio.timeout(60):
            while await harness.store.count("sessions"):
                await asyncio.sleep(0.01)
        assert_error_page(await person.open(asked.authorization_url), Code.STATE_UNKNOWN)


async def test_an_open_session_is_not_spoken_of(harness: Harness) -> None:
    """A state that was made up is unknown, also in the browser that the session is of (case 2)."""
    asked, person = await harness.ask_link(), harness.browser()
    await harness.to_provider(asked, person)
    forged = asked.auth_session_id.removeprefix("as-") + "x" * 43
    page = await person.open(f"{CALLBACK}?{urlencode({'code': 'abc', 'state': forged})}")
    assert_error_page(page, Code.STATE_UNKNOWN)
    assert (await harness.session(asked)).open


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
        ) as harness:
            asked, person = await harness.ask_link(of=corp_turn()), harness.browser()
            url = await login_callback(harness, asked, person)
            if when == "late":
                harness.clock.advance(601)
            else:
                other = await harness.ask_link(of=corp_turn(instance="another conversation"))
                assert 200 == (await harness.connect(other)).status
            unknown = await harness.browser().open(f"{BASE}/connect/{UNKNOWN_STATE}")
            assert without_request_id(unknown) == without_request_id(
                await harness.browser().open(asked.authorization_url)
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
    harness: Harness, how: str
) -> None:
    asked, person = await harness.ask_link(), harness.browser()
    if how == "connected":
        await harness.connect(asked, browser=person)
    else:
        await person.open(asked.authorization_url)
        await person.submit({"decision": "cancel"})
    place, other = f"{BASE}/{how}/mail", f"{BASE}/{'declined' if how == 'connected' else 'connected'}/mail"
    nothing = await harness.browser().open(f"{BASE}/{how}/no-such-app")
    assert 404 == nothing.status
    for _ in range(2):
        assert 200 == (await person.open(place)).status, "and it may be looked at again"
    assert without_request_id(nothing) == without_request_id(await harness.browser().open(place))
    assert without_request_id(nothing) == without_request_id(await person.open(other))
    assert without_request_id(nothing) == without_request_id(await person.open(place.replace("mail", "files")))
    harness.clock.advance(SECONDS)
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
async def test_a_made_up_arrival_shows_nothing(harness: Harness, forge: Callable[[str], str]) -> None:
    person, other = harness.browser(), harness.browser()
    await harness.connect(await harness.ask_link(), browser=person)
    name = arrival_name("/connected/mail")
    other.cookies.set(name, forge(person.cookies[name].value), "127.0.0.1")
    nothing = await harness.browser().open(f"{BASE}/connected/no-such-app")
    assert without_request_id(nothing) == without_request_id(await other.open(f"{BASE}/connected/mail"))


async def test_an_arrival_is_of_its_session_and_of_no_other(harness: Harness) -> None:
    """An arrival with another session's locator in it is no arrival."""
    person, other = harness.browser(), harness.browser()
    await harness.connect(await harness.ask_link(), browser=person)
    files = await harness.ask_link("files")
    assert 200 == (await harness.connect(files, browser=other)).status
    value = person.cookies[arrival_name("/connected/mail")].value
    until, proof = value[: value.index("-")], value[-43:]
    locator = files.auth_session_id.removeprefix("as-")
    person.cookies.set(arrival_name("/connected/files"), f"{until}-{locator}-{proof}", "127.0.0.1")
    assert 404 == (await person.open(f"{BASE}/connected/files")).status


async def test_after_a_runtimes_page_it_is_shown_once_it_is_true(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    """The runtime sends the browser there; before it has confirmed, and to another browser, nothing is said."""
    app = confirming_app(identity_provider, "runtimeConfirm")
    async with running(identity_provider, [app], clock=test_clock, settings=settings_for()) as harness:
        person = harness.browser()
        handle = handle_on(await came_back(harness, await harness.ask_link(of=of_alice()), person))
        assert 404 == (await person.open(f"{BASE}/connected/mail")).status
        assert SessionOutcome("completed").status == (await harness.broker.confirm(handle, ALICE)).status
        assert 200 == (await person.open(f"{BASE}/connected/mail")).status
        assert 404 == (await harness.browser().open(f"{BASE}/connected/mail")).status


async def test_after_a_direct_link_it_is_shown_too(identity_provider: IdentityProvider) -> None:
    app = user_app(identity_provider)
    app = replace(app, redirect=replace(app.redirect, link="direct"))
    async with running(identity_provider, [app]) as harness:
        page = await harness.connect(await harness.ask_link())
        assert (200, f"{BASE}/connected/mail") == (page.status, page.url)
        assert isinstance(await harness.ask(), Ready)
