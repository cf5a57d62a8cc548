"""Who may type a key: the bindings of a CredentialApp, and what becomes of its link."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from oauthbroker import Turn
from oauthbroker.model.apps import ANYONE, App, IdentityRule, Owner
from oauthbroker.model.connect_params import ConnectParam
from oauthbroker.model.static_credential import Verification
from oauthbroker.model.token_results import AuthorizationRequired
from oauthbroker.testing import Browser, IdentityProvider, TestClock
from oauthbroker.testing.browser import Page
from tests.kit.running_broker import Harness, running, to_the_end
from tests.story.binding_kit import broker_login, corp_turn, settings_for
from tests.story.keys_kit import DEAD, GOOD, NEWER, OF_BOB, KeyApi, asked_for, key_app, sent, type_key

REGION = ConnectParam(name="region", title="Region", one_of=("eu", "us"))


def login_first(api: KeyApi, **changes: Any) -> App:
    """Only the broker's own login tells whose key it is."""
    return key_app(api, verification=None, **{"owner": Owner(binding="brokerLogin"), **changes})


@pytest.fixture
async def harness(api: KeyApi, test_clock: TestClock) -> AsyncIterator[Harness]:
    """Where people sign in at the company first."""
    checked = replace(login_first(api, name="checked"), credential=key_app(api).credential)
    several = replace(checked, name="several", several_accounts=True)
    parted = replace(checked, name="parted", connect_params=(REGION,))
    async with (
        IdentityProvider(clock=test_clock) as corp,
        running(
            corp,
            [login_first(api), checked, several, parted],
            clock=test_clock,
            settings=settings_for(),
            login=broker_login(corp),
            corp=corp,
        ) as harness,
    ):
        yield harness


async def signed_in(harness: Harness, asked: AuthorizationRequired, browser: Browser, account: str = "alice") -> Page:
    """From the link through the login; the page after it."""
    await browser.open(asked.authorization_url)
    page = await browser.submit({"decision": "continue"}, form=browser.page.form("decision"))
    assert page.next_url is not None, page.text
    assert harness.corp is not None
    return await to_the_end(browser, await harness.corp.agree(page.next_url, account, browser=browser))


async def press(browser: Browser, **fields: str) -> Page:
    page = await browser.submit({"decision": "continue", **fields}, form=browser.page.form("decision"))
    while page.location is not None:
        page = await browser.follow()
    return page


def has_fields(page: Page) -> bool:
    return "credential.apiKey" in page.source


@pytest.mark.case("151")
async def test_the_login_comes_first_and_the_fields_are_for_that_browser_alone(harness: Harness, api: KeyApi) -> None:
    asked, alice, other = await asked_for(harness, api, corp_turn()), harness.browser(), harness.browser()
    page = await alice.open(asked.authorization_url)
    assert (False, True) == (has_fields(page), "Sign in first" in page.source)
    page = await signed_in(harness, asked, alice)
    assert has_fields(page), page.text
    assert not has_fields(await other.open(asked.authorization_url)), "another browser is asked to sign in"
    page = await alice.open(asked.authorization_url)
    assert "no way to check" in page.text, "it does not say that it was checked"
    page = await press(alice, **{"credential.apiKey": GOOD})
    assert "Meter is connected" in page.text
    assert 200 == (await sent(harness, api, of=corp_turn())).status_code


@pytest.mark.case("151")
async def test_a_key_that_is_sent_before_the_login_goes_nowhere(harness: Harness, api: KeyApi) -> None:
    asked, browser = await asked_for(harness, api, corp_turn()), harness.browser()
    await browser.open(asked.authorization_url)
    form = browser.page.form("decision")
    page = await browser.submit({"decision": "continue", "credential.apiKey": OF_BOB}, form=form)
    assert page.next_url is not None
    assert harness.corp is not None
    assert page.next_url.startswith(harness.corp.base_url), "to the login"
    assert isinstance(await sent(harness, api, of=corp_turn()), AuthorizationRequired)


@pytest.mark.case("151")
async def test_another_person_who_signs_in_gets_no_fields_and_the_owner_goes_on(harness: Harness, api: KeyApi) -> None:
    asked, mallory, alice = await asked_for(harness, api, corp_turn()), harness.browser(), harness.browser()
    page = await signed_in(harness, asked, mallory, "mallory")
    assert (403, False) == (page.status, has_fields(page))
    assert not has_fields(await mallory.open(asked.authorization_url))
    assert has_fields(await signed_in(harness, asked, alice))
    assert "is connected" in (await press(alice, **{"credential.apiKey": GOOD})).text


