"""`brokerLogin` in real browsers: an attacker's profile and a victim's, at a provider we did not write, where people log in too."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from oauthbroker import AuthorizationRequired, Code
from oauthbroker.testing import Canaries
from tests.e2e import authority, bundle, pictures, served
from tests.e2e.bundle import STAFF
from tests.e2e.person import Person
from tests.e2e.stage import Stage

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

APP = "tracked"


@pytest_asyncio.fixture(loop_scope="session")
async def stage(tmp_path: Path, canaries: Canaries, chromium: Browser) -> AsyncIterator[Stage]:
    app = bundle.Registration(APP, "user", "none", "Example tracker", binding="brokerLogin")
    listener, clock = served.free_port(), served.LateClock()
    home = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with AsyncExitStack() as stack:
        stack.enter_context(listener)
        provider = await stack.enter_async_context(authority.running([app.client(home), bundle.staff_client(home)]))
        login = {
            "client": {"clientId": STAFF, "authMethod": "none"},
            "endpoints": {"issuer": provider.issuer},
            "subject": "example:user:{sub}",
        }
        written = bundle.write(tmp_path, home, provider.issuer, [app], more={"login": login})
        broker = await stack.enter_async_context(served.embedded(written, listener, {}, clock))
        yield Stage(home, broker, provider, clock, {APP: app}, chromium, canaries)


async def logged_in(asked: AuthorizationRequired, someone: Person, account: str) -> None:
    """From the link through the login; where that leads is for the test to say."""
    await someone.leave(asked.authorization_url)
    await someone.sign_in(account)
    await someone.press("Continue")


async def at_the_provider(stage: Stage, asked: AuthorizationRequired, someone: Person, account: str) -> str:
    """Logged in, and taken on to the app's provider, which asks; its address."""
    async with someone.page.expect_request(lambda request: is_for(stage, request.url, APP)):
        await logged_in(asked, someone, account)
    await someone.page.get_by_role("heading", name="Authorize").wait_for()
    return addresses(stage, someone, APP)[-1]


async def connected(stage: Stage, name: str) -> Person:
    someone = await stage.person()
    await at_the_provider(stage, await stage.ask(APP, name), someone, name)
    await someone.press("Continue")
    await someone.page.wait_for_url(f"{stage.home}/connected/{APP}")
    assert "auth.granted" == (await stage.next_event()).type
    return someone


def addresses(stage: Stage, someone: Person, client: str) -> list[str]:
    """Where the browser was sent for this client of the provider's."""
    return [url for url in someone.asked if is_for(stage, url, client)]


def is_for(stage: Stage, url: str, client: str) -> bool:
    """Whether an address is the provider's, for a request of this client's."""
    return url.startswith(stage.provider.issuer + "/auth?") and f"client_id={client}&" in f"{url}&"


async def exchanged(stage: Stage, client: str) -> int:
    return len(await stage.provider.events("grant.success", client=client))


async def test_the_honest_way(stage: Stage) -> None:
    """No code lies in an address that stays, and the login's is in no Referer."""
    alice = await connected(stage, "alice")
    assert (1, 1) == (await exchanged(stage, STAFF), await exchanged(stage, APP))
    assert 200 == (await stage.use(await stage.token(APP)))[0]
    elsewhere = {url: reported for url, reported in alice.referers.items() if not url.startswith(stage.home + "/")}
    assert not [reported for reported in elsewhere.values() if reported.startswith(stage.home)], (
        "no other site learns of our pages"
    )
    assert not [reported for reported in alice.referers.values() if "code=" in reported]
    assert [] == alice.shared_circuits


async def test_a_reload_after_the_login_leads_on_again(stage: Stage) -> None:
    asked, alice = await stage.ask(APP), await stage.person()
    await at_the_provider(stage, asked, alice, "alice")
    await alice.open(f"{stage.home}/next/{asked.auth_session_id}")
    await alice.page.get_by_role("heading", name="Authorize").wait_for()
    await alice.press("Continue")
    await alice.page.wait_for_url(f"{stage.home}/connected/{APP}")
    assert [] == alice.shared_circuits


