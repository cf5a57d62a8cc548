"""Names from elsewhere on our real pages (case 88): markup, hidden characters and endless lines are only ever text."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from oauthbroker.core.errors import Code
from oauthbroker.model.token_results import AuthorizationRequired
from oauthbroker.testing import Browser, IdentityProvider, TestClock
from oauthbroker.testing.browser import Page
from oauthbroker.testing.provider.types import Account
from tests.kit.callback_pages import assert_error_page
from tests.kit.running_broker import Harness, running, turn, user_app
from tests.story.hostile_web import HOSTILE_TEXTS, as_agent
from tests.unit.web.kit import Document

OWN = {"html", "head", "meta", "title", "style", "body", "main", "header", "footer", "h1", "h2", "p", "dl", "div", "dt", "dd",
       "time", "ul", "li", "code", "small", "bdi", "form", "input", "button", "a", "strong", "span", "svg", "path", "circle"}  # fmt: skip


def assert_only_our_own_markup(page: Page) -> Document:
    """Parsed strictly: our elements, our one form, no handler, no address that is not ours or the provider's."""
    document = Document(page.source)
    assert OWN >= {element.tag for element in document.elements}
    for element in document.elements:
        assert [] == [
            name for name in element.attributes if name.startswith("on") or name in {"src", "action", "srcdoc"}
        ]
        assert "style" not in element.attributes
        assert "evil" not in str(element.attributes)
    assert 1 == len(document.all("style"))
    assert 1 >= len(document.all("form"))
    hidden = set("\u202e\u200b\u00ad\ufeff\0")
    assert not hidden & set(page.source), "nothing invisible, nothing that turns the line round"
    assert 60_000 > len(page.source)
    assert "\r\nSet-Cookie" not in "".join(f"{name}: {value}\n" for name, value in page.headers)
    return document


@pytest.fixture
async def hostile(
    request: pytest.FixtureRequest, identity_provider: IdentityProvider, test_clock: TestClock
) -> AsyncIterator[tuple[Harness, str]]:
    """An app whose title, provider and one scope are the payload."""
    payload: str = request.param
    scope = "".join(character for character in payload if character.isprintable() and character != " ")[:200] or "x"
    app = user_app(identity_provider, scopes=("read", scope), title=payload)
    app = replace(app, provider=payload)
    async with running(identity_provider, [app], clock=test_clock) as harness:
        yield harness, payload


@pytest.mark.sample(9)
@pytest.mark.case("88")
@pytest.mark.parametrize("hostile", HOSTILE_TEXTS, indirect=True)
async def test_hostile_names_are_text_on_every_page_of_the_way(hostile: tuple[Harness, str]) -> None:
    harness, payload = hostile
    sub = payload.replace(":", ";")[:100]
    of = turn(user=f"idp:user:{sub}", agent=as_agent(payload), instance=payload[:500])
    asked = await harness.ask_link(scopes=["read"], of=of)
    person = harness.browser()
    shown = assert_only_our_own_markup(await person.open(asked.authorization_url))
    if payload.isprintable() and len(payload) < 60:
        assert payload in shown.text, "shown as text"
    assert_only_our_own_markup(await person.submit())
    assert person.page.next_url is not None
    assert person.page.next_url.startswith(harness.idp.url("/authorize?"))
    harness.idp.add_account(Account("hostile", sub=sub, name=payload))
    callback = await harness.idp.agree(person.page.next_url, "hostile", browser=person)
    await person.follow(callback)
    while person.page.location is not None:
        await person.follow()
    assert_only_our_own_markup(person.page)


@pytest.mark.case("88")
@pytest.mark.parametrize("hostile", HOSTILE_TEXTS[:6], indirect=True)
async def test_hostile_names_and_errors_on_the_pages_that_refuse(hostile: tuple[Harness, str]) -> None:
    harness, payload = hostile
    harness.idp.script.authorize.error(payload[:100], error_description=payload, error_uri=payload, times=2)
    page = await harness.connect(await harness.ask_link())
    assert_error_page(page, Code.PROVIDER_DENIED)
    assert_only_our_own_markup(page)
    assert payload not in page.source
    assert "alert" not in page.source
    person = harness.browser()
    asked = await harness.ask_link()
    await person.open(asked.authorization_url)
    await person.submit({"decision": "cancel"})
    assert_only_our_own_markup(await person.follow())


@pytest.mark.case("88")
@pytest.mark.parametrize("hostile", ["<b>Mail</b>"], indirect=True)
@pytest.mark.parametrize("language", ["en", "ko"])
async def test_the_links_message_and_block_carry_names_as_plain_text(
    hostile: tuple[Harness, str], language: str
) -> None:
    """What goes into a chat or a prompt is no page: there is nothing to escape, and no secret in it."""
    harness, payload = hostile
    asked = await harness.ask_link()
    block = await harness.broker.pending(turn())
    assert block is not None
    assert asked.message == block["items"][0]["message"]
    assert payload in asked.message
    browser = Browser(apps={harness.origin: harness.broker.asgi.app}, language=language)
    assert_only_our_own_markup(await browser.open(asked.authorization_url))


@pytest.mark.case("88")
async def test_a_scope_list_of_any_length_is_shown_as_a_page_of_bearable_size(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    app = user_app(identity_provider, scopes=tuple(f"scope:{number}:" + "x" * 150 for number in range(900)))
    async with running(identity_provider, [app], clock=test_clock) as harness:
        asked = await harness.ask()
        assert isinstance(asked, AuthorizationRequired)
        page = await harness.browser().open(asked.authorization_url)
        assert (200, True, True) == (page.status, len(page.source) < 100_000, "800" in page.text)