@pytest.mark.case("151")
async def test_a_login_of_another_browser_ends_the_right_of_the_first(harness: Harness, api: KeyApi) -> None:
    asked, first, second = await asked_for(harness, api, corp_turn()), harness.browser(), harness.browser()
    shown = await signed_in(harness, asked, first)
    await second.open(asked.authorization_url)
    await second.submit({"decision": "continue"}, form=second.page.form("decision"))
    assert has_fields(shown)
    page = await first.submit({"decision": "continue", "credential.apiKey": GOOD}, form=shown.form("decision"))
    assert "is connected" not in page.text
    assert isinstance(await sent(harness, api, of=corp_turn()), AuthorizationRequired)
    assert has_fields(await signed_in(harness, asked, first))
    assert "is connected" in (await press(first, **{"credential.apiKey": GOOD})).text


async def test_a_wrong_key_after_the_login_needs_no_second_login(harness: Harness, api: KeyApi) -> None:
    asked, alice = await asked_for(harness, api, corp_turn(), "checked"), harness.browser()
    await signed_in(harness, asked, alice)
    page = await press(alice, **{"credential.apiKey": DEAD})
    assert (403, True) == (page.status, has_fields(page))
    assert "is connected" in (await press(alice, **{"credential.apiKey": OF_BOB})).text, "the login says who it is"


@pytest.mark.parametrize("way", ["reload", "back", "next"])
async def test_the_page_after_the_login_is_found_again(harness: Harness, api: KeyApi, way: str) -> None:
    asked, alice = await asked_for(harness, api, corp_turn()), harness.browser()
    await signed_in(harness, asked, alice)
    place = {"reload": alice.page.url, "back": asked.authorization_url}
    page = await alice.open(place.get(way, f"{harness.origin}/next/{asked.auth_session_id}"))
    while page.location is not None:
        page = await alice.follow()
    assert has_fields(page), page.text
    assert "is connected" in (await press(alice, **{"credential.apiKey": GOOD})).text


@pytest.mark.parametrize(("app", "region"), [("several", {}), ("parted", {"param.region": "us"})])
async def test_labels_and_parameters_typed_before_the_login_are_kept(
    harness: Harness, api: KeyApi, app: str, region: dict[str, str]
) -> None:
    asked = await asked_for(harness, api, several_of(corp_turn()) if not region else corp_turn(), app)
    alice = harness.browser()
    await alice.open(asked.authorization_url)
    page = await alice.submit({"decision": "continue", "label": "Office", **region}, form=alice.page.form("decision"))
    assert harness.corp is not None
    assert page.next_url is not None
    page = await to_the_end(alice, await harness.corp.agree(page.next_url, "alice", browser=alice))
    assert has_fields(page)
    assert 'value="Office"' in page.source
    assert not region or "<option selected>us" in page.source
    page = await press(alice, **{"credential.apiKey": GOOD, "label": "Office", **region})
    assert "is connected" in page.text
    (grant,) = [it async for it in harness.broker.grants.list(app=app)]
    assert ("" if region else "work", "Office") == (grant.account, grant.label)


def several_of(of: Turn) -> Turn:
    assert of.auth is not None
    return replace(of, auth=replace(of.auth, accounts={"CredentialApp/several": ["work"]}))


@pytest.fixture
async def plain(api: KeyApi, test_clock: TestClock) -> AsyncIterator[Harness]:
    """Where the key itself names the account, or the machine's operator types it."""
    meter = key_app(api)
    team = Owner(global_identity=IdentityRule("userInfo", "idp:team:{id}"), authorizers=ANYONE)
    apps = [
        meter,
        key_app(api, "local", verification=None, owner=Owner(binding="localOperator")),
        key_app(api, "shared", subject_mode="global", owner=team),
        key_app(api, "open", subject_mode="global", verification=None, owner=Owner(binding="localOperator")),
        key_app(api, "parted", connect_params=(REGION,)),
    ]
    api.keys |= {"key-of-team-00001": "T111"}
    async with IdentityProvider(clock=test_clock) as idp, running(idp, apps, clock=test_clock) as harness:
        yield harness


@pytest.mark.parametrize(("app", "key"), [("local", GOOD), ("shared", "key-of-team-00001"), ("open", GOOD)])
async def test_an_operator_and_a_team_type_their_key(plain: Harness, api: KeyApi, app: str, key: str) -> None:
    page = await type_key(plain, await asked_for(plain, api, app=app), key)
    assert "is connected" in page.text
    assert 200 == (await sent(plain, api, app=app)).status_code


@pytest.mark.case("151")
@pytest.mark.parametrize(("app", "key"), [("meter", OF_BOB), ("shared", GOOD), ("shared", OF_BOB)])
async def test_a_stranger_who_opens_the_link_cannot_plant_a_key(
    plain: Harness, api: KeyApi, app: str, key: str
) -> None:
    page = await type_key(plain, await asked_for(plain, api, app=app), key)
    assert (403, True) == (page.status, "another account" in page.text)
    assert isinstance(await sent(plain, api, app=app), AuthorizationRequired)


