"""What a page tells a person whose way went wrong: what happened, and what leads on."""

from __future__ import annotations

import pytest

from oauthbroker.audit import PageAction
from oauthbroker.core.errors import Code
from oauthbroker.core.words import SENTENCES
from oauthbroker.testing import Browser
from oauthbroker.testing.browser import Page
from oauthbroker.web.words import ERRORS, PAGES
from tests.kit.callback_pages import assert_error_page
from tests.kit.running_broker import ALICE, BASE, Harness
from tests.story.signed_in import CONNECTIONS, connections_browser, disconnect_browser, submit_form

AGAIN = PAGES["en"].reload_button


def way_on(page: Page) -> str:
    """Where the button for the page that is out of date leads to."""
    assert AGAIN in page.text
    return page.document.links[0]


async def without_cookies(person: Browser, path: str) -> Page:
    """The browser takes none: it has the page, and sends the form alone."""
    form = next(each for each in person.page.document.forms if each.method == "post" and path in (each.action or path))
    for name in list(person.cookies):
        person.cookies.drop(name)
    return await person.submit(form=form)


# a form that is not this browser's any more


async def test_a_browser_that_takes_no_cookies_is_told_to_allow_them(harness: Harness) -> None:
    asked, person = await harness.ask_link(), harness.browser()
    await person.open(asked.authorization_url)
    refused = await without_cookies(person, "/connect")
    assert_error_page(refused, Code.OWNER_BINDING_FAILED, "noCookie")
    assert asked.authorization_url == way_on(refused)
    url, _ = await harness.broker.connections.link({"user": ALICE})
    await person.open(url)
    refused = await without_cookies(person, "/connections")
    assert_error_page(refused, Code.OWNER_BINDING_FAILED, "noCookie")
    assert url == way_on(refused)
    assert 200 == (await harness.connect(asked, browser=harness.browser())).status, "nothing was done, nothing used up"


async def test_a_page_of_before_a_second_link_says_that_it_is_out_of_date_and_leads_on(harness: Harness) -> None:
    person = await disconnect_browser(harness)
    old = next(each for each in person.page.document.forms if each.action.endswith("/disconnect"))
    await connections_browser(harness, {"user": ALICE}, person)
    refused = await person.submit(form=old)
    assert_error_page(refused, Code.OWNER_BINDING_FAILED, "formOutdated")
    page = await person.follow(way_on(refused))
    assert (200, CONNECTIONS) == (page.status, page.url)
    assert "Mail" in page.text, "still connected"


async def test_a_connection_that_is_ended_twice_was_nothing_left_to_do(harness: Harness) -> None:
    person = await disconnect_browser(harness)
    await harness.broker.grants.revoke("mail", ALICE)
    page = await submit_form(person, "/disconnect")
    assert f"{CONNECTIONS}?done=nothing" == page.location
    assert "Nothing was left to do." in (await person.follow()).text
    assert [] == [entry for entry in harness.audit.entries if isinstance(entry, PageAction)]


# several results


@pytest.mark.case("92")
async def test_results_of_several_apps_are_shown_each_at_its_own_place(harness: Harness) -> None:
    person = harness.browser()
    await harness.connect(await harness.ask_link(), browser=person)
    await harness.connect(await harness.ask_link("files"), browser=person)
    declined = await harness.ask_link("team")
    await person.open(declined.authorization_url)
    await person.submit({"decision": "cancel"})
    for place, said in (
        ("/connected/mail", "Mail is connected"),
        ("/connected/files", "Files is connected"),
        ("/declined/team", "Nothing was connected"),
    ):
        page = await person.open(BASE + place)
        assert (200, True) == (page.status, said in page.text), place
    assert 404 == (await person.open(f"{BASE}/connected/team")).status


# links that were spoilt on their way


@pytest.mark.parametrize("where", ["connect", "connections"])
@pytest.mark.parametrize(
    "spoil",
    [lambda url: url[:-9], lambda url: url + ".", lambda url: url[:50] + "%3D" + url[50:]],
    ids=["cut", ".", "="],
)
async def test_a_link_of_another_form_is_to_be_opened_as_it_came(harness: Harness, where: str, spoil) -> None:
    asked = await harness.ask_link()
    url = asked.authorization_url if where == "connect" else (await harness.broker.connections.link({"user": ALICE}))[0]
    page = await harness.browser().open(spoil(url))
    assert_error_page(page, Code.STATE_UNKNOWN, "linkCut")
    assert "no longer works" not in page.text
    assert_error_page(await harness.browser().open(url[:-1] + ("A" if url[-1] != "A" else "B")), Code.STATE_UNKNOWN)


@pytest.mark.parametrize("mail", ["%0D%0A", "=%0A"])
async def test_a_link_with_a_line_break_is_to_be_opened_as_it_came(harness: Harness, mail: str) -> None:
    url = (await harness.ask_link()).authorization_url
    page = await harness.browser().open(url[:50] + mail + url[50:])
    assert (400, True) == (page.status, "exactly as you got it" in page.text), page.text


# whom to tell, and where a new link comes from


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("invalid_scope", "Tell the operator."),
        ("server_error", "If the link no longer works then, ask for a new one where you got it."),
        ("temporarily_unavailable", "If the link no longer works then, ask for a new one where you got it."),
    ],
)
async def test_a_providers_error_tells_a_person_what_a_person_can_do(harness: Harness, word: str, said: str) -> None:
    harness.idp.script.authorize.error(word)
    page = await harness.connect(await harness.ask_link())
    assert said in page.text
    assert "OAuthApp" not in page.text


@pytest.mark.parametrize("locale", ["en", "ko"])
def test_a_page_has_a_sentence_of_its_own_wherever_that_of_the_code_is_for_programs(locale: str) -> None:
    codes = {code.value for code in Code}
    assert ERRORS[locale].keys() <= codes
    assert not {*ERRORS[locale].values()} & {*SENTENCES[locale]["errors"].values()}
