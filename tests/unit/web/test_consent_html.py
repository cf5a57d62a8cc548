"""What people see: the right words, safe words, and nothing that runs, loads or leads elsewhere."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta, timezone

import pytest

from oauthbroker.authorization.page_results import AlreadyConnected, AuthorizationEnd
from oauthbroker.core.errors import BrokerError, Code, Locale
from oauthbroker.model.apps import App, Owner
from oauthbroker.model.local_turn import AGENT, SUBJECT, Asker
from oauthbroker.model.token_results import DevicePrompt
from oauthbroker.records.open_facts import Candidate
from oauthbroker.web.gate.error_responses import error_page
from oauthbroker.web.html.consent_html import render_connect, render_credential, render_device, render_leaving
from oauthbroker.web.html.ending_html import Outcome, render_choice, render_done, render_outcome
from oauthbroker.web.html.rendering import Page
from oauthbroker.web.middleware.security_headers import stylesheet
from oauthbroker.web.words import PAGES
from tests.kit.samples import app_with
from tests.unit.web.kit import HOSTILE_TEXTS, NOW, Document, a_view, tags_and_attributes

URL = "https://slack.com/oauth/v2/authorize?client_id=1&scope=a%20b&state=xyz"
OUTCOMES: list[Outcome] = ["connected", "denied", "failed", "expired", "missing"]


def every_page() -> list[Page]:
    pages = [page for locale in ("en", "ko") for page in (
        render_connect(a_view(), locale), render_leaving(URL, "slack", "slack.com", locale),
        *(render_outcome(outcome, None, "Team chat", locale, reference="r1") for outcome in OUTCOMES),
    )]  # fmt: skip
    assert len(pages) == 14
    return pages


def test_the_connect_page_says_who_asks_for_what_for_whom_and_where_it_leads():
    page = Document(render_connect(a_view(), "en").html)
    rows = dict(zip([e.text for e in page.all("dt")], [e.text for e in page.all("dd")], strict=True))
    assert "planner is asking for access to Team chat" in page.text
    assert {"For", "Sign in at"} == rows.keys(), "nothing twice"
    assert rows["For"].startswith("slack:user:T111:U1 Personal")
    assert rows["Sign in at"] == "slack.com Slack"
    assert "The link expires in 10 min (10:10 UTC)" in page.text
    assert ["Send messages chat:write", "See the list of public channels channels:read"] == [
        e.text for e in page.all("li")
    ]
    assert "Only continue if you started this yourself" in page.text


def test_a_title_is_shown_as_the_runtimes_word_beside_the_name_that_it_stands_for():
    page = Document(render_connect(a_view(agent_title="Travel planner", subject_title="Kim"), "en").html)
    rows = dict(zip([e.text for e in page.all("dt")], [e.text for e in page.all("dd")], strict=True))
    assert "Travel planner planner (named by the runtime)" == rows["Who asks"]
    assert rows["For"].startswith("Kim slack:user:T111:U1 (named by the runtime) Personal")
    assert "Travel planner is asking for access" in page.text


OWN = replace(app_with(title="Team chat"), owner=Owner(binding="localOperator"))


@pytest.mark.parametrize(
    ("app", "agent", "subject", "asker"),
    [
        (OWN, AGENT, SUBJECT, "person"),
        (OWN, AGENT, "slack:user:T111:U1", "program"),  # a demo on this machine
        (
            OWN,
            "host",
            SUBJECT,
            "program",
        ),  # a program with a broker of its own: `status` and `logout` do not know of it
        (app_with(title="Team chat"), AGENT, SUBJECT, "agent"),  # a runtime that names its user so
    ],
)
@pytest.mark.parametrize("locale", ["en", "ko"])
def test_a_person_who_connects_for_themselves_or_for_a_program_reads_of_no_agent(
    app: App, agent: str, subject: str, locale: Locale, asker: Asker
) -> None:
    is_own = asker == "person"
    view, text = a_view(app=app, subject=subject, agent_name=agent), PAGES[locale]
    prompt = DevicePrompt(
        verification_uri="https://slack.com/device", verification_uri_complete=None, user_code="AB-CD", interval=5
    )
    for page in (render_connect(view, locale), render_credential(view, locale), render_device(view, prompt, locale)):
        shown = Document(page.html)
        lead = next(e.text for e in shown.all("p") if e.attributes.get("class") == "lead")
        assert is_own is ("oauthbroker" in lead)
        assert is_own is (agent not in lead)
        assert is_own is (shown.all("dd")[0].text == text.subject_own)
    device = Document(render_device(view, prompt, locale).html).text
    assert is_own is (text.device_warning_own in device)
    assert is_own is (text.device_warning not in device)
    ending = AuthorizationEnd(app=app, asker=asker)
    choice = Document(render_choice(ending, "/choose", "", locale).html).text
    assert is_own is (text.choice_hint_own in choice)
    assert (asker != "agent") is (text.choice_lead_own.format(app="Team chat") in choice)
    again = Document(error_page(AlreadyConnected("Team chat", asker), locale).html).text
    assert is_own is (text.connected_lead_own in again)
    last = Document(render_done(ending, "", locale).html).text
    assert is_own is (text.connected_lead_own in last)
    assert is_own is (text.done_hint_own in last)
    credential = Document(render_credential(view, locale).html).text
    for name, shown_there in (("choice_hint", choice), ("connected_lead", last), ("done_hint", last)):
        own, program, general = (getattr(text, f"{name}{end}") for end in ("_own", "_program", ""))
        said = {"person": own in shown_there, "program": program in shown_there, "agent": general in shown_there}
        assert [asker] == [each for each, is_said in said.items() if is_said]
    assert (asker == "program") is (text.connected_lead_program in again)
    if asker != "agent":
        written = choice + last + again + credential
        assert not any(word in written.lower() for word in ("agent", "conversation", "에이전트", "대화"))


def test_the_connect_page_offers_one_form_with_two_answers_and_the_token():
    page = Document(render_connect(a_view(), "en").html)
    assert page.one("form").attributes == {"method": "post", "autocomplete": "off"}  # no action: to this very page
    assert page.one("input").attributes == {"type": "hidden", "name": "csrf", "value": "c" * 43}
    answers = [(e.attributes["name"], e.attributes["value"], e.text) for e in page.all("button")]
    assert answers == [("decision", "continue", "Continue to Slack"), ("decision", "cancel", "Cancel")]


def test_a_shared_connection_is_called_shared():
    page = Document(render_connect(a_view(subject_mode="global"), "en").html)
    assert "Shared: used for everyone" in page.text
    assert "Personal" not in page.text


def test_without_scopes_the_page_says_so_and_with_very_many_it_counts_the_rest():
    assert "Only what the service gives every app" in Document(render_connect(a_view(scopes=()), "en").html).text
    page = Document(render_connect(a_view(scopes=tuple(f"s{n}" for n in range(10_000))), "en").html)
    assert len(page.all("li")) == 101
    assert page.all("li")[-1].text == "and 9900 more"


@pytest.mark.parametrize(
    "left, said", [(600, "in 10 min"), (601, "in 11 min"), (59, "in 1 min"), (0, "in 0 min"), (-90, "in 0 min")]
)
def test_the_time_left_is_reported_in_whole_minutes(left, said):
    page = render_connect(a_view(expires_at=NOW + timedelta(seconds=left)), "en")
    assert said in Document(page.html).text


def test_the_expiry_is_shown_in_utc_from_any_zone():
    elsewhere = (NOW + timedelta(minutes=10)).astimezone(timezone(timedelta(hours=9)))
    page = Document(render_connect(a_view(expires_at=elsewhere), "en").html)
    assert page.one("time").attributes["datetime"] == "2026-11-21T10:10:00Z"
    assert "10:10 UTC" in page.one("time").text


@pytest.mark.case("88")
@pytest.mark.parametrize("payload", HOSTILE_TEXTS)
@pytest.mark.parametrize("locale", ["en", "ko"])
def test_hostile_names_stay_text(payload, locale):
    """Same elements as with harmless names, none of them new, on every page a name can reach."""
    named = dict.fromkeys(("agent_name", "app_name", "subject", "provider", "agent_title", "subject_title"), payload)
    view = a_view(scopes=(payload,), **named)
    calm = a_view(provider="x", scopes=("y",), agent_title="x", subject_title="x")
    pairs = [
        (render_connect(view, locale), render_connect(calm, locale)),
        (render_leaving(URL, view.asked.app.provider, view.provider_host, locale), render_leaving(URL, calm.asked.app.provider, calm.provider_host, locale)),
        (render_outcome("connected", None, payload, locale), render_outcome("connected", None, "x", locale)),
        (render_outcome("failed", None, None, locale, reference=payload), render_outcome("failed", None, None, locale, reference="x")),
    ]  # fmt: skip
    for hostile, harmless in pairs:
        assert tags_and_attributes(hostile) == tags_and_attributes(harmless)
        assert not {"\u202e", "\u2066", "\x00", "\x1b"} & set(hostile.html)
        hostile.response()  # encodes


@pytest.mark.case("88")
def test_very_long_names_are_cut():
    long = "n" * 10_000
    page = Document(render_connect(a_view(agent_name=long, app_name=long, subject=long, scopes=(long,)), "en").html)
    assert max(len(word) for word in page.text.split()) <= 200
    assert page.text.count("\u2026") >= 5
    assert len(page.one("title").text) < 120


@pytest.mark.case("88")
def test_the_providers_own_words_have_no_place_on_any_page():
    """An outcome takes a code and an app's name: there is no argument through which error_description could come."""
    for code in Code:
        page = Document(render_outcome("failed", code, "Team chat", "en").html)
        assert BrokerError(code).message("en") in page.text


