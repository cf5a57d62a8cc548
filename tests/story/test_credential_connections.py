"""A key on the pages of its person and of operators: its last characters, its replacement and its end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from oauthbroker.model.apps import App, IdentityRule, Owner
from oauthbroker.model.static_credential import CredentialField
from oauthbroker.model.token_results import AuthorizationRequired
from oauthbroker.testing import Browser, IdentityProvider, TestClock
from oauthbroker.testing.browser import Page
from tests.kit.running_broker import ALICE, Harness, public, running
from tests.story.keys_kit import DEAD, GOOD, NEWER, OF_BOB, KeyApi, asked_for, key_app, sent, type_key
from tests.story.signed_in import ADMIN, connections_browser, operator_browser, submit_form

OBTAIN = "https://meter.example/settings/keys"
SHORT = "x" * 11 + "0001"  # 15 characters


def with_fields(app: App, *fields: CredentialField) -> App:
    assert app.credential is not None
    return replace(app, credential=replace(app.credential, fields=fields))


@pytest.fixture
async def harness(api: KeyApi, test_clock: TestClock) -> AsyncIterator[Harness]:
    key = CredentialField(name="apiKey", title="API key", obtain=OBTAIN)
    owner = Owner(binding="localOperator", user_identity=IdentityRule("userInfo", "meter:user:{id}"))
    local = with_fields(key_app(api, "local", title="Local", owner=owner), key)
    api.keys |= {SHORT: "U234567", f"x{SHORT}": "U234567"}
    settings = public("http://127.0.0.1:8420", admin_loopback=True)
    async with (
        IdentityProvider(clock=test_clock) as idp,
        running(idp, [with_fields(key_app(api), key), local], clock=test_clock, settings=settings) as harness,
    ):
        yield harness


async def through(browser: Browser, page: Page) -> Page:
    while page.location is not None:
        page = await browser.follow()
    return page


async def pressed(browser: Browser, path: str) -> Page:
    return await through(browser, await submit_form(browser, path))


@pytest.mark.case("152")
@pytest.mark.parametrize(("key", "shown"), [(GOOD, "•••• 0001"), ("x" * 12 + "0001", "•••• 0001"), (SHORT, "••••")])
async def test_a_key_is_shown_by_its_last_four_characters_at_most(
    harness: Harness, api: KeyApi, key: str, shown: str
) -> None:
    assert "is connected" in (await type_key(harness, await asked_for(harness, api), key)).text
    await sent(harness, api)
    mine = await connections_browser(harness, {"user": ALICE})
    for page in (mine.page, await operators_page(harness)):
        text = " ".join(page.text.split())
        assert f"API key {shown}" in text, text
        assert key not in page.source
        assert key[-5:] not in page.source
        assert ("0001" in page.source) == (key != SHORT)
        assert ALICE in text
        assert "planner" in text, "by whom it was used last"
        assert "may do" not in text, "a key has no scopes"


async def operators_page(harness: Harness) -> Page:
    office = await operator_browser(harness)
    (grant,) = [it async for it in harness.broker.grants.list()]
    return await office.open(f"{ADMIN}/grants/{grant.grantId}")


async def test_disconnecting_says_that_the_key_goes_on_working_at_the_service(harness: Harness, api: KeyApi) -> None:
    await type_key(harness, await asked_for(harness, api), GOOD)
    mine = await connections_browser(harness, {"user": ALICE})
    (grant,) = [it async for it in harness.broker.grants.list()]
    page = await mine.open(f"{harness.origin}/connections/{grant.grantId}/disconnect")
    assert "cannot be revoked from here" in page.text
    assert f'href="{OBTAIN}"' in page.source
    assert "disconnected" in (await pressed(mine, "/disconnect")).url
    ended = await harness.grant("meter")
    assert ended is None or (ended.token is None and not ended.refresh_tokens), "the broker has forgotten it"
    assert isinstance(await sent(harness, api), AuthorizationRequired)


@pytest.mark.case("157")
async def test_a_key_is_replaced_in_place_and_the_old_one_works_until_the_new_one_has_passed(
    harness: Harness, api: KeyApi
) -> None:
    await type_key(harness, await asked_for(harness, api), GOOD)
    (before,) = [it.grantId async for it in harness.broker.grants.list()]
    mine = await connections_browser(harness, {"user": ALICE})
    page = await pressed(mine, "/again")
    assert "credential.apiKey" in page.source
    for wrong in (DEAD, OF_BOB):
        page = await through(mine, await mine.submit({"decision": "continue", "credential.apiKey": wrong}))
        assert 403 == page.status
        assert 200 == (await sent(harness, api)).status_code
        assert GOOD == api.seen[-1].headers["x-api-key"]
    page = await through(mine, await mine.submit({"decision": "continue", "credential.apiKey": NEWER}))
    assert "is connected" in page.text
    await sent(harness, api)
    assert NEWER == api.seen[-1].headers["x-api-key"]
    assert [before] == [it.grantId async for it in harness.broker.grants.list()]


@pytest.mark.case("157")
async def test_a_key_of_another_account_is_a_switch_and_the_link_goes_on_working(harness: Harness, api: KeyApi) -> None:
    """Where the binding tells who types, and the account may be any."""
    asked = await asked_for(harness, api, app="local")
    assert "is connected" in (await type_key(harness, asked, GOOD)).text
    mine = await connections_browser(harness, {"user": ALICE})
    await pressed(mine, "/again")
    page = await through(mine, await mine.submit({"decision": "continue", "credential.apiKey": OF_BOB}))
    assert (403, True) == (page.status, "another account" in page.text), page.text
    assert "credential.apiKey" in page.source, "the page comes again"
    page = await through(mine, await mine.submit({"decision": "continue", "credential.apiKey": NEWER}))
    assert "is connected" in page.text
