"""Every page of ours as people meet it, photographed into build/screenshots/ for a person to look at."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import get_args

import pytest
from playwright.async_api import Browser

from oauthbroker import BrokerError, Code
from oauthbroker.authorization.page_results import Step
from oauthbroker.core.errors import Locale
from oauthbroker.testing import Canaries, IdentityProvider
from oauthbroker.web.html.consent_html import render_leaving, render_next, render_private
from oauthbroker.web.html.ending_html import Outcome, render_outcome
from tests.e2e import pictures
from tests.e2e.person import Person
from tests.e2e.stage import Stage
from tests.kit.running_broker import user_app

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.parametrize(
    "app, locale, name, words",
    [
        ("personal", "en-GB", "connect-personal", "Only continue if you started this yourself."),
        ("shared", "en-GB", "connect-shared", "Shared: used for everyone planner works for"),
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
    await photographed(alice, "missing", "Page not found")


@pytest.mark.parametrize("locale", get_args(Locale))
async def test_axe_finds_nothing_grave_on_what_few_people_meet(
    identity_provider: IdentityProvider, canaries: Canaries, chromium: Browser, locale: Locale
):
    """How it ended, and what stands between, in every language: as they are rendered, without a story around them."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    rendered = {
        **{outcome: render_outcome(outcome, None, "Mail", locale, reference="r1") for outcome in get_args(Outcome)},
        "leaving": render_leaving("https://idp.example/auth", "slack", "slack.com", locale),
        "finishing": render_next(Step(app=user_app(identity_provider), until=now), locale, now),
        "private": render_private(locale),
    }
    someone = await Person.with_profile(chromium, "https://broker.example", canaries, locale=locale)
    await someone.page.route("**", lambda route: route.fulfill(status=204))  # it moves on, and stays
    for name, page in rendered.items():
        await someone.page.set_content(page.html, wait_until="commit")
        assert locale == await someone.page.get_attribute("html", "lang")
        await pictures.take(someone.page, f"{name}-{locale}")


def sentence(code: Code) -> str:
    return BrokerError(code).message("en")


async def photographed(person: Person, name: str, words: str) -> None:
    """The page shows its text and loads nothing else."""
    assert words in await person.text()
    await pictures.take(person.page, name)
    assert [] == person.shared_circuits