@pytest.mark.case("88")
@pytest.mark.parametrize("page", every_page())
def test_no_page_runs_loads_or_styles_anything_inline(page):
    document = Document(page.html)
    assert not {"script", "img", "iframe", "link", "object", "base", "embed"} & {e.tag for e in document.elements}
    for element in document.elements:
        assert not [name for name in element.attributes if name.startswith("on") or name in {"style", "src", "action"}]
    assert document.one("style").text == stylesheet()


@pytest.mark.parametrize("page", every_page())
def test_every_page_is_whole_html_with_a_language_a_title_one_heading_and_landmarks(page):
    document = Document(page.html)
    assert page.html.startswith("<!doctype html>\n")
    assert document.one("html").attributes["lang"] == page.locale
    assert document.one("title").text.strip()
    assert document.one("h1").text.strip()
    assert document.one("main")
    assert [e for e in document.all("meta") if e.attributes.get("name") == "viewport"]
    assert document.one("svg").attributes["aria-hidden"] == "true"
    ids = {e.attributes["id"] for e in document.elements if "id" in e.attributes}
    assert {e.attributes["aria-labelledby"] for e in document.elements if "aria-labelledby" in e.attributes} <= ids
    assert page.html.isprintable() or "\n" in page.html


def test_the_interstitial_leads_exactly_to_the_given_url_twice_and_nowhere_else():
    page = render_leaving(URL, "slack", "slack.com", "en")
    document = Document(page.html)
    assert document.one("a").attributes["href"] == URL
    refresh = [e.attributes["content"] for e in document.all("meta") if e.attributes.get("http-equiv") == "refresh"]
    assert refresh == [f"0; url={URL}"]
    assert page.response().headers["referrer-policy"] == "no-referrer"


