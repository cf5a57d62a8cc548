"""People's own pages in a real browser: what axe-core finds on them, the way through them by keyboard, and their pictures."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from oauthbroker.model.token_results import AuthorizationRequired
from oauthbroker.testing import Canaries, IdentityProvider, TestClock
from tests.e2e import pictures
from tests.e2e.desk import Desk, furnished
from tests.e2e.person import Person
from tests.kit.running_broker import ALICE, BOB, turn

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]
Way = Callable[[Desk, dict[str, Any]], Awaitable[Person]]


@pytest_asyncio.fixture(loop_scope="session")
async def desk(
    identity_provider: IdentityProvider, test_clock: TestClock, canaries: Canaries, chromium: Browser
) -> AsyncIterator[Desk]:
    async with furnished(identity_provider, test_clock, canaries, chromium) as desk:
        yield desk


async def connections(desk: Desk, profile: dict[str, Any]) -> Person:
    return await desk.visitor(**profile)


async def invitation(desk: Desk, profile: dict[str, Any]) -> Person:
    url, _ = await desk.harness.broker.connections.link({"user": ALICE})
    desk.canaries.add(url.rpartition("/")[2], "ticket")
    person = await desk.person(**profile)
    await person.open(url)
    return person


async def disconnect(desk: Desk, profile: dict[str, Any]) -> Person:
    person = await desk.visitor(**profile)
    await person.page.locator("a.danger").last.click()
    await person.page.wait_for_url("**/disconnect")
    return person


async def closed(desk: Desk, profile: dict[str, Any]) -> Person:
    person = await desk.person(**profile)
    await person.open(desk.home + "/connections")
    return person


async def connect(desk: Desk, profile: dict[str, Any]) -> Person:
    asked = await desk.harness.ask_link("notes")
    assert isinstance(asked, AuthorizationRequired)
    person = await desk.person(**profile)
    await person.open(asked.authorization_url)
    return person


async def last_page(desk: Desk, profile: dict[str, Any]) -> Person:
    asked = await desk.harness.ask_link("code", of=turn(BOB))
    person = await desk.person(**profile)
    await person.open(asked.authorization_url)
    await person.page.locator("button.primary").click()
    await person.page.locator("button[value=bob]").click()
    await person.page.locator("button[value=allow]").click()
    await person.page.wait_for_url("**/connected/code")
    return person


def public(path: str) -> Way:
    async def go(desk: Desk, profile: dict[str, Any]) -> Person:
        person = await desk.person(**profile)
        await person.open(desk.home + path)
        return person

    return go


async def login(desk: Desk, profile: dict[str, Any]) -> Person:
    person = await desk.person(**profile)
    await person.open(desk.home + "/admin")
    return person


def admin(path: str) -> Way:
    async def go(desk: Desk, profile: dict[str, Any]) -> Person:
        person = await desk.operator(**profile)
        await person.open(desk.home + "/admin" + path)
        return person

    return go


async def grant(desk: Desk, profile: dict[str, Any]) -> Person:
    person = await admin("/grants?health=again")(desk, profile)
    await person.page.locator("tbody a").first.click()
    await person.page.wait_for_url("**/grants/sha256:*")
    return person


async def revoke(desk: Desk, profile: dict[str, Any]) -> Person:
    person = await grant(desk, profile)
    await person.page.locator("a.danger").click()
    await person.page.wait_for_url("**/revoke")
    return person


async def drop(desk: Desk, profile: dict[str, Any]) -> Person:
    person = await admin("/queues")(desk, profile)
    await person.page.locator("a.danger").first.click()
    await person.page.wait_for_url("**/queues/drop*")
    return person


PAGES: dict[str, Way] = {
    "start": public("/"),
    "docs": public("/docs"),
    "connected": last_page,
    "connect": connect,
    "connections-open": invitation,
    "connections": connections,
    "connections-disconnect": disconnect,
    "connections-closed": closed,
    "admin-login": login,
    "admin-overview": admin(""),
    "admin-grants": admin("/grants"),
    "admin-grant": grant,
    "admin-revoke": revoke,
    "admin-waiting": admin("/waiting"),
    "admin-queues": admin("/queues"),
    "admin-drop": drop,
    "admin-circuits": admin("/circuits"),
    "admin-audit": admin("/audit"),
}


@pytest.mark.sample(10)
@pytest.mark.parametrize("locale", ["en-GB", "ko-KR"])
@pytest.mark.parametrize("name", PAGES)
async def test_axe_finds_nothing_grave_by_day_or_night_wide_or_narrow(desk: Desk, name: str, locale: str) -> None:
    """Nothing overflows the page. The pictures are for a person to look at."""
    person = await PAGES[name](desk, {"locale": locale})
    await pictures.take(person.page, name + ("-korean" if locale == "ko-KR" else ""))
    assert [] == person.shared_circuits


async def test_a_connection_is_ended_by_keyboard_alone(desk: Desk) -> None:
    """Every stop on the way shows where one is; the first one leads past the header."""
    url, _ = await desk.harness.broker.connections.link({"user": ALICE})
    desk.canaries.add(url.rpartition("/")[2], "ticket")
    person = await desk.person()
    await person.open(url)
    await step_to(person, "Show my connections")
    await enter(person, desk.home + "/connections")
    await person.page.keyboard.press("Tab")
    assert "Skip to the content" in await focused(person)
    await person.page.keyboard.press("Enter")
    await step_to(person, "Disconnect Google Mail")
    await enter(person, "**/disconnect")
    await step_to(person, "Keep it")
    await person.page.keyboard.press("Shift+Tab")
    assert "Disconnect" == await focused(person)
    await enter(person, "**/connections?done=disconnected")
    assert "Agents can no longer use it" in await person.page.get_by_role("status").inner_text()
    assert isinstance(await desk.harness.ask("mail"), AuthorizationRequired)
    assert [] == person.shared_circuits


async def test_from_the_last_page_a_user_comes_to_their_connections_by_keyboard_alone(desk: Desk) -> None:
    person = await last_page(desk, {})
    await step_to(person, "See or end your connections")
    await enter(person, desk.home + "/connections")
    assert "GitHub" in await person.text()
    assert "Team board" not in await person.text()
    assert [] == person.shared_circuits


async def test_an_operator_narrows_the_audit_log_and_takes_it_along_by_keyboard_alone(desk: Desk) -> None:
    person = await admin("/audit?type=OperatorEntered")(desk, {})
    await person.page.get_by_label("Subject").focus()
    await person.page.keyboard.type(ALICE)
    await enter(person, "**/admin/audit?*subject=*")
    assert "No entries match" in await person.text()
    await step_to(person, "Download as CSV")
    async with person.page.expect_download() as download:
        await person.page.keyboard.press("Enter")
    assert "audit.csv" == (await download.value).suggested_filename


async def test_a_grant_is_found_and_revoked_by_keyboard_alone(desk: Desk) -> None:
    person = await desk.operator()
    await step_to(person, "Grants")
    await enter(person, "**/admin/grants")
    await step_to(person, "")  # a field has no words of its own; the first one is the search
    assert await person.page.get_by_label("Search").evaluate("field => field === document.activeElement")
    await person.page.keyboard.type("U900042")
    await enter(person, "**/admin/grants?q=U900042*")
    assert "1 found" in await person.text()
    await step_to(person, "idp:user:U900042")
    await enter(person, "**/grants/sha256:*")
    await step_to(person, "Revoke")
    await enter(person, "**/revoke")
    await step_to(person, "Revoke")
    await enter(person, "**?done=revoked")
    assert "The grant has ended" in await person.page.get_by_role("status").inner_text()
    assert [] == person.shared_circuits


async def test_everything_works_where_scripts_are_off(desk: Desk) -> None:
    person = await desk.visitor(java_script_enabled=False)
    await person.page.get_by_text("What it may do (2)").first.click()
    assert await person.page.get_by_text("read", exact=True).first.is_visible()
    await person.page.get_by_role("button", name="Switch account").click()
    await person.page.get_by_role("heading", name="Connect Team board?").wait_for()
    await person.page.go_back()
    await person.page.get_by_role("link", name="Disconnect Team board").click()
    await person.page.get_by_role("button", name="Disconnect").click()
    await person.page.wait_for_url("**/connections?done=disconnected")
    await person.page.get_by_role("button", name="Leave").click()
    await person.page.get_by_role("heading", name="You have left").wait_for()
    office = await desk.operator(java_script_enabled=False)
    await office.open(desk.home + "/admin/queues")
    await office.page.get_by_role("button", name="Try again").first.click()
    await office.page.wait_for_url("**/queues?done=retried")
    await office.page.get_by_role("link", name="Drop").click()
    await office.page.get_by_role("button", name="Drop it").click()
    await office.page.wait_for_url("**/queues?done=dropped")
    await office.page.get_by_role("button", name="Sign out").click()
    await office.page.get_by_role("heading", name="Signed out").wait_for()
    assert [] == person.shared_circuits + office.shared_circuits


async def enter(person: Person, url: str) -> None:
    """Presses Enter, and waits until the page it leads to is there."""
    async with person.page.expect_navigation(url=url):
        await person.page.keyboard.press("Enter")


async def step_to(person: Person, name: str) -> None:
    """Tab by Tab, as far as it takes. Raises AssertionError at an invisible stop, and where none is left."""
    for _ in range(80):
        await person.page.keyboard.press("Tab")
        assert await person.page.evaluate(
            "() => document.activeElement === document.body || getComputedStyle(document.activeElement).outlineStyle !== 'none'"
        ), f"no focus ring on {await focused(person)!r}"
        if (await focused(person)) == name:
            return
    raise AssertionError(f"nothing to stop at is called {name!r}")


async def focused(person: Person) -> str:
    """The name of the focused element, as a screen reader speaks it."""
    words: str = await person.page.evaluate("() => document.activeElement.textContent")
    return " ".join(words.split())
