"""Every form on every page of ours against other people's pages (case 87). A form that is not in the table fails."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.core.errors import Code
from oauthbroker.records.open_facts import Candidate, OpenFacts
from oauthbroker.testing import Browser, IdentityProvider, TestClock
from oauthbroker.testing.browser import Page
from oauthbroker.testing.html import Form
from oauthbroker.web.gate import csrf
from tests.kit import planted_records
from tests.kit.callback_pages import assert_error_page
from tests.kit.running_broker import ALICE, BASE, TEAM, Harness, file_store, global_app, public, running, tree, user_app
from tests.story.hostile_web import EVIL, open_evil_site
from tests.story.signed_in import connections_browser, operator_browser
from tests.unit.web.kit import Document

Way = Callable[[Harness], Awaitable[Browser]]


@pytest.fixture
async def harness(identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path) -> AsyncIterator[Harness]:
    apps = [user_app(identity_provider), user_app(identity_provider, "files"), global_app(identity_provider)]
    store, settings = file_store(tmp_path, test_clock), public(BASE, admin_loopback=True)
    async with running(
        identity_provider, apps, clock=test_clock, store=store, settings=settings, background=False
    ) as harness:
        yield harness


async def connect(harness: Harness) -> Browser:
    person = harness.browser()
    await person.open((await harness.ask_link()).authorization_url)
    return person


async def invitation(harness: Harness) -> Browser:
    person = harness.browser()
    await person.open((await harness.broker.connections.link({"user": ALICE}))[0])
    return person


async def connections(harness: Harness) -> Browser:
    await planted_records.grant(harness, "team", TEAM)
    await planted_records.dead_grant(harness, "files", ALICE)
    return await connections_browser(harness, {"user": ALICE, "global": TEAM})


async def disconnect(harness: Harness) -> Browser:
    grant = await planted_records.grant(harness, "mail", ALICE)
    person = await connections_browser(harness, {"user": ALICE})
    await person.open(f"{BASE}/connections/{grant.id}/disconnect")
    return person


async def wrong_account(harness: Harness) -> Browser:
    person = harness.browser()
    assert 403 == (await harness.connect(await harness.ask_link(), "bob", person)).status
    await harness.parts.relay.once()
    await harness.events()
    return person


async def choice(harness: Harness) -> Browser:
    person = harness.browser()
    page = await harness.connect(await harness.ask_link(), browser=person)
    sites = tuple(Candidate(label=name, facts={"site": name}) for name in ("one", "two"))
    await harness.change_grant(open_facts=OpenFacts(candidates=sites))
    await harness.parts.relay.once()
    await person.open(page.url)
    return person


async def connected(harness: Harness) -> Browser:
    person = harness.browser()
    app = "mail" if await harness.grant() is None else "files"
    await harness.connect(await harness.ask_link(app), browser=person)
    await harness.parts.relay.once()
    return person


async def login(harness: Harness) -> Browser:
    person = harness.browser()
    await person.open(f"{BASE}/admin/login")
    return person


async def revoke(harness: Harness) -> Browser:
    grant = await planted_records.grant(harness, "mail", ALICE)
    person = await operator_browser(harness)
    await person.open(f"{BASE}/admin/grants/{grant.id}/revoke")
    return person


async def waiting(harness: Harness) -> Browser:
    await harness.ask_link()
    person = await operator_browser(harness)
    await person.open(f"{BASE}/admin/waiting")
    return person


async def queues(harness: Harness) -> Browser:
    await planted_records.dead_letter(harness, 1 + len(await harness.broker.events.dead("planner")))
    person = await operator_browser(harness)
    await person.open(f"{BASE}/admin/queues")
    return person


async def drop(harness: Harness) -> Browser:
    letter = await planted_records.dead_letter(harness, 1 + len(await harness.broker.events.dead("planner")))
    person = await operator_browser(harness)
    page = await person.open(f"{BASE}/admin/queues")
    await person.open(next(link for link in page.document.links if letter.id in link))
    return person


FORMS: dict[str, Way] = {
    "/connect/{ticket}": connect,
    "/next/{session}/again": wrong_account,
    "/next/{session}/choice": choice,
    "/connected/{app}": connected,
    "/connections/open/{ticket}": invitation,
    "/connections/leave": connections,
    "/connections/{grant}/disconnect": disconnect,
    "/connections/{grant}/switch": connections,
    "/connections/{grant}/again": connections,
    "/admin/login": login,
    "/admin/enter": login,
    "/admin/leave": operator_browser,
    "/admin/grants/{grant}/revoke": revoke,
    "/admin/waiting/{session}/cancel": waiting,
    "/admin/queues/retry": queues,
    "/admin/queues/drop": drop,
}
SPOILT_HEADERS = {
    "another site": {"origin": EVIL},
    "a hidden origin": {"origin": "null"},
    "another port": {"origin": "http://127.0.0.1:8421"},
    "another site that hides it": {"sec-fetch-site": "cross-site"},
    "a sibling": {"sec-fetch-site": "same-site"},
}
WITHOUT_BROWSER_SESSION = {
    "/admin/login", "/admin/enter", "/next/{session}/again", "/next/{session}/choice", "/connected/{app}",
}  # fmt: skip
SPOILT_FIELDS = ("missing", "empty", "wrong", "twice", "another form's", "another browser's", "no cookie")


def form_of(page: Page, path: str) -> Form:
    """The page's own form that goes there; one without an action goes to where the page is."""
    last = path.rpartition("/")[2]
    return next(
        form
        for form in page.document.forms
        if form.method == "post" and (not form.action or "{" in last or form.action.endswith(last))
    )


