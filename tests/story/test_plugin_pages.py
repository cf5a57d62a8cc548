"""Operators' pages of a plug-in: served as the pages of `/admin` are, in their layout, with the plug-in's words."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

from oauthbroker.core.errors import Code
from oauthbroker.model.plugin_resources import PluginResources
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.web.middleware.security_headers import content_security_policy, security_headers
from tests.kit.callback_pages import assert_error_page
from tests.kit.plugin_package import install
from tests.kit.running_broker import Harness, running, user_app
from tests.story.hostile_web import HOSTILE_TEXTS
from tests.story.signed_in import ADMIN, ADMIN_LOGIN, operator_browser
from tests.unit.web.kit import Document

HOME = f"{ADMIN}/plugins/garden"
GARDEN = """
from pathlib import Path

from oauthbroker.plugins import PluginPage, PluginPages, PluginView


async def beds(page_request):
    return PluginView(template="beds", title=page_request.query.get("name", "Beds"), values={"name": page_request.query.get("name", ""), "bed": ""})


async def bed(page_request):
    return PluginView(template="beds", title=page_request.words.nav, values={"name": "", "bed": page_request.path["bed"]})


async def gone(page_request):
    raise BrokerError(Code.NOT_FOUND)


async def crash(page_request):
    raise ValueError("s3cret of a crash")


async def leave(page_request):
    raise SystemExit(1)


async def lacking(page_request):
    return PluginView(template="beds", title="", values={})


HANDLERS = {"": beds, "/beds/{bed}": bed, "/gone": gone, "/crash": crash, "/leave": leave, "/lacking": lacking}


@asynccontextmanager
async def open_plugin(broker, resources):
    pages = [PluginPage(path=path, handler=handler) for path, handler in HANDLERS.items()]
    yield RunningPlugin(pages=PluginPages(folder=Path(__file__).parent / "pages", pages=pages))
"""
TEMPLATE = """{% extends "admin_base.html" %}
{% block main %}
<h1>{{ words.beds }}</h1>
<p>{{ view.bed }} {{ view.name }} {{ phrase(words.named, name=view.name) }}</p>
<a href="{{ here("/beds/a b?c", x="1&2") }}">{{ words.nav }}</a>
{% endblock %}
"""
WORDS = {"en": {"nav": "Garden", "beds": "The beds", "named": "named {name}"}, "ko": {"nav": "정원"}}


@pytest.fixture
async def harness(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Harness]:
    monkeypatch.syspath_prepend(tmp_path)
    install(tmp_path, "garden", GARDEN)
    (tmp_path / "pages" / "words").mkdir(parents=True)
    (tmp_path / "pages" / "beds.html").write_text(TEMPLATE, "utf-8")
    for locale, words in WORDS.items():
        (tmp_path / "pages" / "words" / f"{locale}.json").write_text(json.dumps({"pages": words}), "utf-8")
    apps, plugins = [user_app(identity_provider)], {"garden": PluginResources()}
    async with running(identity_provider, apps, clock=test_clock, plugins=plugins) as harness:
        yield harness


async def test_an_operator_sees_the_page_in_the_layout_of_the_others(harness: Harness) -> None:
    person = await operator_browser(harness)
    page = await person.open(f"{HOME}/beds/b-1")
    assert (200, True, True) == (page.status, "The beds b-1" in page.text, "Sign out" in page.text)
    wanted = {**security_headers(), "content-security-policy": content_security_policy()}
    wanted["referrer-policy"] = "same-origin"
    assert wanted == {name: page.header(name) for name in wanted}
    (link,) = [each for each in Document(page.source).all("a") if "aria-current" in each.attributes]
    assert ("Garden", HOME) == (link.text, link.attributes["href"])
    assert f"{HOME}/beds/a%20b%3Fc?x=1%262" in page.document.links
    assert HOME in (await person.open(ADMIN)).document.links


async def test_all_others_are_sent_to_the_login_and_no_other_method_is_taken(harness: Harness) -> None:
    stranger = harness.browser()
    for path in ("", "/beds/1", "/gone"):
        page = await stranger.open(HOME + path)
        assert (303, ADMIN_LOGIN) == (page.status, page.location)
    person = await operator_browser(harness)
    assert 404 == (await person.open(f"{HOME}/other")).status
    assert 405 == (await person.open(HOME, method="POST")).status


@pytest.mark.parametrize("payload", HOSTILE_TEXTS[:8])
async def test_values_and_titles_are_text(harness: Harness, payload: str) -> None:
    person = await operator_browser(harness)
    page = await person.open(f"{HOME}?{urlencode({'name': payload})}")
    document = Document(page.source)
    assert not {"script", "img", "base"} & {each.tag for each in document.elements}
    assert (1, 1) == (len(document.all("style")), len(document.all("form")))
    assert not [name for each in document.elements for name in each.attributes if name.startswith("on")]
    assert payload in page.text


async def test_the_words_are_those_of_the_reader_and_english_where_there_are_none(harness: Harness) -> None:
    person = await operator_browser(harness)
    person.language = "ko"
    page = await person.open(HOME)
    assert ("정원" in page.text, "The beds" in page.text, "로그아웃" in page.text) == (True, True, True)


@pytest.mark.parametrize("path", ["/crash", "/leave", "/lacking"])
async def test_a_page_that_fails_is_answered_and_its_text_is_kept_out(harness: Harness, path: str) -> None:
    person = await operator_browser(harness)
    assert 500 == (await person.open(HOME + path)).status
    assert "s3cret" not in person.page.source + harness.log.getvalue()
    assert 200 == (await person.open(HOME)).status


async def test_a_refusal_of_a_page_is_the_page_of_its_code(harness: Harness) -> None:
    person = await operator_browser(harness)
    assert_error_page(await person.open(f"{HOME}/gone"), Code.NOT_FOUND)
