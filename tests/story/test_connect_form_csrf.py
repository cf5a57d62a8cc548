"""The connect page's form against other people's pages (case 87), and addresses that try to lead elsewhere (86)."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest

from oauthbroker.core.errors import Code
from oauthbroker.testing.browser import Page
from tests.kit.callback_pages import HOST, assert_error_page
from tests.kit.running_broker import BASE, MALLORY, Harness, tree, turn
from tests.story.hostile_web import EVIL, FOREIGN_TARGETS, REDIRECT_PARAMETERS, open_evil_site
from tests.unit.web import kit

CONTINUE = ("decision", "continue")


def field_of(page: Page) -> str:
    return dict(page.form("csrf").fields)["csrf"]


@pytest.mark.case("87")
async def test_an_attackers_page_cannot_press_the_button_for_a_victim(filed: Harness, tmp_path: Path) -> None:
    """Mallory's page posts Mallory's own form, field and all, with the victim's browser and its cookies."""
    asked = await filed.ask_link(of=turn(user=MALLORY))
    attacker, victim = filed.browser(), filed.browser()
    mallorys_field = field_of(await attacker.open(asked.authorization_url))
    await victim.open(asked.authorization_url)
    before = tree(tmp_path)
    page = await victim.post(
        asked.authorization_url, [CONTINUE, ("csrf", mallorys_field)], initiator=await open_evil_site(victim)
    )
    assert_error_page(page, Code.OWNER_BINDING_FAILED, "formElsewhere")
    assert before == tree(tmp_path)
    assert [] == [name for name in victim.cookies if name.startswith("oab-")]


@pytest.mark.case("87")
@pytest.mark.parametrize("decision", ["continue", "cancel"])
@pytest.mark.parametrize(
    "headers",
    [
        {"origin": EVIL},
        {"origin": "null"},
        {"origin": BASE + "/"},
        {"origin": BASE.replace("http:", "https:")},
        {"origin": "http://127.0.0.1"},
        {"origin": "http://127.0.0.1:8421"},
        {"origin": BASE, "sec-fetch-site": "cross-site"},
        {"origin": BASE, "sec-fetch-site": "same-site"},
        {"origin": BASE, "sec-fetch-site": "none"},
    ],
)
async def test_a_form_with_everything_right_but_its_origin_is_refused(
    filed: Harness, tmp_path: Path, headers: dict[str, str], decision: str
) -> None:
    asked = await filed.ask_link()
    person = filed.browser()
    await person.open(asked.authorization_url)
    before = tree(tmp_path)
    assert_error_page(
        await person.submit({"decision": decision}, headers=headers), Code.OWNER_BINDING_FAILED, "formElsewhere"
    )
    assert before == tree(tmp_path)
    await person.open(asked.authorization_url)
    assert 200 == (await person.submit()).status, "the person's own click still works"


@pytest.mark.case("87")
async def test_a_form_without_an_origin_or_site_is_refused(filed: Harness, tmp_path: Path) -> None:
    """Not a browser of this decade, and not a person."""
    asked = await filed.ask_link()
    person = filed.browser()
    page = await person.open(asked.authorization_url)
    before = tree(tmp_path)
    answer = await kit.ask(
        filed.broker.asgi.app,
        asked.authorization_url.removeprefix(BASE),
        method="POST",
        host=HOST,
        headers=[
            ("cookie", f"oab={person.cookies['oab'].value}"),
            ("content-type", "application/x-www-form-urlencoded"),
        ],
        chunks=[f"decision=continue&csrf={field_of(page)}".encode()],
    )
    assert (403, "ownerBindingFailed") == (answer.status, answer.json["code"])
    assert before == tree(tmp_path)


@pytest.mark.case("87")
@pytest.mark.parametrize(
    "spoil", ["missing", "empty", "wrong", "twice", "other ticket", "other browser", "no cookie", "tossed cookie"]
)
@pytest.mark.parametrize("decision", ["continue", "cancel"])
async def test_a_field_that_is_not_this_browsers_and_this_tickets_is_refused(
    filed: Harness, tmp_path: Path, spoil: str, decision: str
) -> None:
    asked, other = await filed.ask_link(scopes=["read"]), await filed.ask_link(scopes=["write"])
    person = filed.browser()
    others_field = field_of(await person.open(other.authorization_url))
    strangers_field = field_of(await filed.browser().open(asked.authorization_url))
    field = field_of(await person.open(asked.authorization_url))
    if spoil == "no cookie":
        person.cookies.drop("oab")
    elif spoil == "tossed cookie":
        person.cookies.set("oab", "t" * 43, "127.0.0.1")
    sent = {
        "missing": [],
        "empty": [("csrf", "")],
        "wrong": [("csrf", "w" * 43)],
        "twice": [("csrf", field), ("csrf", field)],
        "other ticket": [("csrf", others_field)],
        "other browser": [("csrf", strangers_field)],
    }.get(spoil, [("csrf", field)])
    before = tree(tmp_path)
    page = await person.submit([("decision", decision), *sent])
    assert_error_page(page, Code.OWNER_BINDING_FAILED, "noCookie" if spoil == "no cookie" else "formOutdated")
    assert before == tree(tmp_path)


