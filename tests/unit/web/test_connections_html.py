"""People's own pages: foreign names are only ever text (case 88), moments are told shortly, and nothing runs or loads."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker.admin.open_circuits import Seen
from oauthbroker.admin.overview import AppState, AuditEntries
from oauthbroker.audit.lines import AuditLine
from oauthbroker.core.clock import printed, to_iso
from oauthbroker.core.errors import Code, Locale
from oauthbroker.core.secret import Secret
from oauthbroker.events.dead_letters import DeadLetter
from oauthbroker.events.port import QueueDepth
from oauthbroker.grants.connections import GrantConnection, Service, WaitingRequest
from oauthbroker.grants.grant_pages import Found, GrantFilter
from oauthbroker.model.apps import App, Client, Endpoints, Owner, Redirect
from oauthbroker.records.auth_session import Claim
from oauthbroker.records.grant_view import GrantView
from oauthbroker.records.use import GrantUse
from oauthbroker.refresh.circuit import OpenCircuit
from oauthbroker.web.html import admin_html as admin
from oauthbroker.web.html.connections_html import (
    UserLayout,
    render_connections,
    render_disconnect,
    render_ending,
    render_invitation,
)
from oauthbroker.web.html.readable_times import relative_time, time_element
from oauthbroker.web.html.rendering import Page
from oauthbroker.web.middleware.security_headers import stylesheet
from oauthbroker.web.words import CONNECTIONS
from tests.unit.records import kit
from tests.unit.web.kit import HOSTILE_TEXTS, NOW, Document, tags_and_attributes

GRANT = "sha256:" + "0" * 64
LOCALES: tuple[Locale, ...] = ("en", "ko")
LONG = "W" * 50_000


def an_app(name: str) -> App:
    return App(
        name=name,
        provider=name,
        flow="authorizationCode",
        subject_mode="global",
        client=Client("id", Secret("not a real secret")),
        endpoints=Endpoints(authorization_url="https://id.example/authorize"),
        scopes=(name,),
        redirect=Redirect("/oauth/callback/x", "https://broker.example"),
        owner=Owner(),
        title=name,
    )


def a_view(word: str) -> GrantView:
    view = GrantView.of(kit.grant(), None, NOW)
    return replace(
        view, subject=word, scopes=(word,), app=word, provider=word, account=word + "3", authorized_by=word, agent=word, agent_title=word,
        health="ending", until=NOW + timedelta(hours=3), unsent=1, revocation_pending=True,
    )  # fmt: skip


def a_connection(word: str) -> GrantConnection:
    use = GrantUse(grant=GRANT, first_agent=word, first_at=NOW - timedelta(days=3), agent=word + "2", tool=word, at=NOW)
    return GrantConnection(app=an_app(word), grant=a_view(word), used=use, can_switch=True, can_refresh=True)


def every_page(word: str, locale: Locale = "en") -> list[Page]:
    """All pages, with `word` wherever a name from elsewhere has a place."""
    use = GrantUse(grant=GRANT, first_agent=word, first_at=NOW - timedelta(days=3), agent=word + "2", tool=word, at=NOW)
    it = a_connection(word)
    request = WaitingRequest(
        app=an_app(word),
        agent=word,
        scopes=(word,),
        link="https://broker.example/connect/x",
        expires_at=NOW,
        agent_title=word,
    )
    mine = UserLayout(
        locale=locale, now=NOW, url=lambda path: "https://broker.example" + path, token=lambda _: "c" * 43
    )
    layout = admin.AdminLayout(locale=locale, now=NOW, url=mine.url, token=mine.token, done=word)
    row = a_view(word)
    circuit = OpenCircuit(app=word, grant=GRANT, code=Code.PROVIDER_UNREACHABLE, seconds_left=12.3, failures=3)
    state = AppState(
        name=word,
        app=an_app(word),
        health="warn",
        counts=Counter({"again": 1}),
        circuits=(Seen("refreshes", circuit),),
        failure=(NOW, word),
    )
    letter = DeadLetter(id=word, agent=word, swarm=word, instance=word, attempts=5, type=word, app=word, made=NOW)
    session = kit.session(app=word, subject=word, claim=Claim("me", NOW))
    waiting = replace(session, resume=replace(session.resume, agent_name=word))
    line = AuditLine(
        seq=1, at=to_iso(NOW), type=word, fields={word: word, "agent": word, "grant": "grant-x"}, genuine=False
    )
    return [
        render_connections(mine, [Service(an_app(word), it, (request,))], done=word),
        render_disconnect(mine, it),
        admin.render_login(layout, from_here=True),
        admin.render_overview(layout, [state], failure=True),
        admin.render_grants(
            layout,
            Found(rows=(row,), count=101, page=2, pages=3, goes_on="0" * 32 + "." + "0" * 64),
            GrantFilter(app=word, health=word, text=word, page=2),
            [word],
        ),
        admin.render_grant(layout, row, use, word),
        admin.render_revoke(layout, row),
        admin.render_waiting(layout, [waiting]),
        admin.render_queues(layout, [QueueDepth(agent=word, waiting=1, leased=2, dead=3, oldest=NOW)], [letter]),
        admin.render_drop(layout, letter),
        admin.render_circuits(layout, [Seen("refreshes", circuit, 2)]),
        admin.render_audit(
            layout,
            [line],
            {"grant-x": row},
            AuditEntries(app=word, type=word, grant=word, since=NOW, until=NOW),
            apps=[word],
        ),
    ]


def still_pages(locale: Locale) -> list[Page]:
    """Those on which nothing from elsewhere has a place."""
    mine = UserLayout(locale=locale, now=NOW, url=lambda path: path, token=lambda _: "c" * 43)
    layout = admin.AdminLayout(locale=locale, now=NOW, url=mine.url, token=mine.token)
    return [
        render_invitation(mine),
        render_ending("unopened", locale),
        render_ending("closed", locale),
        render_ending("left", locale),
        admin.render_left(layout, by_key=True),
        admin.render_left(layout, by_key=False),
        admin.render_overview(layout, [], failure=False),
        admin.render_grants(layout, Found(rows=(), count=0, page=1, pages=1, goes_on=None), GrantFilter(), []),
        admin.render_waiting(layout, []),
        admin.render_queues(layout, [], []),
        admin.render_circuits(layout, []),
        admin.render_audit(layout, [], {}, AuditEntries(), apps=[]),
        render_connections(mine, []),
    ]


@pytest.mark.parametrize(("locale", "said"), [("en", "imported"), ("ko", "가져옴")])
def test_an_imported_connection_says_so_where_no_agent_asked_for_it(locale: Locale, said: str) -> None:
    it = a_connection("word")
    grant = replace(it.grant, agent=None, agent_title=None)
    layout = UserLayout(locale=locale, now=NOW, url=lambda path: path, token=lambda _: "c" * 43)
    taken_over, lost = (
        render_connections(layout, [Service(it.app, replace(it, grant=replace(grant, imported=imported)), ())])
        for imported in (True, False)
    )
    assert f"<dd>{said}</dd>" in taken_over.html
    assert f"<dd>{CONNECTIONS[locale].unknown_agent}</dd>" in lost.html


@pytest.mark.sample(12)
@pytest.mark.case("88")
@pytest.mark.parametrize("payload", [*HOSTILE_TEXTS, LONG])
@pytest.mark.parametrize("locale", LOCALES)
def test_a_name_from_hell_changes_no_pages_structure(payload: str, locale: Locale) -> None:
    """Element by element and attribute by attribute the same page as with a plain word in its place."""
    for spoilt, plain in zip(every_page(payload, locale), every_page("plain", locale), strict=True):
        assert tags_and_attributes(plain) == tags_and_attributes(spoilt)
        document = Document(spoilt.html)
        for element in document.elements:
            for name, value in element.attributes.items():
                assert not name.startswith("on")
                assert name not in {"href", "action"} or str(value).startswith(("https://broker.example/", "#main"))


@pytest.mark.case("88")
@pytest.mark.parametrize(
    "page", [each for locale in LOCALES for each in (*every_page("x", locale), *still_pages(locale))]
)
def test_no_page_of_people_runs_loads_or_styles_anything_inline(page: Page) -> None:
    document = Document(page.html)
    assert not {"script", "img", "iframe", "link", "object", "embed", "base"} & {e.tag for e in document.elements}
    assert [] == [e for e in document.elements if "style" in e.attributes or "src" in e.attributes]
    assert stylesheet() == document.one("style").text
    ids = [e.attributes["id"] for e in document.elements if "id" in e.attributes]
    assert len(ids) == len(set(ids)), "an id twice"
    named = {e.attributes.get("for") for e in document.all("label")}
    fields = [e for e in (*document.all("input"), *document.all("select")) if e.attributes.get("type") != "hidden"]
    assert {e.attributes["id"] for e in fields} <= named, "a field without a label"
    assert page.locale == document.one("html").attributes["lang"]
    assert 1 == len(document.all("h1"))
    assert 1 == len(document.all("main"))
    for head in document.all("th"):
        assert head.attributes["scope"] in {"col", "row"}


def test_a_login_that_failed_says_so_aloud() -> None:
    layout = admin.AdminLayout(locale="en", now=NOW, url=lambda path: path, token=lambda _: "c" * 43)
    page = admin.render_login(layout, from_here=False, wrong=layout.text.login_wrong, status=401)
    document = Document(page.html)
    (said,) = [e for e in document.elements if e.attributes.get("role") == "alert"]
    assert (401, layout.text.login_wrong) == (page.status, said.text)
    assert "password" in [e.attributes.get("type") for e in document.all("input")]


@pytest.mark.parametrize("word", ["revoked", "cancelled", "retried", "dropped", "nothing"])
def test_an_action_is_reported_in_the_pages_own_words(word: str) -> None:
    layout = admin.AdminLayout(locale="en", now=NOW, url=lambda path: path, token=lambda _: "c" * 43, done=word)
    (said,) = [
        e for e in Document(admin.render_waiting(layout, []).html).elements if e.attributes.get("role") == "status"
    ]
    assert said.text == getattr(layout.text, f"done_{word}")


@pytest.mark.parametrize("word", ["", "x", "__class__", "revoked ", "<b>"])
def test_an_unknown_action_is_not_reported(word: str) -> None:
    layout = admin.AdminLayout(locale="en", now=NOW, url=lambda path: path, token=lambda _: "c" * 43, done=word)
    page = admin.render_waiting(layout, [])
    assert not [e for e in Document(page.html).elements if e.attributes.get("role") == "status"]


@pytest.mark.parametrize(
    ("seconds", "english", "korean"),
    [
        (0, "just now", "방금"),
        (59, "just now", "방금"),
        (60, "1 min ago", "1분 전"),
        (7199, "119 min ago", "119분 전"),
        (7200, "2 h ago", "2시간 전"),
        (172_799, "47 h ago", "47시간 전"),
        (172_800, "2 days ago", "2일 전"),
        (-1, "in a moment", "잠시 후"),
        (-61, "in 1 min", "1분 후"),
        (-7200, "in 2 h", "2시간 후"),
        (-999_999, "in 11 days", "11일 후"),
    ],
)
def test_moments_are_told_by_how_far_they_are(seconds: int, english: str, korean: str) -> None:
    moment = NOW - timedelta(seconds=seconds)
    assert [english, korean] == [relative_time(moment, NOW, CONNECTIONS[locale]) for locale in LOCALES]


@given(st.integers(-(10**9), 10**9), st.sampled_from(LOCALES))
def test_every_moment_can_be_told_and_is_there_exactly(seconds: int, locale: Locale) -> None:
    moment = NOW + timedelta(seconds=seconds)
    element = Document(f"<p>{time_element(moment, NOW, CONNECTIONS[locale])}</p>").one("time")
    assert printed(moment) == element.attributes["datetime"]
    assert "UTC" in str(element.attributes["title"])
    assert "{" not in element.text
