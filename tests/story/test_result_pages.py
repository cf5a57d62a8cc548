"""The page at the end: the new connection, or another try with another account or for another code."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from oauthbroker.authorization.retry import MOST_TRIES
from oauthbroker.core.errors import Code
from oauthbroker.model.apps import IdentityRule, Owner
from oauthbroker.model.token_results import AuthorizationRequired, Ready
from oauthbroker.records.pending_code import MAX_TRIES
from oauthbroker.testing import Browser, IdentityProvider, TestClock
from oauthbroker.testing.browser import Page
from tests.kit.callback_pages import assert_error_page, assert_leads_to_connected
from tests.kit.running_broker import ALICE, Harness, running, to_the_end, user_app
from tests.story.binding_kit import (
    another_code,
    broker_login,
    came_back,
    code_on,
    confirming_harness,
    corp_turn,
    login_app,
    login_callback,
    of_alice,
    relay_refused,
    settings_for,
)
from tests.unit.web import kit

OTHER = "Try another account"
CODE = "Get a new code"


def offers(page: Page, button: str) -> bool:
    return button in [each.text.strip() for each in kit.Document(page.source).all("button")]


async def wrong(harness: Harness, asked: AuthorizationRequired, person: Browser) -> Page:
    return await harness.connect(asked, "bob", person)


async def again(person: Browser) -> Page:
    """The button, and the connect page that it leads to."""
    page = await person.submit()
    assert 303 == page.status, page.text
    return await person.follow()


async def agree(harness: Harness, person: Browser, account: str) -> Page:
    """From the connect page that is open to the broker's last page."""
    await person.submit({"decision": "continue"})
    assert person.page.next_url is not None
    return await person.follow(await harness.idp.agree(person.page.next_url, account, browser=person))


async def test_the_last_page_says_which_account_may_do_what_and_where_that_can_be_ended(harness: Harness) -> None:
    person = harness.browser()
    page = await harness.connect(await harness.ask_link(scopes=["read"]), browser=person)
    assert "Mail is connected" in page.text
    assert ALICE in page.text
    assert "<code><bdi>read</bdi></code>" in page.source
    assert "write" not in page.text
    assert offers(page, "See or end your connections")
    harness.clock.advance(60)
    grant = await harness.grant()
    assert grant is not None
    await harness.broker.grants.revoke("mail", ALICE)
    assert ALICE not in (await person.open(person.page.url)).text, "it has ended since"


async def test_a_browser_that_was_not_at_the_provider_is_not_told_the_account(harness: Harness) -> None:
    asked, person = await harness.ask_link(), harness.browser()
    page = await harness.connect(asked, browser=person)
    person.cookies.drop(f"oab-{asked.auth_session_id.removeprefix('as-')}")
    page = await person.open(page.url)
    assert ("Mail is connected" in page.text, ALICE in page.text) == (True, False)


async def test_after_a_wrong_account_another_one_can_be_tried_at_once(harness: Harness) -> None:
    asked, person = await harness.ask_link(), harness.browser()
    page = await wrong(harness, asked, person)
    assert_error_page(page, Code.SUBJECT_MISMATCH)
    assert offers(page, OTHER)
    assert ["auth.failed"] == [event["type"] for event in await harness.events()]
    assert ALICE not in page.text, "whose account it should be is for those who proved to be that person"
    page = await again(person)
    assert "Connect Mail ?" in page.text
    assert asked.authorization_url != page.url
    assert_leads_to_connected(await agree(harness, person, "alice"))
    assert isinstance(await harness.ask(), Ready)
    assert ["auth.granted"] == [event["type"] for event in await harness.events()]


async def test_the_provider_is_asked_to_let_the_person_choose(harness: Harness) -> None:
    person = harness.browser()
    await wrong(harness, await harness.ask_link(), person)
    await again(person)
    await person.submit({"decision": "continue"})
    assert "prompt=select_account" in str(person.page.next_url)


async def test_tries_are_few(harness: Harness) -> None:
    asked, person = await harness.ask_link(), harness.browser()
    page = await wrong(harness, asked, person)
    for _ in range(MOST_TRIES):
        assert offers(page, OTHER)
        await again(person)
        page = await agree(harness, person, "bob")
        assert_error_page(page, Code.SUBJECT_MISMATCH)
    assert not offers(page, OTHER)