@pytest.mark.case("87")
@pytest.mark.parametrize("decision", [[], ["continue", "cancel"], ["CONTINUE"], [""], ["delete"]])
async def test_a_button_that_does_not_exist_does_nothing(filed: Harness, tmp_path: Path, decision: list[str]) -> None:
    asked = await filed.ask_link()
    person = filed.browser()
    field = field_of(await person.open(asked.authorization_url))
    before = tree(tmp_path)
    page = await person.submit([("csrf", field), *(("decision", each) for each in decision)])
    assert_error_page(page, Code.REQUEST_INVALID)
    assert before == tree(tmp_path)


@pytest.mark.case("87")
async def test_no_page_of_ours_can_be_framed_or_run_a_script_or_be_posted_elsewhere(harness: Harness) -> None:
    asked = await harness.ask_link()
    person = harness.browser()
    await harness.connect(asked, browser=person)
    ours = [page for page in person.history if page.url.startswith(BASE)]
    assert {"/connect", "/oauth", "/connected"} <= {"/" + page.url.split("/")[3] for page in ours}
    for page in ours:
        policy = page.header("content-security-policy")
        for part in ("default-src 'none'", "frame-ancestors 'none'", "form-action 'self'", "base-uri 'none'"):
            assert part in policy
        assert "unsafe" not in policy
        assert "script-src" not in policy
        assert "DENY" == page.header("x-frame-options")
        assert "<script" not in page.source.lower()
        assert "no-store" == page.header("cache-control")


@pytest.mark.case("87")
async def test_the_form_page_sends_its_origin_to_itself_only_and_other_pages_send_none(harness: Harness) -> None:
    """With `no-referrer` browsers would send `Origin: null` with our own form; elsewhere nothing may travel."""
    asked = await harness.ask_link()
    person = harness.browser()
    assert "same-origin" == (await person.open(asked.authorization_url)).header("referrer-policy")
    assert "no-referrer" == (await person.submit()).header("referrer-policy")


@pytest.mark.case("87")
async def test_a_session_cookie_is_for_this_host_this_browser_and_no_script(harness: Harness) -> None:
    person = harness.browser()
    await person.open((await harness.ask_link()).authorization_url)
    page = await person.submit()
    given = [value for name, value in person.history[0].headers + page.headers if name.lower() == "set-cookie"]
    assert 2 == len(given)
    for cookie in given:
        assert {"Path=/", "HttpOnly", "SameSite=Lax"} <= set(cookie.split("; "))
        assert "domain" not in cookie.lower()


def assert_leads_nowhere_else(page: Page) -> None:
    reported = page.source + "".join(f"{name}: {value}\n" for name, value in page.headers)
    assert "evil" not in reported
    assert "alert(1)" not in reported
    assert page.location is None or page.location.startswith(f"{BASE}/")


@pytest.mark.case("86")
@pytest.mark.parametrize("way", FOREIGN_TARGETS)
async def test_no_parameter_leads_anywhere(harness: Harness, way: str) -> None:
    """On every step of the way, under every name that others use."""
    asked = await harness.ask_link()
    person = harness.browser()
    more = "&".join(f"{name}={quote(way, safe='')}" for name in REDIRECT_PARAMETERS)
    assert_leads_nowhere_else(await person.open(f"{asked.authorization_url}?{more}"))
    page = await person.submit()
    assert "evil" not in page.source
    assert page.next_url is not None
    assert page.next_url.startswith(harness.idp.url("/authorize?"))
    callback = await harness.idp.agree(page.next_url, "alice", browser=person)
    done = await person.follow(f"{callback}&{more}")
    assert (303, f"{BASE}/connected/mail") == (done.status, done.location)
    assert_leads_nowhere_else(done)
    there = await person.open(f"{BASE}/connected/mail?{more}")
    assert 200 == there.status
    assert_leads_nowhere_else(there)
    declined = await harness.ask_link("files")
    await person.open(declined.authorization_url)
    await person.submit({"decision": "cancel"})
    there = await person.open(f"{BASE}/declined/files?{more}")
    assert 200 == there.status
    assert_leads_nowhere_else(there)


@pytest.mark.case("86")
@pytest.mark.parametrize(
    "path",
    [
        "//evil.example",
        "//evil.example/connected/mail",
        "/\\evil.example",
        "/connected/mail/",
        "/connected/mail//evil.example",
        "/connected//evil.example",
        "/connected/..//evil.example",
        "/connected/evil.example",
        "/oauth/callback/mail/",
        "/connect/",
        "/https://evil.example",
    ],
)
async def test_no_path_is_turned_into_a_redirect(harness: Harness, path: str) -> None:
    """No slash is fixed, nothing is guessed: a path is ours or it is nothing."""
    answer = await kit.ask(harness.broker.asgi.app, path, host=HOST, headers=[("accept", "text/html")])
    assert 404 == answer.status
    assert "location" not in answer.headers
    assert "evil" not in answer.text
