"""The page on which a person types a key, in a real browser: its words, its way by keyboard, and the traces that stay behind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any, get_args

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from oauthbroker.core.errors import Locale
from oauthbroker.model.connect_params import ConnectParam
from oauthbroker.model.static_credential import CredentialField
from oauthbroker.model.token_results import AuthorizationRequired
from oauthbroker.testing import Canaries, IdentityProvider, TestClock
from tests.e2e import pictures, served
from tests.e2e.person import Person
from tests.kit.running_broker import ALICE, Harness, public, running
from tests.story.keys_kit import DEAD, GOOD, OF_BOB, KeyApi, asked_for, key_api, key_app

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

OBTAIN = "https://meter.example/settings/keys"
KEY = CredentialField(
    name="apiKey", title="API key", pattern="key-[a-z0-9-]{8,60}", example="key-of-you-0001", obtain=OBTAIN
)
SECOND = CredentialField(name="appKey", title="Application key")
REGION = ConnectParam(name="region", one_of=("eu", "us"), title="Region")


@dataclass
class Counter:
    """A broker whose users type keys, and browsers."""

    harness: Harness
    api: KeyApi
    home: str
    browser: Browser
    canaries: Canaries

    async def ask(self, app: str = "meter") -> AuthorizationRequired:
        return await asked_for(self.harness, self.api, app=app)

    async def person(self, **profile: Any) -> Person:
        return await Person.with_profile(self.browser, self.home, self.canaries, **profile)

    async def at_the_page(self, app: str = "meter", **profile: Any) -> Person:
        person = await self.person(**profile)
        await person.open((await self.ask(app)).authorization_url)
        return person


@pytest_asyncio.fixture(loop_scope="session")
async def counter(
    identity_provider: IdentityProvider, test_clock: TestClock, canaries: Canaries, chromium: Browser
) -> AsyncIterator[Counter]:
    listener = served.free_port()
    home = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with AsyncExitStack() as stack:
        stack.enter_context(listener)
        api = await stack.enter_async_context(key_api())
        meter = key_app(api)
        credential = meter.credential
        assert credential is not None
        meter = replace(meter, credential=replace(credential, fields=(KEY,)))
        wide = replace(
            meter,
            name="wide",
            title="Wide meter",
            credential=replace(credential, fields=(KEY, SECOND)),
            connect_params=(REGION,),
        )
        harness = await stack.enter_async_context(
            running(identity_provider, [meter, wide], clock=test_clock, settings=public(home))
        )
        await stack.enter_async_context(served.listening(harness.broker.asgi.app, listener))
        yield Counter(harness, api, home, chromium, canaries)


@pytest.mark.parametrize("locale", get_args(Locale))
@pytest.mark.parametrize("app", ["meter", "wide"])
async def test_axe_finds_nothing_grave_before_and_after_a_wrong_key(counter: Counter, app: str, locale: Locale) -> None:
    person = await counter.at_the_page(app, locale=locale)
    assert locale == await person.page.get_attribute("html", "lang")
    await pictures.take(person.page, f"credential-{app}-{locale}")
    for name, key in {"form": "wrong", "refused": DEAD, "other": OF_BOB}.items():
        await typed(person.page, key)
        await person.page.keyboard.press("Enter")
        await person.page.locator("[aria-invalid], [role=alert]").first.wait_for()
        assert key not in await person.page.content(), "it never comes back"
        await pictures.take(person.page, f"credential-{app}-{name}-{locale}")
        if app == "wide":
            break
    assert [] == person.shared_circuits


async def typed(page: Page, key: str) -> None:
    for field in await page.locator(".secret").all():
        await field.fill(key)


async def test_a_key_is_typed_by_keyboard_alone(counter: Counter) -> None:
    """In the order of the page, and each stop has a name: what a screen reader says. No script is needed."""
    person = await counter.at_the_page(java_script_enabled=False, viewport={"width": 390, "height": 844})
    page = person.page
    field = page.get_by_role("textbox", name="API key", exact=True)
    assert await page.get_by_role("button", name="Check and save").is_visible()
    box = await page.get_by_role("button", name="Check and save").bounding_box()
    assert box is not None
    assert box["y"] + box["height"] <= 844, "seen without scrolling"
    await field.focus()
    assert await field.get_attribute("aria-describedby") == "about-credential-1"
    await page.keyboard.type("wrong")
    assert "disc" == await field.evaluate("field => getComputedStyle(field).webkitTextSecurity")
    await page.keyboard.press("Tab")
    await page.keyboard.press("Tab")
    assert await page.get_by_role("checkbox", name="Show what I type").is_checked() is False
    await page.keyboard.press("Space")
    assert "none" == await field.evaluate("field => getComputedStyle(field).webkitTextSecurity")
    await page.keyboard.press("Tab")
    async with page.expect_navigation():
        await page.keyboard.press("Enter")
    said = await page.locator("#" + (await field.get_attribute("aria-describedby") or "")).inner_text()
    assert "It does not look like this kind of key." in said
    assert "true" == await field.get_attribute("aria-invalid")
    assert await field.evaluate("field => field === document.activeElement"), "the first one to correct"
    assert "disc" == await field.evaluate("field => getComputedStyle(field).webkitTextSecurity"), "hidden again"
    await page.keyboard.type(DEAD)
    async with page.expect_navigation():
        await page.keyboard.press("Enter")
    assert "did not accept" in await page.get_by_role("alert").inner_text()
    assert "problem about-credential-1" == await field.get_attribute("aria-describedby")
    await page.keyboard.type(GOOD)
    async with page.expect_navigation(url=f"{counter.home}/connected/meter"):
        await page.keyboard.press("Enter")
    assert "Meter is connected" in await person.text()
    assert [] == person.shared_circuits


async def test_nothing_of_the_key_stays_in_the_browser(counter: Counter) -> None:
    """No address, no Referer, no cookie, no storage and no field of an earlier page holds it."""
    person = await counter.at_the_page()
    counter.canaries.add(GOOD, "a typed key")
    page, asked = person.page, person.page.url
    await typed(page, GOOD)
    await page.reload()
    assert "" == await page.locator(".secret").input_value(), "a reload forgets it"
    await typed(page, GOOD)
    await page.goto(counter.home + "/healthz")
    await page.go_back()
    assert "" == await page.locator(".secret").input_value(), "and so does the way back"
    await typed(page, GOOD)
    await page.keyboard.press("Enter")
    await page.get_by_role("heading", name="Meter is connected").wait_for()
    assert not [url for url, referer in person.referers.items() if GOOD in url + referer]
    assert GOOD not in repr(await person.context.storage_state())
    for _ in range(2):
        await page.go_back()
        assert GOOD not in await page.content() + page.url
    await page.goto(asked)
    assert "is connected" in await person.text(), "the link says how it ended"
    assert 0 == await page.locator(".secret").count()


async def test_the_providers_page_opens_beside_ours_and_learns_nothing(counter: Counter) -> None:
    person = await counter.at_the_page()
    link = person.page.get_by_role("link", name="Where to find it at Meter")
    assert OBTAIN == await link.get_attribute("href")
    asked: list[str | None] = []

    async def answered(route: Any) -> None:
        asked.append(await route.request.header_value("referer"))
        await route.fulfill(body="<p>keys</p>", content_type="text/html")

    await person.context.route("https://meter.example/**", answered)
    async with person.context.expect_page() as opened:
        await link.click()
    other = await opened.value
    await other.wait_for_load_state()
    assert [None] == asked
    assert await other.evaluate("() => window.opener") is None


async def test_no_other_page_frames_it_or_fills_it_in(counter: Counter) -> None:
    asked = await counter.ask()
    person = await counter.person()
    await person.open(f"{asked.authorization_url}?credential.apiKey={DEAD}&apiKey={DEAD}#credential.apiKey={DEAD}")
    assert "" == await person.page.locator(".secret").input_value()
    await person.open("about:blank")
    await person.page.set_content(f'<iframe src="{asked.authorization_url}"></iframe>')
    await person.page.wait_for_timeout(300)
    assert not [frame for frame in person.page.frames[1:] if await frame.locator(".secret").count()]


@pytest.mark.parametrize("locale", get_args(Locale))
async def test_axe_finds_nothing_grave_where_a_key_is_listed_replaced_and_ended(
    counter: Counter, locale: Locale
) -> None:
    first = await counter.at_the_page()
    await typed(first.page, GOOD)
    await first.page.keyboard.press("Enter")
    await first.page.get_by_role("heading", name="Meter is connected").wait_for()
    url, _ = await counter.harness.broker.connections.link({"user": ALICE})
    counter.canaries.add(url.rpartition("/")[2], "ticket")
    person = await counter.person(locale=locale)
    await person.open(url)
    await person.page.locator("button.primary").click()
    await person.page.wait_for_url(counter.home + "/connections")
    assert "•••• 0001" in await person.text()
    await pictures.take(person.page, f"credential-connections-{locale}")
    await person.page.locator("form[action$='/again'] button").click()
    await person.page.locator(".secret").wait_for()
    await person.open(counter.home + "/connections")
    await person.page.locator("a.danger").click()
    assert OBTAIN == await person.page.locator(".note a").get_attribute("href")
    await pictures.take(person.page, f"credential-disconnect-{locale}")
    assert [] == person.shared_circuits