@pytest.mark.parametrize(("region", "status"), [("us", 200), ("mars", 400), ("", 400)])
async def test_a_parameter_is_typed_on_the_same_page(plain: Harness, api: KeyApi, region: str, status: int) -> None:
    asked, browser = await asked_for(plain, api, app="parted"), plain.browser()
    await browser.open(asked.authorization_url)
    page = await press(browser, **{"credential.apiKey": GOOD, "param.region": region})
    assert status == page.status, page.text
    assert GOOD not in page.source
    if status != 200:
        assert "This cannot be used" in page.text or "Region" in page.text
        page = await press(browser, **{"credential.apiKey": GOOD, "param.region": "eu"})
    assert "is connected" in page.text


async def test_two_tabs_and_two_browsers_end_in_one_grant(plain: Harness, api: KeyApi) -> None:
    asked, one, two = await asked_for(plain, api), plain.browser(), plain.browser()
    first, second = await one.open(asked.authorization_url), await two.open(asked.authorization_url)
    other_tab = await one.open(asked.authorization_url)
    said = {"decision": "continue", "credential.apiKey": GOOD}
    assert first.form("decision").fields
    one.history.append(first)
    assert "is connected" in (await press(one, **{"credential.apiKey": GOOD})).text
    one.history.append(other_tab)
    page = await one.submit(said, form=other_tab.form("decision"))
    assert "is connected" in page.text, "the other tab is told the truth"
    page = await two.submit({**said, "credential.apiKey": NEWER}, form=second.form("decision"))
    assert (400, False) == (page.status, "is connected" in page.text), "another browser is told nothing"
    page = await one.open(asked.authorization_url)
    assert "is connected" in page.text
    assert "is connected" not in (await two.open(asked.authorization_url)).text
    assert GOOD == (await sent(plain, api)).request.headers.get("x-api-key", GOOD)
    await sent(plain, api)
    assert GOOD == api.seen[-1].headers["x-api-key"], "a finished link replaces nothing"


async def test_after_twenty_presses_the_link_is_over_and_the_next_one_works(plain: Harness, api: KeyApi) -> None:
    asked = await asked_for(plain, api)
    browser = plain.browser()
    shown = await browser.open(asked.authorization_url)
    presses = [(await press(browser, **{"credential.apiKey": DEAD})).status for _ in range(20)]
    assert [403] * 19 + [400] == presses, "the last answer is that the link is over"
    tried = [it.path for it in api.seen].count("/me")
    browser.history.append(shown)
    page = await press(browser, **{"credential.apiKey": GOOD})
    assert (400, tried) == (page.status, [it.path for it in api.seen].count("/me")), page.text
    again = await asked_for(plain, api)
    assert again.authorization_url != asked.authorization_url
    assert "is connected" in (await type_key(plain, again, GOOD)).text


@pytest.mark.parametrize("end", ["expired", "declined", "withdrawn", "superseded"])
async def test_a_link_that_is_over_takes_no_key(plain: Harness, api: KeyApi, test_clock: TestClock, end: str) -> None:
    asked, browser = await asked_for(plain, api), plain.browser()
    shown = await browser.open(asked.authorization_url)
    if end == "expired":
        test_clock.advance(3600)
    elif end == "declined":
        await browser.submit({"decision": "cancel"}, form=shown.form("decision"))
    elif end == "withdrawn":
        await plain.broker.cancel(asked.auth_session_id)
    else:
        await type_key(plain, asked, GOOD, plain.browser())
    asked_before = len(api.seen)
    browser.history.append(shown)
    page = await browser.submit({"decision": "continue", "credential.apiKey": NEWER}, form=shown.form("decision"))
    assert 400 <= page.status < 500, page.text
    assert NEWER not in page.source
    assert asked_before == len(api.seen), "the service is not asked"


async def test_an_app_that_was_reconfigured_meanwhile_takes_no_key(
    plain: Harness, api: KeyApi, test_clock: TestClock
) -> None:
    asked, browser = await asked_for(plain, api), plain.browser()
    shown = await browser.open(asked.authorization_url)
    changed = key_app(api, verification=Verification(path="/elsewhere"))
    async with running(plain.idp, [changed], clock=test_clock, store=plain.store) as after:
        later = after.browser()
        later.cookies = browser.cookies
        later.history.append(shown)
        page = await later.submit({"decision": "continue", "credential.apiKey": GOOD}, form=shown.form("decision"))
        assert (400, []) == (page.status, api.seen[1:]), page.text


async def test_a_page_from_before_a_restart_is_sent_after_it(
    plain: Harness, api: KeyApi, test_clock: TestClock
) -> None:
    asked, browser = await asked_for(plain, api), plain.browser()
    shown = await browser.open(asked.authorization_url)
    async with running(plain.idp, [key_app(api)], clock=test_clock, store=plain.store) as after:
        later = after.browser()
        later.cookies = browser.cookies
        later.history.append(shown)
        assert "is connected" in (await press(later, **{"credential.apiKey": GOOD})).text
        assert 200 == (await sent(after, api)).status_code