@pytest.mark.case("14b")
async def test_a_victim_who_follows_the_attackers_link_to_its_end_gives_nothing_away(stage: Stage) -> None:
    """The link still works for its own user, who connects the right account with it."""
    asked, victim, attacker = await stage.ask(APP, "mallory"), await stage.person(), await stage.person()
    await logged_in(asked, victim, "alice")
    await victim.page.get_by_role("heading", name="Not the right account").wait_for()
    assert 403 == victim.last.status
    for name in ("mallory", "alice"):
        assert name not in (await victim.page.content()).lower()
    assert [] == addresses(stage, victim, APP)
    assert 0 == await exchanged(stage, APP)
    assert "noGrant" == (await stage.ask(APP, "alice")).reason
    await victim.leave(asked.authorization_url)
    assert await victim.page.get_by_role("heading", name="Sign-in").is_visible(), "asked again, though signed in"
    await at_the_provider(stage, asked, attacker, "mallory")
    await attacker.press("Continue")
    await attacker.page.wait_for_url(f"{stage.home}/connected/{APP}")
    assert [] == victim.shared_circuits + attacker.shared_circuits


@pytest.mark.case("5", "15")
@pytest.mark.parametrize("where", [STAFF, APP])
async def test_a_page_passed_on_is_refused_in_the_victims_browser(stage: Stage, where: str) -> None:
    """alice has logged in and agreed before: her browser comes straight back, with a code."""
    victim, attacker = await connected(stage, "alice"), await stage.person()
    asked = await stage.ask(APP, "mallory")
    if where == STAFF:
        await attacker.leave(asked.authorization_url)
        passed_on = addresses(stage, attacker, STAFF)[-1]
    else:
        passed_on = await at_the_provider(stage, asked, attacker, "mallory")
    before = await exchanged(stage, where)
    await victim.open(passed_on)
    await victim.page.wait_for_url(stage.home + ("/login/callback?**" if where == STAFF else "/oauth/callback/**"))
    assert 403 == victim.last.status
    assert before == await exchanged(stage, where)
    assert Code.OWNER_BINDING_FAILED == (await stage.broker.wait(asked.auth_session_id, timeout=60)).code
    assert [] == attacker.shared_circuits + victim.shared_circuits


@pytest.mark.case("15")
async def test_a_login_in_one_browser_takes_no_other_one_along(stage: Stage) -> None:
    asked, alice, stranger = await stage.ask(APP), await stage.person(), await stage.person()
    await at_the_provider(stage, asked, alice, "alice")
    await stranger.open(f"{stage.home}/next/{asked.auth_session_id}")
    assert 400 == stranger.last.status
    await alice.press("Continue")
    await alice.page.wait_for_url(f"{stage.home}/connected/{APP}")


@pytest.mark.parametrize(
    "locale, title, first", [("en-GB", "Not the right account", "You sign in at"), ("ko-KR", "다른 계정", "먼저")]
)
async def test_the_pages_of_a_login_are_photographed(stage: Stage, locale: str, title: str, first: str) -> None:
    asked, someone = await stage.ask(APP, "mallory"), await stage.person(locale=locale)
    await someone.open(asked.authorization_url)
    assert first in await someone.text()
    await pictures.take(someone.page, f"connect-login-{locale[:2]}")
    await someone.page.locator("button[value=continue]").click()
    await someone.page.get_by_role("heading", name="Sign-in").wait_for()
    await someone.sign_in("alice")
    await someone.press("Continue")
    await someone.page.wait_for_url(stage.home + "/login/callback?**")
    assert title in await someone.text()
    await pictures.take(someone.page, f"login-wrong-{locale[:2]}")
    assert [] == someone.shared_circuits
