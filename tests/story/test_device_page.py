"""The page of a device code from its link to its end: looked at, left open, declined, passed on."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from oauthbroker.core.errors import Code
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.broker_process import Process, outcome
from tests.kit.running_broker import BASE, device_app, tree
from tests.story.device_kit import World, ask_for_code, events, prompt_of, session_of, world


@pytest.fixture
def here(identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path) -> World:
    return world(identity_provider, test_clock, tmp_path)


@pytest.fixture
async def broker(here: World) -> Process:
    """A broker is of the event loop that it was made in, so this is no ordinary fixture."""
    return here.start()


@pytest.mark.rule("12.5.7")
@pytest.mark.case("13")
async def test_looking_at_it_changes_nothing_however_often(here: World, broker: Process, tmp_path: Path):
    asked = await ask_for_code(broker)
    before = tree(tmp_path)
    for _ in range(3):
        page = await broker.browser().open(asked.authorization_url)
        assert 200 == page.status
        assert prompt_of(asked).user_code in page.text
        assert here.idp.url("/device") in "".join(page.text.split())
    assert before == tree(tmp_path)


async def test_left_open_it_says_at_the_next_check_that_the_service_is_connected(here: World, broker: Process):
    asked = await ask_for_code(broker)
    browser = broker.browser()
    page = await browser.open(asked.authorization_url)
    assert page.next_url is None, "nothing moves by itself"
    here.idp.device_approve(prompt_of(asked).user_code)
    await here.poll()
    page = await browser.follow(page.document.links[-1])
    assert (303, f"{BASE}/connected/tv") == (page.status, page.location)
    assert "Tv is connected" in (await browser.follow()).text


async def test_while_the_tokens_are_being_checked_it_stays_as_it_is(here: World, broker: Process):
    asked = await ask_for_code(broker)
    versioned = await broker.parts.sweep.repository.session((await session_of(broker, asked)).locator)
    assert versioned is not None
    assert await broker.parts.polling.finish.claim(versioned, 60) is not None
    page = await broker.browser().open(asked.authorization_url)
    assert (200, True) == (page.status, prompt_of(asked).user_code in page.text)


async def test_after_a_no_at_the_provider_it_says_so(here: World, broker: Process):
    asked = await ask_for_code(broker)
    here.idp.device_deny(prompt_of(asked).user_code)
    await here.poll()
    browser = broker.browser()
    assert f"{BASE}/declined/tv" == (await browser.open(asked.authorization_url)).location
    assert "Nothing was connected" in (await browser.follow()).text


async def test_a_no_on_it_wakes_the_agent_and_stops_the_polling(here: World, broker: Process):
    asked = await ask_for_code(broker)
    browser = broker.browser()
    await browser.open(asked.authorization_url)
    page = await browser.submit({"decision": "cancel"})
    assert (303, f"{BASE}/declined/tv") == (page.status, page.location)
    assert ("failed", Code.PROVIDER_DENIED) == await outcome(broker, asked)
    assert ["auth.denied"] == await events(broker)
    here.idp.device_approve(prompt_of(asked).user_code)
    await here.poll()
    assert ("approved", []) == (here.story(prompt_of(asked)).status, here.polls(prompt_of(asked)))


@pytest.mark.case("14a")
async def test_after_another_persons_sign_in_it_says_that_and_no_name(here: World, broker: Process):
    asked = await ask_for_code(broker)
    here.idp.device_approve(prompt_of(asked).user_code, "mallory")
    await here.poll()
    page = await broker.browser().open(asked.authorization_url)
    assert 403 == page.status
    assert "a different account" in page.text
    assert "Ask for a new link or code where you got this one" in page.text
    assert "mallory" not in page.text.lower()


@pytest.mark.parametrize("how", ["not opened", "withdrawn", "too late, and not swept yet"])
async def test_after_its_end_it_no_longer_shows_the_code(here: World, broker: Process, how: str):
    here.idp.change("client-tv", device_lifetime=60)
    asked = await ask_for_code(broker)
    if how == "withdrawn":
        assert await broker.broker.cancel(asked.auth_session_id)
    else:
        here.clock.advance(61)
    if how == "not opened":
        await broker.tend(after=10)
        assert "expired" == (await session_of(broker, asked)).status
    page = await broker.browser().open(asked.authorization_url)
    assert page.status >= 400
    assert "no longer works" in page.text
    assert prompt_of(asked).user_code not in page.text


@pytest.mark.case("98")
async def test_of_an_app_that_was_configured_anew_it_shows_no_code(here: World, broker: Process):
    asked = await ask_for_code(broker)
    changed = here.start(apps=[device_app(here.idp, scopes=("read",))])
    page = await changed.browser().open(asked.authorization_url)
    assert page.status >= 400
    assert prompt_of(asked).user_code not in page.text


@pytest.mark.case("2")
@pytest.mark.parametrize("ended", [False, True])
async def test_a_link_that_is_not_quite_this_one_tells_nothing(here: World, broker: Process, ended: bool):
    asked = await ask_for_code(broker)
    if ended:
        here.idp.device_approve(prompt_of(asked).user_code)
        await here.poll()
    ticket = urlsplit(asked.authorization_url).path.rpartition("/")[2]
    locator = ticket[:22]
    for wrong in (
        locator + "A" * 43,
        ticket[:-1],
        ticket + "A",
        locator,
        ticket[:-1] + ("A" if ticket[-1] != "A" else "B"),
    ):
        page = await broker.browser().open(f"{BASE}/connect/{wrong}")
        assert 400 == page.status
        assert prompt_of(asked).user_code not in page.text


async def test_there_is_no_yes_on_it_that_could_be_pressed(here: World, broker: Process):
    """A browser that answers like the other flow's page is refused, and nothing changes."""
    asked = await ask_for_code(broker)
    browser = broker.browser()
    page = await browser.open(asked.authorization_url)
    [form] = page.document.forms
    fields = [*form.fields, ("decision", "continue")]
    refused = await browser.submit(fields)
    assert 400 == refused.status
    assert ("pending", None) == await outcome(broker, asked)
    assert [] == [cookie for cookie in refused.headers if cookie[0] == "set-cookie"]


async def test_the_providers_host_is_the_one_that_the_person_will_see(here: World, broker: Process):
    here.idp.script.device.fields(
        verification_uri="http://127.0.0.1:1/device", verification_uri_complete="http://127.0.0.1:1/device?c=1"
    )
    asked = await ask_for_code(broker)
    page = await broker.browser().open(asked.authorization_url)
    assert "127.0.0.1:1" in page.text
    assert "http://127.0.0.1:1/device?c=1" in page.document.links
    assert urlsplit(here.idp.base_url).netloc not in page.text
