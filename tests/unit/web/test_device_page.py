"""The page of a device code: the code to type, where to type it, its purpose, and nothing that runs or loads."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import segno
from hypothesis import given, settings
from hypothesis import strategies as st

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.token_results import DevicePrompt
from oauthbroker.web.html.consent_html import qr_svg, render_device
from oauthbroker.web.html.rendering import Page
from oauthbroker.web.middleware.security_headers import stylesheet
from tests.unit.web.kit import HOSTILE_TEXTS, Document, a_view, tags_and_attributes

URI = "https://login.example.com/device"
PROMPT = DevicePrompt(
    verification_uri=URI, verification_uri_complete=f"{URI}?user_code=WDJB-MJHT", user_code="WDJB-MJHT", interval=5
)
PLAIN = replace(PROMPT, verification_uri_complete=None)
VIEW = a_view(provider="oidc", provider_host="login.example.com")
BOTH = pytest.mark.parametrize("page", [render_device(VIEW, PROMPT, "en"), render_device(VIEW, PLAIN, "ko")], ids=str)


def test_the_code_the_address_and_the_warning_are_what_one_reads():
    page = Document(render_device(VIEW, PROMPT, "en").html)
    assert "WDJB-MJHT" == page.one("strong").text
    assert URI in page.text
    assert "Only continue if you started this yourself" in page.text
    assert page.text.index("Only continue") < page.text.index("WDJB-MJHT")  # first the warning, then the code
    assert "planner is asking for access to Team chat" in page.text
    assert "The code expires in 10 min (10:10 UTC)" in page.text
    assert 2 == len(page.all("li"))


def test_button_and_qr_code_lead_to_where_the_code_is_filled_in():
    page = render_device(VIEW, PROMPT, "en")
    link = Document(page.html).all("a")[0].attributes
    assert {"class": "button primary", "href": PROMPT.verification_uri_complete, "rel": "noreferrer"} == link
    assert str(qr_svg(f"{URI}?user_code=WDJB-MJHT")) in page.html
    assert "shows the same code before you agree" in page.html


def test_without_such_an_address_the_person_is_told_to_type():
    page = render_device(VIEW, PLAIN, "en")
    assert URI == Document(page.html).all("a")[0].attributes["href"]
    assert str(qr_svg(URI)) in page.html
    assert "enter the code when asked" in page.html


def test_the_one_form_says_no_and_there_is_nothing_to_say_yes_to_here():
    page = Document(render_device(VIEW, PROMPT, "en").html)
    assert {"type": "hidden", "name": "csrf", "value": "c" * 43} == page.one("input").attributes
    [button] = page.all("button")
    assert ("decision", "cancel") == (button.attributes["name"], button.attributes["value"])


@BOTH
def test_a_link_looks_again_at_the_same_address_and_nothing_moves_by_itself(page: Page):
    """WCAG 2.2.1: who reads slowly, or listens, is not thrown back to the top."""
    document = Document(page.html)
    _, again = document.all("a")
    assert {"class": "button secondary", "href": ""} == again.attributes
    assert not [e for e in document.all("meta") if "http-equiv" in e.attributes]


@pytest.mark.case("88")
@BOTH
def test_it_runs_loads_and_styles_nothing_inline(page: Page):
    document = Document(page.html)
    assert not {"script", "img", "iframe", "link", "object", "base", "embed"} & {e.tag for e in document.elements}
    for element in document.elements:
        assert not [name for name in element.attributes if name.startswith("on") or name in {"style", "src", "action"}]
    assert document.one("style").text == stylesheet()


@BOTH
def test_it_is_whole_accessible_html(page: Page):
    document = Document(page.html)
    assert page.locale == document.one("html").attributes["lang"]
    assert document.one("h1").text.strip()
    assert document.one("title").text.strip()
    hidden = [e for e in document.elements if "aria-hidden" in e.attributes]
    assert ["svg", "div"] == [e.tag for e in hidden]  # the mark and the QR code: the words beside them say it
    assert "qr" == hidden[1].attributes["class"]
    ids = {e.attributes["id"] for e in document.elements if "id" in e.attributes}
    assert {e.attributes["aria-labelledby"] for e in document.elements if "aria-labelledby" in e.attributes} <= ids
    assert ["status"] == [e.attributes["role"] for e in document.elements if "role" in e.attributes]
    assert "same-origin" == page.referrer_policy  # its form is posted to itself


@pytest.mark.case("88")
@pytest.mark.parametrize("payload", HOSTILE_TEXTS)
@pytest.mark.parametrize("locale", ["en", "ko"])
def test_hostile_names_stay_text(payload, locale):
    view = a_view(agent_name=payload, app_name=payload, subject=payload, scopes=(payload,), provider=payload)
    hostile = render_device(view, PROMPT, locale)
    assert tags_and_attributes(hostile) == tags_and_attributes(
        render_device(a_view(provider="x", scopes=("y",)), PROMPT, locale)
    )
    assert not {"\u202e", "\u2066", "\x00", "\x1b"} & set(hostile.html)
    hostile.response()  # encodes


@pytest.mark.case("88")
@pytest.mark.parametrize("payload", HOSTILE_TEXTS)
def test_a_code_that_got_past_the_check_would_still_be_text(payload: str):
    hostile = render_device(VIEW, replace(PROMPT, user_code=payload), "en")
    assert tags_and_attributes(hostile) == tags_and_attributes(render_device(VIEW, PROMPT, "en"))


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "data:text/html,x", 'https://x.example/"><script>', "//x.example"]
)
@pytest.mark.parametrize("member", ["verification_uri", "verification_uri_complete"])
def test_an_address_that_no_browser_should_be_given_is_not_shown(url: str, member: str):
    changes: dict[str, Any] = {member: url}
    with pytest.raises(BrokerError) as refused:
        render_device(VIEW, replace(PROMPT, **changes), "en")
    assert Code.APP_MISCONFIGURED is refused.value.code


@pytest.mark.case("88")
@settings(deadline=None)
@given(st.from_regex(r"\Ahttps://[a-z]{1,20}\.example/[a-zA-Z0-9/?=&-]{0,300}\Z"))
def test_the_qr_code_is_one_black_path_with_a_quiet_zone_and_no_style(address: str):
    modules = len(segno.make_qr(address, error="m").matrix)
    size = modules + 2 * 4  # ISO/IEC 18004 section 5.3.8
    shape = rf'<svg viewBox="0 0 {size} {size}"><path stroke="#000" d="[Mhm.0-9 -]+"/></svg>'
    assert re.fullmatch(shape, str(qr_svg(address)))
