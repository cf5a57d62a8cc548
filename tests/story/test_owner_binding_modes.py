"""Cases 5, 6 and 14 to 17 in every mode of `owner.binding`: an attacker and a victim, each with a browser of their own.

What every mode owes: only the browser that pressed the button brings a code back, nothing is sent to the provider's token
endpoint for other callers, and a public id opens nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import pytest

from oauthbroker import Turn
from oauthbroker.audit import ConnectFailed
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.apps import App, Binding
from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready
from oauthbroker.records.pending_code import MAX_TRIES
from oauthbroker.testing import Browser, IdentityProvider, TestClock
from oauthbroker.testing.browser import Page
from tests.kit.callback_pages import HOST, assert_error_page, assert_leads_to_connected
from tests.kit.running_broker import ALICE as ACCOUNT
from tests.kit.running_broker import BASE, Harness, at, file_store, public, running, tree, turn, user_app
from tests.kit.running_broker import MALLORY as EVIL_ACCOUNT
from tests.story.binding_kit import (
    ALICE,
    CODE,
    CORP_ALICE,
    CORP_MALLORY,
    HTTPS_BASE,
    MALLORY,
    broker_login,
    code_on,
    confirm_browser,
    confirming_app,
    raw_callback,
    settings_for,
)
from tests.unit.web import kit


@dataclass(frozen=True)
class Mode:
    """One binding: its app, and how people are called in it. `confirms`: the runtime has to, after the callback and before
    the exchange."""

    binding: Binding
    alice: str = ALICE
    mallory: str = MALLORY
    confirms: bool = True

    def app(self, idp: IdentityProvider, name: str = "mail") -> App:
        if self.binding == "providerIdentity":
            return user_app(idp, name)
        return confirming_app(idp, self.binding, name)

    @property
    def of_alice(self) -> Turn:
        return turn(user=self.alice, team=None)

    @property
    def of_mallory(self) -> Turn:
        return turn(user=self.mallory, team=None, agent="minion", instance="mallorys.1")

    async def finish(self, harness: Harness, page: Page, browser_of: str, conversation: Turn | None = None) -> None:
        """The honest rest, after a callback whose page is `page` in the browser of `browser_of`."""
        if self.confirms:
            await confirm_browser(harness, page, browser_of, conversation)


MODES = (
    Mode("providerIdentity", ACCOUNT, EVIL_ACCOUNT, confirms=False),
    Mode("runtimeConfirm"),
    Mode("channelCode"),
    Mode("brokerLogin", CORP_ALICE, CORP_MALLORY, confirms=False),
    Mode("localOperator", confirms=False),
)
every_mode = pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.binding)
CONFIRMATIONS = [mode for mode in MODES if mode.confirms]
every_confirming_mode = pytest.mark.parametrize("mode", CONFIRMATIONS, ids=lambda mode: mode.binding)


@pytest.fixture
def corp(mode: Mode, test_clock: TestClock) -> Iterator[IdentityProvider | None]:
    """Where people log in to the broker itself, in the mode that has a login."""
    if mode.binding != "brokerLogin":
        yield None
        return
    with IdentityProvider(clock=test_clock) as provider:
        yield provider


def login_at(corp: IdentityProvider | None, base: str = BASE) -> dict[str, Any]:
    """Return the arguments of a harness with that login."""
    return {} if corp is None else {"corp": corp, "login": broker_login(corp, base)}


@pytest.fixture
async def harness(
    identity_provider: IdentityProvider,
    corp: IdentityProvider | None,
    test_clock: TestClock,
    mode: Mode,
    tmp_path: Path,
) -> AsyncIterator[Harness]:
    store = file_store(tmp_path, test_clock)
    apps, more = [mode.app(identity_provider)], login_at(corp)
    async with running(
        identity_provider, apps, clock=test_clock, store=store, settings=settings_for(), background=False, **more
    ) as harness:
        yield harness


async def no_grants(harness: Harness) -> bool:
    return 0 == len([held async for held in harness.repository.grants()])


def test_every_binding_is_in_the_table() -> None:
    assert set(get_args(Binding)) == {mode.binding for mode in MODES}


@every_mode
async def test_the_honest_way_connects(harness: Harness, mode: Mode) -> None:
    asked = await harness.ask_link(of=mode.of_alice)
    await mode.finish(harness, await harness.connect(asked), mode.alice)
    assert isinstance(await harness.ask(of=mode.of_alice), Ready)
    assert 1 == harness.idp.count("token")


@pytest.mark.case("6")
@every_mode
async def test_a_state_on_another_apps_path_is_refused_and_stays_good_on_its_own(
    identity_provider: IdentityProvider, corp: IdentityProvider | None, test_clock: TestClock, mode: Mode
) -> None:
    """Her own cookie, her own state: only the path is another app's, whose provider may be an attacker's."""
    apps = [mode.app(identity_provider, name) for name in ("mail", "files")]
    more = login_at(corp)
    async with running(identity_provider, apps, clock=test_clock, settings=settings_for(), **more) as harness:
        mail, files = (
            await harness.ask_link("mail", of=mode.of_alice),
            await harness.ask_link("files", of=mode.of_alice),
        )
        person = harness.browser()
        url = await harness.way_back(mail, person)
        await harness.to_provider(files, person)
        assert_error_page(await person.follow(url.replace("/mail?", "/files?")), Code.APP_MISMATCH)
        assert 0 == harness.idp.count("token")
        for asked in (mail, files):
            session = await harness.session(asked)
            assert ("pending", None) == (session.status, session.pending_code)
        assert await no_grants(harness)
        page = await person.follow(url)
        while page.location is not None:
            page = await person.follow()
        await mode.finish(harness, page, mode.alice)
        assert isinstance(await harness.ask("mail", of=mode.of_alice), Ready)
        assert isinstance(await harness.ask("files", of=mode.of_alice), AuthorizationRequired)


@pytest.mark.case("5", "15")
@every_mode
async def test_a_callback_in_another_browser_is_refused_before_the_exchange(harness: Harness, mode: Mode) -> None:
    asked, person = await harness.ask_link(of=mode.of_alice), harness.browser()
    url = await harness.way_back(asked, person)
    page = await harness.browser().open(url)
    assert_error_page(page, Code.OWNER_BINDING_FAILED)
    assert page.location is None
    assert [] == [cookie for cookie in page.headers if cookie[0].lower() == "set-cookie"]
    assert 0 == harness.idp.count("token")
    session = await harness.session(asked)
    assert ("failed", Code.OWNER_BINDING_FAILED, None) == (session.status, session.failure, session.pending_code)
    (entry,) = [entry for entry in harness.audit.entries if isinstance(entry, ConnectFailed)]
    assert (asked.auth_session_id, "ownerBindingFailed") == (entry.session, entry.code)
    assert_error_page(await person.follow(url), Code.STATE_USED)
    assert 0 == harness.idp.count("token")


@pytest.mark.case("14b")
@every_confirming_mode
async def test_a_victim_who_opens_the_attackers_link_and_agrees_gives_nothing_away(
    harness: Harness, mode: Mode
) -> None:
    """She even does what the page says: her runtime knows her, and she talks where she talks."""
    asked, victim = await harness.ask_link(of=mode.of_mallory), harness.browser()
    page = await harness.connect(asked, "alice", victim)
    with pytest.raises(BrokerError) as caught:
        await mode.finish(harness, page, mode.alice, mode.of_alice)
    assert caught.value.code in {Code.OWNER_BINDING_FAILED, Code.STATE_UNKNOWN}
    harness.clock.advance(60)
    assert 0 == harness.idp.count("token")
    assert await no_grants(harness)
    for name in (mode.alice, mode.mallory, "U234567", "people.example"):
        assert name not in page.source


@pytest.mark.case("14a")
@pytest.mark.parametrize("mode", [MODES[0]], ids=["providerIdentity"])
async def test_where_the_provider_confirms_it_is_refused_after_the_exchange(harness: Harness, mode: Mode) -> None:
    asked = await harness.ask_link(of=mode.of_mallory)
    assert_error_page(await harness.connect(asked, "alice"), Code.SUBJECT_MISMATCH)
    assert await no_grants(harness)


@pytest.mark.case("15")
@every_mode
async def test_a_victim_who_opens_the_attackers_provider_url_never_gets_her_code_exchanged(
    harness: Harness, mode: Mode
) -> None:
    """Mallory passes leg 1; the provider does not even ask Alice."""
    asked = await harness.ask_link(of=mode.of_mallory)
    attacker, victim = harness.browser(), harness.browser()
    provider_url = await harness.to_provider(asked, attacker)
    harness.idp.auto_consent = "alice"
    page = await victim.open(provider_url)
    assert page.location is not None
    assert "code=" in page.location
    assert_error_page(await victim.follow(), Code.OWNER_BINDING_FAILED)
    assert 0 == harness.idp.count("token")
    assert await no_grants(harness)
    session = await harness.session(asked)
    assert ("failed", None) == (session.status, session.pending_code)


@pytest.mark.case("15")
@every_mode
async def test_a_victims_own_cookie_is_none_for_the_attackers_session(harness: Harness, mode: Mode) -> None:
    mallorys, hers = await harness.ask_link(of=mode.of_mallory), await harness.ask_link(of=mode.of_alice)
    attacker, victim = harness.browser(), harness.browser()
    provider_url = await harness.to_provider(mallorys, attacker)
    her_way_back = await harness.way_back(hers, victim)
    harness.idp.auto_consent = "alice"
    await victim.open(provider_url)
    assert_error_page(await victim.follow(), Code.OWNER_BINDING_FAILED)
    assert 0 == harness.idp.count("token")
    page = await victim.follow(her_way_back)
    while page.location is not None:
        page = await victim.follow()
    await mode.finish(harness, page, mode.alice)
    assert isinstance(await harness.ask(of=mode.of_alice), Ready)


@pytest.fixture
async def https(
    identity_provider: IdentityProvider, corp: IdentityProvider | None, test_clock: TestClock, mode: Mode
) -> AsyncIterator[Harness]:
    app = at(identity_provider, HTTPS_BASE, mode.app(identity_provider))
    settings, more = public(HTTPS_BASE), login_at(corp, HTTPS_BASE)
    async with running(identity_provider, [app], clock=test_clock, settings=settings, **more) as harness:
        yield harness


TOSSED = [
    ["oab-{locator}={value}"],
    ["__Secure-oab-{locator}={value}"],
    ["__Host-oab-{locator}={other}"],
    ["__Host-oab-{other_locator}={value}"],
    ["__Host-oab-{locator}={value}; __Host-oab-{locator}={other}"],
    ["__Host-oab-{locator}={value}; __Host-oab-{locator}={value}"],
    ["__Host-oab-{locator}={value}", "__Host-oab-{locator}={other}"],
    ['__Host-oab-{locator}="{value}"'],
    [],
]


async def cookies_of(harness: Harness, mode: Mode) -> tuple[AuthorizationRequired, Browser, str, dict[str, str]]:
    """A person who came all the way to the callback, and the cookies that others might toss in."""
    asked = await harness.ask_link(of=mode.of_alice, scopes=["read"])
    other = await harness.ask_link(of=mode.of_alice, scopes=["write"])
    person = harness.browser()
    url = await harness.way_back(asked, person)
    await harness.to_provider(other, person)
    locator, other_locator = (each.auth_session_id.removeprefix("as-") for each in (asked, other))
    given = {
        "locator": locator,
        "other_locator": other_locator,
        "value": person.cookies[f"__Host-oab-{locator}"].value,
        "other": person.cookies[f"__Host-oab-{other_locator}"].value,
    }
    return asked, person, url, given


@pytest.mark.sample(20)
@pytest.mark.case("5", "16")
@every_mode
@pytest.mark.parametrize("tossed", TOSSED)
async def test_a_tossed_cookie_is_no_cookie_at_the_callback(https: Harness, mode: Mode, tossed: list[str]) -> None:
    asked, _, url, given = await cookies_of(https, mode)
    answer = await raw_callback(https, url, *(cookie.format(**given) for cookie in tossed))
    assert (403, "ownerBindingFailed") == (answer.status, answer.json["code"])
    assert 0 == https.idp.count("token")
    assert Code.OWNER_BINDING_FAILED is (await https.session(asked)).failure


@pytest.mark.sample(8)
@pytest.mark.case("16")
@every_confirming_mode
@pytest.mark.parametrize("tossed", TOSSED)
async def test_nor_does_it_open_the_page_after_it(https: Harness, mode: Mode, tossed: list[str]) -> None:
    asked, person, url, given = await cookies_of(https, mode)
    page = await person.follow(url)
    assert page.location == f"{HTTPS_BASE}/next/{asked.auth_session_id}"
    headers = [("cookie", cookie.format(**given)) for cookie in tossed]
    answer = await kit.ask(https.broker.asgi.app, f"/next/{asked.auth_session_id}", host="broker.test", headers=headers)
    assert (400, "stateUnknown") == (answer.status, answer.json["code"])
    page = await person.follow()
    assert 200 == page.status
    await mode.finish(https, page, mode.alice)
    assert isinstance(await https.ask(of=mode.of_alice, scopes=["read"]), Ready)


@pytest.mark.sample(5)
@pytest.mark.case("17")
@every_mode
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_fifty_link_previews_change_nothing(harness: Harness, mode: Mode, tmp_path: Path, method: str) -> None:
    asked, person = await harness.ask_link(of=mode.of_alice), harness.browser()
    before = tree(tmp_path)
    for number in range(25):
        bot = harness.browser()
        await bot.open(asked.authorization_url, method=method, headers={"user-agent": f"LinkPreview/{number}"})
        await bot.open(asked.authorization_url, method=method, headers={"sec-purpose": "prefetch"})
        await person.open(asked.authorization_url, method=method)
    assert before == tree(tmp_path)
    await mode.finish(harness, await harness.connect(asked, browser=person), mode.alice)
    assert isinstance(await harness.ask(of=mode.of_alice), Ready)


@pytest.mark.case("17")
@every_confirming_mode
async def test_nor_do_previews_of_the_page_after_the_callback(harness: Harness, mode: Mode, tmp_path: Path) -> None:
    asked, person = await harness.ask_link(of=mode.of_alice), harness.browser()
    page = await harness.connect(asked, browser=person)
    before = tree(tmp_path)
    for method in ("GET", "HEAD", "POST"):
        for browser in (harness.browser(), person):
            await browser.open(page.url, method=method)
    assert before == tree(tmp_path)
    await mode.finish(harness, page, mode.alice)
    assert isinstance(await harness.ask(of=mode.of_alice), Ready)


@pytest.mark.case("14b", "15")
@every_confirming_mode
@pytest.mark.parametrize("when", ["at the provider", "pendingCode"])
async def test_the_requester_confirms_nothing_with_public_values(harness: Harness, mode: Mode, when: str) -> None:
    """Mallory asked, so Mallory has the authSessionId, the link and its ticket; and Alice is under way with it."""
    asked, victim = await harness.ask_link(of=mode.of_mallory), harness.browser()
    back = await harness.way_back(asked, victim)
    page = None
    if when == "pendingCode":
        await victim.follow(back)
        page = await victim.follow()
    session_id, ticket = asked.auth_session_id, asked.authorization_url.rpartition("/")[2]
    locator = session_id.removeprefix("as-")
    guesses = [
        "",
        session_id,
        locator,
        ticket,
        locator + "A" * 43,
        locator + ticket[22:],
        "x" * 65,
        ticket[22:] + locator,
    ]
    for guess in guesses:
        for subject in (mode.mallory, mode.alice):
            await assert_refused(harness.broker.confirm(guess, subject))
        await assert_refused(harness.broker.relay_code(mode.of_mallory, guess))
    mallory = harness.browser()
    assert_error_page(await mallory.open(f"{harness.origin}/next/{session_id}"), Code.STATE_UNKNOWN)
    assert 0 == harness.idp.count("token")
    assert (await harness.session(asked)).open, "nor can Mallory spoil it with public values"
    if page is not None and CODE.search(page.text):
        for _ in range(MAX_TRIES):
            await assert_refused(harness.broker.relay_code(mode.of_mallory, wrong_code(code_on(page))))
        assert "failed" == (await harness.session(asked)).status
    assert await no_grants(harness)


def wrong_code(code: str) -> str:
    return code[:-1] + ("3" if code[-1] == "2" else "2")


async def assert_refused(said: Any) -> None:
    with pytest.raises(BrokerError) as caught:
        await said
    assert Code.STATE_UNKNOWN is caught.value.code


@pytest.mark.case("12", "15")
@every_confirming_mode
async def test_sixty_callbacks_at_once_keep_one_code(harness: Harness, mode: Mode) -> None:
    asked, person = await harness.ask_link(of=mode.of_alice), harness.browser()
    url = await harness.way_back(asked, person)
    name = f"oab-{asked.auth_session_id.removeprefix('as-')}"
    headers = [("cookie", f"{name}={person.cookies[name].value}")]
    query = url.partition("?")[2].encode()
    ask = (
        kit.ask(harness.broker.asgi.app, "/oauth/callback/mail", query=query, host=HOST, headers=headers)
        for _ in range(60)
    )
    answers = await asyncio.gather(*ask)
    assert [303] == [answer.status for answer in answers if answer.status != 409]
    assert 0 == harness.idp.count("token")
    page = await person.open(f"{harness.origin}/next/{asked.auth_session_id}")
    await mode.finish(harness, page, mode.alice)
    assert_leads_to_connected(await person.open(page.url))


@every_confirming_mode
async def test_a_revocation_while_a_code_is_pending_is_no_obstacle_and_no_way_round(
    harness: Harness, mode: Mode
) -> None:
    """A revocation ends the grants that were there; a later consent stands."""
    asked = await harness.ask_link(of=mode.of_alice, scopes=["read"])
    await mode.finish(harness, await harness.connect(asked), mode.alice)
    second = await harness.ask_link(of=mode.of_alice, scopes=["write"])
    page = await harness.connect(second)
    revoked, _ = await asyncio.gather(
        harness.broker.revoke("mail", subject=mode.alice), mode.finish(harness, page, mode.alice)
    )
    assert revoked
    grant = await harness.grant(subject=mode.alice)
    assert grant is not None
    ready = await harness.ask(of=mode.of_alice, scopes=["write"])
    assert grant.revoked is not isinstance(ready, Ready)
    assert "completed" == (await harness.session(second)).status


@every_confirming_mode
async def test_another_sufficient_grant_completes_a_pending_session(harness: Harness, mode: Mode) -> None:
    """And the person sees that it is connected."""
    first = await harness.ask_link(of=mode.of_alice, scopes=["read"])
    browser = harness.browser()
    waits = await harness.connect(first, browser=browser)
    second = await harness.ask_link(of=mode.of_alice, scopes=["read", "write"])
    await mode.finish(harness, await harness.connect(second), mode.alice)
    assert "completed" == (await harness.session(first)).status
    assert_leads_to_connected(await browser.open(waits.url))
    with pytest.raises(BrokerError):
        await mode.finish(harness, waits, mode.alice)
    assert 1 == harness.idp.count("token")


@every_confirming_mode
async def test_a_page_in_korean(harness: Harness, mode: Mode) -> None:
    browser = harness.browser()
    browser.language = "ko"
    page = await harness.connect(await harness.ask_link(of=mode.of_alice), browser=browser)
    assert "마지막 단계" in page.text
    assert "Send this" not in page.text


@every_confirming_mode
async def test_no_device_code_is_asked_for_with_such_a_binding(
    identity_provider: IdentityProvider, test_clock: TestClock, mode: Mode
) -> None:
    """The loader refuses it; an app built in code, with an identity even, fares no better."""
    app = user_app(identity_provider, flow="deviceCode")
    app = replace(app, owner=replace(app.owner, binding=mode.binding))
    async with running(identity_provider, [app], clock=test_clock, settings=settings_for()) as harness:
        refused = await harness.ask(of=mode.of_alice)
        assert isinstance(refused, Failed)
        assert (Code.DEVICE_CODE_UNSUPPORTED, 0) == (refused.code, harness.idp.count("device"))
