"""What a person has to see before agreeing fits on one screen, on a laptop and on a telephone."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from playwright.async_api import Browser

from oauthbroker.core.errors import Locale
from oauthbroker.model.token_results import DevicePrompt
from oauthbroker.testing import Canaries
from oauthbroker.web.html.branding import BRAND, Brand
from oauthbroker.web.html.consent_html import render_connect, render_device
from oauthbroker.web.html.rendering import Page
from tests.e2e.person import Person
from tests.unit.web.kit import a_view

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

SIZES = {"laptop": (1280, 800), "phone": (390, 844)}
FOUR = ("chat:write", "channels:history", "groups:history", "files:write")
UNKNOWN = tuple(f"https://api.acme.example/auth/{each}.manage" for each in ("files", "boards", "people", "billing"))
VIEWS: dict[str, dict[str, Any]] = {
    "plain": {"scopes": FOUR},
    "unknown": {"scopes": UNKNOWN, "provider": "acme", "provider_host": "login.acme-corporation.example"},
    "shared": {"scopes": FOUR, "subject_mode": "global", "subject": "slack:team:T0123456789"},
    "titled": {"scopes": FOUR, "agent_title": "Travel planner", "subject_title": "Kim Min-jun"},
    "login": {
        "scopes": FOUR,
        "login_endpoint": "https://sso.company.example/authorize",
        "subject": "slack:user:T0123456789:U0123456789",
    },
}
SEEN = """() => ['h1', '.lead', '.scopes li', '.note', '.usercode', '.primary'].flatMap(kind =>
    [...document.querySelectorAll(kind)].map(each => {
        const box = each.getBoundingClientRect();
        return [kind, box.top >= 0 && box.bottom <= innerHeight && box.height > 0, Math.round(box.bottom)];
    }))"""


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("locale", get_args(Locale))
@pytest.mark.parametrize("name", VIEWS)
async def test_question_scopes_warning_and_button_are_seen_without_scrolling(
    chromium: Browser, canaries: Canaries, name: str, locale: Locale, size: str
) -> None:
    page = render_connect(a_view(**VIEWS[name]), locale)
    assert 8 == await seen_at_once(chromium, canaries, page, size), "one question, a lead, four scopes, ..."


@pytest.mark.parametrize("size", SIZES)
async def test_a_teams_name_and_logo_push_nothing_off_the_screen(
    chromium: Browser, canaries: Canaries, size: str
) -> None:
    before = BRAND.set(Brand("Acme", "https://help.acme.example", "data:,"))
    try:
        page = render_connect(a_view(**VIEWS["titled"]), "en")
    finally:
        BRAND.reset(before)
    assert 8 == await seen_at_once(chromium, canaries, page, size)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("locale", get_args(Locale))
@pytest.mark.parametrize("name", ["plain", "titled"])
async def test_a_code_is_seen_with_all_that_it_stands_for(
    chromium: Browser, canaries: Canaries, name: str, locale: Locale, size: str
) -> None:
    page = render_device(
        a_view(**VIEWS[name]),
        DevicePrompt(
            verification_uri="https://id.example/device",
            verification_uri_complete=None,
            user_code="WDJB-MJHT",
            interval=5,
        ),
        locale,
    )
    assert 9 == await seen_at_once(chromium, canaries, page, size), "the same, and the code"


async def seen_at_once(chromium: Browser, canaries: Canaries, page: Page, size: str) -> int:
    """How many things there are to see. Raises AssertionError where one of them is below the screen."""
    width, height = SIZES[size]
    person = await Person.with_profile(
        chromium, "https://broker.example", canaries, viewport={"width": width, "height": height}
    )
    await person.page.set_content(page.html)
    found: list[tuple[str, bool, int]] = await person.page.evaluate(SEEN)
    assert [] == [(kind, bottom) for kind, is_seen, bottom in found if not is_seen]
    return len(found)