@pytest.mark.case("86", "88")
@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)", "data:text/html,x", "//evil.example/", "/relative", "", "https:", "https://", "http:///x",
        "https:\\\\evil.example", "https:/evil.example", "https://good.example\\@evil.example/", "ftp://x.example/",
        "https://user:pw@evil.example/", "https://good.example@evil.example/", "https://x.example/\r\nSet-Cookie: a=b",
        'https://x.example/"><script>', "https://x.example/'", "ht\ttps://x.example/", " https://x.example/", "https://x.example/ y",
        "https://x.example/\x00", "https://\u0435xample.com/", "HTTPS://x.example/", "https://x.example/`", "https://[::1/",
    ],
)  # fmt: skip
def test_a_url_that_no_browser_should_be_given_is_refused(url):
    with pytest.raises(BrokerError) as caught:
        render_leaving(url, "slack", "slack.com", "en")
    assert caught.value.code is Code.APP_MISCONFIGURED
    assert caught.value.__context__ is None
    assert "evil" not in str(caught.value)


@pytest.mark.parametrize(
    "outcome, code, status",
    [
        ("connected", None, 200),
        ("denied", None, 200),
        ("denied", Code.PROVIDER_DENIED, 403),
        ("expired", None, 400),
        ("expired", Code.STATE_UNKNOWN, 400),
        ("expired", Code.STATE_USED, 409),
        ("failed", None, 500),
        ("failed", Code.OWNER_BINDING_FAILED, 403),
        ("missing", None, 404),
    ],
)
def test_an_ending_has_the_status_of_its_code(outcome, code, status):
    assert render_outcome(outcome, code).response().status_code == status


@pytest.mark.parametrize("code", list(Code))
def test_a_failure_is_reported_in_the_readers_language(code):
    said = Document(render_outcome("failed", code, None, "ko").html)
    assert code.sentence("ko").format(mode="?", fact="?") in said.text
    assert said.one("html").attributes["lang"] == "ko"


def test_the_reference_is_shown_where_help_may_be_needed_and_nowhere_else():
    shown = [o for o in OUTCOMES if "ref-1" in render_outcome(o, None, "x", "en", reference="ref-1").html]
    assert shown == ["failed"]


@pytest.mark.case("92")
def test_neither_the_form_token_nor_the_page_shows_in_a_repr():
    view = a_view(csrf_token="canary-csrf-0123456789")
    assert "canary" not in repr(view)
    assert "canary" not in repr(render_connect(view, "en"))


def test_cookies_are_set_as_given_each_on_its_own_line():
    response = render_connect(a_view(), "en").response(set_cookies=["a=1; Path=/", "b=2; Path=/"])
    assert [value for name, value in response.raw_headers if name == b"set-cookie"] == [b"a=1; Path=/", b"b=2; Path=/"]


def test_a_choice_is_a_labelled_group_of_radio_buttons_with_none_selected():
    sites = tuple(Candidate(label=text, facts={"id": str(number)}) for number, text in enumerate(HOSTILE_TEXTS))
    ending = AuthorizationEnd(app=a_view().asked.app, candidates=sites, locator="L" * 22)
    for locale in ("en", "ko"):
        page = Document(render_choice(ending, "https://broker.example/next/x/choice", "token", locale).html)
        radios = [each for each in page.all("input") if each.attributes.get("type") == "radio"]
        assert [str(number) for number in range(len(sites))] == [each.attributes["value"] for each in radios]
        assert all("checked" not in each.attributes and "required" in each.attributes for each in radios)
        assert page.one("legend").text
        assert len(radios) == len(page.all("label"))