def field_of_another_form(harness: Harness, person: Browser) -> str:
    """As our pages make it in this very browser, for a form of another address."""
    names = [name for name in ("oab-admin", "oab-connections", "oab") if name in person.cookies]
    return csrf.csrf_token(
        lambda message: harness.store.mac("csrf", message.hex()), person.cookies[names[0]].value[-43:], "/admin/another"
    )


@pytest.mark.case("87")
async def test_the_table_has_every_form_there_is(harness: Harness) -> None:
    pages: Any = harness.broker.asgi.pages  # an application of starlette's
    there = {getattr(route, "path", "") for route in pages.routes if "POST" in (getattr(route, "methods", None) or ())}
    assert there == set(FORMS)


@pytest.mark.sample(30)
@pytest.mark.case("87")
@pytest.mark.parametrize("path", FORMS)
@pytest.mark.parametrize("spoilt", SPOILT_HEADERS)
async def test_a_form_that_says_it_is_from_elsewhere_does_nothing(
    harness: Harness, tmp_path: Path, path: str, spoilt: str
) -> None:
    person = await FORMS[path](harness)
    form, before = form_of(person.page, path), tree(tmp_path)
    assert_error_page(
        await person.submit(form=form, headers=SPOILT_HEADERS[spoilt]), Code.OWNER_BINDING_FAILED, "formElsewhere"
    )
    assert before == tree(tmp_path)


@pytest.mark.case("87")
@pytest.mark.parametrize("path", FORMS)
async def test_another_sites_page_cannot_send_our_form_for_its_page_user(
    harness: Harness, tmp_path: Path, path: str
) -> None:
    """Field, cookies and all, from a page of the attacker's: the browser says where it came from."""
    person = await FORMS[path](harness)
    form = form_of(person.page, path)
    target = form.action or person.page.url
    evil, before = await open_evil_site(person), tree(tmp_path)
    page = await person.post(target, form.fields, initiator=evil)
    assert (
        (403, None) == (page.status, page.location)
        or (303, f"{BASE}/admin/login") == (page.status, page.location)
        or (401 == page.status)
    ), "refused, or not even let in: the cookie stays at home"
    assert before == tree(tmp_path)


@pytest.mark.sample(40)
@pytest.mark.case("87")
@pytest.mark.parametrize("path", FORMS)
@pytest.mark.parametrize("spoilt", SPOILT_FIELDS)
async def test_a_form_without_the_field_that_was_made_for_it_does_nothing(
    harness: Harness, tmp_path: Path, path: str, spoilt: str
) -> None:
    stranger = await FORMS[path](harness)
    person = await FORMS[path](harness)
    form = form_of(person.page, path)
    fields = [pair for pair in form.fields if pair[0] != "csrf"]
    own, strangers = dict(form.fields)["csrf"], dict(form_of(stranger.page, path).fields)["csrf"]
    if spoilt == "another form's":
        strangers = field_of_another_form(harness, person)
    if spoilt == "no cookie":
        for name in list(person.cookies):
            person.cookies.drop(name)
    sent = {
        "missing": [],
        "empty": [("csrf", "")],
        "wrong": [("csrf", "w" * 43)],
        "twice": [("csrf", own), ("csrf", own)],
        "no cookie": [("csrf", own)],
    }.get(spoilt, [("csrf", strangers)])
    before = tree(tmp_path)
    page = await person.submit([*fields, *sent], form=form)
    if spoilt == "no cookie" and "{ticket}" not in path and path not in WITHOUT_BROWSER_SESSION:
        assert page.status == 401 or page.location == f"{BASE}/admin/login", "no visit is opened"
    else:
        assert_error_page(page, Code.OWNER_BINDING_FAILED, "noCookie" if spoilt == "no cookie" else "formOutdated")
    assert before == tree(tmp_path)


@pytest.mark.case("87")
@pytest.mark.parametrize("path", FORMS)
async def test_no_page_with_a_form_can_be_framed_or_run_a_script(harness: Harness, path: str) -> None:
    page = (await FORMS[path](harness)).page
    policy = page.header("content-security-policy")
    for part in ("default-src 'none'", "frame-ancestors 'none'", "form-action 'self'", "base-uri 'none'"):
        assert part in policy
    assert "unsafe" not in policy
    assert "script-src" not in policy
    assert "DENY" == page.header("x-frame-options")
    assert "no-store" == page.header("cache-control")
    assert "same-origin" == page.header("referrer-policy"), "or browsers would send Origin: null with our own form"
    assert "<script" not in page.source.lower()
    assert " on" not in "".join(f" {name}" for name in names_of_attributes(page))


def names_of_attributes(page: Page) -> set[str]:
    return {name for element in Document(page.source).elements for name in element.attributes}


@pytest.mark.case("87")
@pytest.mark.parametrize("path", [path for path in FORMS if "{" not in path or "grant" in path or "session" in path])
async def test_looking_at_an_action_does_nothing(harness: Harness, tmp_path: Path, path: str) -> None:
    """GET, HEAD and friends of every address that a form goes to."""
    person = await FORMS[path](harness)
    form = form_of(person.page, path)
    target, before = form.action or person.page.url, tree(tmp_path)
    for method in ("GET", "HEAD", "PUT", "DELETE", "OPTIONS"):
        assert (await person.open(target, method=method)).status in {200, 303, 404, 405}
    assert before == tree(tmp_path)
