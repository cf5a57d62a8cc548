"""The language of a turn: its results, blocks, pages and events, embedded and over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from oauthbroker import Turn
from oauthbroker.core.errors import BrokerError, Code, Locale
from oauthbroker.core.words import SENTENCES
from oauthbroker.model.token_results import AuthorizationRequired, Failed
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.web import words
from tests.kit.running_broker import ALICE, BASE, Harness, device_app, global_app, public, running, turn, user_app
from tests.story.api.kit import TOOLS, Caller, Callers

SPOKEN: list[tuple[Locale | None, Locale, Locale]] = [
    ("ko", "en", "ko"),
    ("en", "ko", "en"),
    (None, "ko", "ko"),
    (None, "en", "en"),
]
"""(the turn's, the broker's, the language spoken)."""
spoken = pytest.mark.parametrize(("said", "default", "expected"), SPOKEN)


def harness_of(idp: IdentityProvider, clock: TestClock, locale: Locale) -> Any:
    apps = [user_app(idp), global_app(idp), device_app(idp)]
    return running(idp, apps, clock=clock, tools=TOOLS, settings=public(BASE, locale=locale))


def speaking(locale: Any) -> Turn:
    return replace(turn(), locale=locale)


@pytest.fixture
async def harness(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Harness]:
    async with harness_of(identity_provider, test_clock, "en") as harness:
        yield harness


@spoken
async def test_results_and_blocks_speak_the_turns_language_else_the_brokers(
    identity_provider: IdentityProvider, test_clock: TestClock, said: Any, default: Locale, expected: Locale
) -> None:
    async with harness_of(identity_provider, test_clock, default) as harness:
        asked = await harness.ask_link(of=speaking(said))
        assert SENTENCES[expected]["invitations"]["noGrant"].format(app="Mail") == asked.message
        apart = await harness.broker.oauth(speaking(said), private_links=True).get_access_token("mail")
        assert isinstance(apart, AuthorizationRequired)
        assert SENTENCES[expected]["privateInvitations"]["noGrant"].format(app="Mail") == apart.message
        inline, hidden = (
            await harness.broker.pending(speaking(said)),
            await harness.broker.pending(speaking(said), "apart"),
        )
        assert inline is not None
        assert hidden is not None
        assert [asked.message, apart.message] == [inline["items"][0]["message"], hidden["items"][0]["message"]]
        context = harness.broker.oauth(speaking(said))
        unknown, malformed = await context.get_access_token("nothing"), await context.get_access_token("Tool/mail")
        assert isinstance(unknown, Failed)
        assert isinstance(malformed, Failed)
        assert BrokerError(unknown.code).message(expected) == unknown.message
        assert SENTENCES[expected]["hints"]["appReference"] == malformed.message


@pytest.mark.parametrize("word", ["fr", "", "KO", 5, ["ko"], {}])
async def test_a_language_that_there_is_not_is_refused_and_never_raised(harness: Harness, word: Any) -> None:
    result = await harness.ask(of=speaking(word))
    assert isinstance(result, Failed)
    assert (Code.REQUEST_INVALID, f"{Code.REQUEST_INVALID.sentence('en')} (locale)") == (result.code, result.message)
    assert await harness.broker.pending(speaking(word)) is None
    with pytest.raises(BrokerError) as refused:
        await harness.broker.turns.begin(speaking(word))
    assert Code.REQUEST_INVALID is refused.value.code


async def test_the_event_brings_the_language_back_to_the_turn_that_it_starts(harness: Harness) -> None:
    await harness.connect(await harness.ask_link(of=speaking("ko")))
    delivery = await harness.broker.events.lease("planner", wait=2)
    assert delivery is not None
    assert ("ko", "ko") == (delivery.to_json()["locale"], delivery.event.turn.locale)
    await delivery.ack()
    await harness.connect(await harness.ask_link("team"))
    event = await harness.event()
    assert event is not None
    assert "locale" not in event


PAGES = [("ko-KR,ko;q=0.9,en;q=0.8", "ko"), ("en-US,en;q=0.9", "en"), ("fr-FR,fr;q=0.9", "turn's"), ("", "turn's")]


@pytest.mark.parametrize(("accepted", "expected"), PAGES)
@pytest.mark.parametrize("of_turn", ["ko", "en"])
async def test_pages_speak_the_browsers_language_and_where_it_has_none_of_ours_the_turns(
    harness: Harness, accepted: str, expected: str, of_turn: Locale
) -> None:
    texts = words.PAGES[of_turn if expected == "turn's" else expected]
    for app, title in (("mail", texts.warning), ("tv", texts.device_warning)):
        asked = await harness.ask_link(app, of=speaking(of_turn))
        browser = harness.browser()
        browser.language = accepted
        page = await browser.open(asked.authorization_url)
        assert title in page.text
        if app == "mail":
            page = await browser.submit({"decision": "continue"})
            assert texts.leaving_link in page.text


async def test_a_page_that_ended_speaks_it_too(harness: Harness) -> None:
    asked = await harness.ask_link("tv", of=speaking("ko"))
    harness.clock.advance(3600)
    browser = harness.browser()
    browser.language = "fr"
    assert Code.STATE_EXPIRED.sentence("ko") in (await browser.open(asked.authorization_url)).text


async def tool_of(harness: Harness, locale: Locale | None) -> Caller:
    """A tool's holder of a turn that was begun over HTTP."""
    api = await Callers.of(harness)
    said = {"agentName": "planner", "instanceKey": "1", "auth": {"subjects": {"user": ALICE}}}
    body = {"turn": {**said, **({"locale": locale} if locale else {})}, "tools": {"Tool/mail": None}}
    begun = await api.runtime.post("/v1/turns", body, allow=["turn token"])
    assert begun.status == 201, begun.text
    return Caller(harness, begun.json()["toolTokens"]["Tool/mail"])


@spoken
async def test_over_http_it_is_the_same_and_problems_speak_it_unless_the_caller_asks_otherwise(
    identity_provider: IdentityProvider, test_clock: TestClock, said: Any, default: Locale, expected: Locale
) -> None:
    async with harness_of(identity_provider, test_clock, default) as harness:
        tool = await tool_of(harness, said)
        result = (await tool.post("/v1/tokens", {"oauthAppRef": "mail"}, allow=["ticket"])).json()
        block = (await tool.get("/v1/turn/pending", allow=["ticket"])).json()
        message = SENTENCES[expected]["invitations"]["noGrant"].format(app="Mail")
        assert [message, message] == [result["message"], block["items"][0]["message"]]
        error = (await tool.post("/v1/tokens", {"oauthAppRef": "team"})).json()["error"]
        assert Code.APP_FORBIDDEN.sentence(expected) == error["message"]
        problem = await tool.post("/v1/tokens", {"app": "mail"})
        assert Code.REQUEST_INVALID.sentence(expected) == problem.json()["detail"]
        asked = await tool.post("/v1/tokens", {"app": "mail"}, headers={"accept-language": "ko, en;q=0.5"})
        assert Code.REQUEST_INVALID.sentence("ko") == asked.json()["detail"]


async def test_a_language_that_there_is_not_begins_no_turn_over_http(harness: Harness) -> None:
    api = await Callers.of(harness)
    body = {"turn": {"agentName": "planner", "instanceKey": "1", "locale": "fr"}}
    refused = await api.runtime.post("/v1/turns", body)
    assert (400, [{"pointer": "/turn/locale", "problem": "value"}]) == (refused.status, refused.json()["errors"])