@pytest.mark.case("87")
@pytest.mark.parametrize("spoiled", ["no cookie", "another browser", "no token", "elsewhere"])
async def test_only_the_browser_that_was_under_way_gets_another_try(harness: Harness, spoiled: str) -> None:
    asked, person = await harness.ask_link(), harness.browser()
    page = await wrong(harness, asked, person)
    form = page.form("csrf")
    headers: dict[str, str] = {}
    if spoiled == "no cookie":
        person.cookies.drop(f"oab-{asked.auth_session_id.removeprefix('as-')}")
    elif spoiled == "another browser":
        person = harness.browser()
        await person.open((await harness.ask_link("files")).authorization_url)
    elif spoiled == "no token":
        form = replace(form, fields=[(name, "x" * 43) for name, _ in form.fields])
    else:
        headers = {"origin": "https://evil.example", "sec-fetch-site": "cross-site"}
    page = await person.submit(form=form, headers=headers) if headers else await person.submit(form=form)
    assert page.location is None
    assert 400 <= page.status < 500


async def test_a_withdrawn_or_declined_request_is_not_opened_again(harness: Harness) -> None:
    for ended in ("cancelled", "declined"):
        asked, person = await harness.ask_link(), harness.browser()
        url = await harness.way_back(asked, person)
        if ended == "cancelled":
            assert await harness.broker.cancel(asked.auth_session_id)
        else:
            harness.idp.script.authorize.error()
        assert not offers(await person.follow(url), OTHER)


async def test_who_has_proved_to_be_the_subject_is_told_whose_account_it_takes(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    app = user_app(identity_provider)
    app = replace(app, owner=replace(app.owner, binding="brokerLogin"))
    with IdentityProvider(clock=test_clock) as corp:
        login = broker_login(corp)
        client = replace(login.app, owner=Owner(user_identity=IdentityRule("idToken", "idp:user:{sub}")))
        more: dict[str, Any] = {"settings": settings_for(), "corp": corp, "login": replace(login, app=client)}
        async with running(identity_provider, [app], clock=test_clock, **more) as harness:
            page = await harness.connect(await harness.ask_link(), "bob")
            assert_error_page(page, Code.SUBJECT_MISMATCH)
            assert (offers(page, OTHER), ALICE in page.text) == (True, True)


async def test_after_the_brokers_login_too_the_provider_is_to_let_the_person_choose(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    with IdentityProvider(clock=test_clock) as corp:
        more: dict[str, Any] = {"settings": settings_for(), "corp": corp, "login": broker_login(corp)}
        app = user_app(identity_provider)
        app = replace(app, owner=replace(app.owner, binding="brokerLogin"))
        client = replace(more["login"].app, owner=Owner(user_identity=IdentityRule("idToken", "idp:user:{sub}")))
        more["login"] = replace(more["login"], app=client)
        async with running(identity_provider, [app], clock=test_clock, **more) as harness:
            asked, person = await harness.ask_link(), harness.browser()
            await wrong(harness, asked, person)
            await again(person)
            await person.submit({"decision": "continue"})
            page = await to_the_end(person, await harness.logged_in(asked, person))
            assert "prompt=select_account" in str(page.next_url)


async def test_after_a_wrong_login_of_the_brokers_own_the_same_link_is_a_button_away(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    with IdentityProvider(clock=test_clock) as corp:
        more: dict[str, Any] = {"settings": settings_for(), "corp": corp, "login": broker_login(corp)}
        async with running(identity_provider, [login_app(identity_provider)], clock=test_clock, **more) as harness:
            asked, person = await harness.ask_link(of=corp_turn()), harness.browser()
            page = await person.follow(await login_callback(harness, asked, person, "mallory"))
            assert (403, True) == (page.status, offers(page, OTHER))
            page = await again(person)
            assert asked.authorization_url == page.url


@pytest.fixture
async def coded(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Harness]:
    async with confirming_harness(identity_provider, test_clock, "channelCode") as harness:
        yield harness


@pytest.mark.parametrize("how", ["late", "wrong ones"])
async def test_after_a_code_has_ended_there_is_a_new_one(coded: Harness, how: str) -> None:
    person = coded.browser()
    page = await came_back(coded, await coded.ask_link(of=of_alice()), person)
    old = code_on(page)
    if how == "late":
        coded.clock.advance(61)
    else:
        for _ in range(MAX_TRIES):
            assert Code.STATE_UNKNOWN is await relay_refused(coded, another_code(old))
    page = await person.open(page.url)
    assert offers(page, CODE)
    assert "Connect Mail ?" in (await again(person)).text
    await agree(coded, person, "alice")
    new = code_on(await person.follow())
    assert old != new
    assert "completed" == (await coded.broker.relay_code(of_alice(), new)).status
