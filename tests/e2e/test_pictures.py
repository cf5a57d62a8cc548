"""Every page of ours as people meet it, photographed into build/screenshots/ for somebody to look at."""

from __future__ import annotations

import pytest

from oauthbroker import BrokerError, Code
from tests.e2e import pictures
from tests.e2e.person import Person
from tests.e2e.stage import Stage

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.mark.parametrize(
    "app, locale, name, words",
    [
        ("personal", "en-GB", "connect-personal", "Only continue if you started this yourself."),
        ("shared", "en-GB", "connect-shared", "Shared: used for everybody the agent works for"),
        ("shared", "ko-KR", "connect-korean", "동의하기 전에는 아무 일도 일어나지 않습니다."),
    ],
)
async def test_the_connect_page(stage: Stage, app, locale, name, words):
    alice = await stage.person(locale=locale)
    await alice.open((await stage.ask(app)).authorization_url)
    assert 200 == alice.last.status
    await photographed(alice, name, words)


async def test_the_page_on_the_way_and_its_link(stage: Stage):
    """It moves on by itself; its link is for those whom it does not take along."""
    alice = await stage.person()
    await alice.open((await stage.ask("personal")).authorization_url)
    await alice.page.route(stage.provider.issuer + "/auth?**", lambda route: route.fulfill(status=204))
    await alice.press("Continue to")
    await alice.page.get_by_role("heading", name="Taking you to").wait_for()
    await photographed(alice, "leaving", "127.0.0.1")
    await alice.page.unroute_all()
    await alice.press("Continue if nothing happens")
    await alice.sign_in("alice")
    await alice.consent()
    await photographed(alice, "connected", "The agent continues by itself.")


async def test_the_page_after_a_no(stage: Stage):
    alice = await stage.person()
    await alice.leave((await stage.ask("personal")).authorization_url)
    await alice.sign_in("alice")
    await alice.refuse()
    await photographed(alice, "denied", sentence(Code.PROVIDER_DENIED))


async def test_the_page_for_another_account(stage: Stage):
    bob = await stage.person()
    await bob.agree((await stage.ask("personal", "alice")).authorization_url, "bob")
    assert 403 == bob.last.status
    await photographed(bob, "failed", sentence(Code.SUBJECT_MISMATCH))


async def test_the_page_for_a_link_that_is_too_old(stage: Stage):
    old = await stage.ask("personal")
    stage.clock.advance(601)
    alice = await stage.person()
    await alice.open(old.authorization_url)
    assert 400 <= alice.last.status < 500
    await photographed(alice, "expired", "This link no longer works")
    assert 0 == await stage.provider.count("authorization")
    assert old.authorization_url != (await stage.ask("personal")).authorization_url


async def test_the_page_for_a_wrong_address(stage: Stage):
    alice = await stage.person()
    await alice.open(stage.home + "/nowhere")
    assert 404 == alice.last.status
    await photographed(alice, "missing", "There is nothing here")


def sentence(code: Code) -> str:
    return BrokerError(code).message("en")


async def photographed(person: Person, name: str, words: str) -> None:
    """It says what it has to say, fits a phone without a horizontal scroll bar, and asks for nothing else."""
    assert words in await person.text()
    for path in await pictures.take(person.page, name):
        assert path.stat().st_size > 5_000  # an empty page is smaller
    await person.page.set_viewport_size({"width": 320, "height": 640})
    assert 320 >= await person.page.evaluate("() => document.documentElement.scrollWidth")
    assert [] == person.troubles
