"""Links that are delivered privately: the person gets them, and the conversation, the tool and the model do not."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import get_args

import pytest

from oauthbroker.core.errors import Locale
from oauthbroker.core.words import SENTENCES
from oauthbroker.model.token_results import AuthorizationRequired, Ready, Reason
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.running_broker import ALICE, BASE, BOB, TEAM, Harness, device_app, global_app, running, turn, user_app


@pytest.fixture
async def harness(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Harness]:
    direct = user_app(identity_provider, "files")
    direct = replace(direct, redirect=replace(direct.redirect, link="direct"))
    apps = [user_app(identity_provider), direct, global_app(identity_provider), device_app(identity_provider)]
    async with running(identity_provider, apps, clock=test_clock) as harness:
        yield harness


async def asked_privately(harness: Harness, app: str) -> AuthorizationRequired:
    result = await harness.broker.oauth(turn(), private_links=True).get_access_token(app)
    assert isinstance(result, AuthorizationRequired), result
    return result


@pytest.mark.parametrize("app", ["mail", "files", "team", "tv"])
async def test_a_tools_answer_holds_no_link_and_no_code(harness: Harness, app: str) -> None:
    result = await asked_privately(harness, app)
    assert (f"{BASE}/connect", None) == (result.authorization_url, result.device_code)
    said = json.dumps(result.to_json())
    (link,) = await harness.broker.links(turn())
    assert link["authSessionId"] == result.auth_session_id
    assert "sent to the person privately" in result.message
    for secret in (link["authorizationUrl"].rpartition("/")[2], *link.get("deviceCode", {"": "no code"}).values()):
        assert str(secret) not in said or secret in {5, "no code"}


async def test_the_block_apart_names_what_waits_and_leads_nowhere(harness: Harness) -> None:
    for app in ("mail", "team", "tv"):
        await asked_privately(harness, app)
    inline, apart = await harness.broker.pending(turn()), await harness.broker.pending(turn(), links="apart")
    assert inline is not None
    assert apart is not None
    assert [item["authSessionId"] for item in inline["items"]] == [item["authSessionId"] for item in apart["items"]]
    for item in apart["items"]:
        assert {"authSessionId", "oauthAppRef", "provider", "subjectMode", "expiresAt", "message"} == set(item)
        assert "http" not in json.dumps(item)


async def test_links_say_for_whom_they_are_and_work(harness: Harness) -> None:
    await asked_privately(harness, "mail")
    await asked_privately(harness, "team")
    await asked_privately(harness, "tv")
    by_mode = {link["subjectMode"]: link for link in await harness.broker.links(turn()) if "deviceCode" not in link}
    assert {"user": ALICE, "global": TEAM} == {mode: link["subject"] for mode, link in by_mode.items()}
    (device,) = [link for link in await harness.broker.links(turn()) if "deviceCode" in link]
    assert {"verificationUri", "userCode", "interval"} <= set(device["deviceCode"])
    result = await asked_privately(harness, "mail")
    real = replace(result, authorization_url=by_mode["user"]["authorizationUrl"])
    assert 200 == (await harness.connect(real)).status
    assert isinstance(await harness.ask(), Ready)


async def test_links_are_those_of_the_turns_own_subjects_and_conversation(harness: Harness) -> None:
    await asked_privately(harness, "mail")
    assert [] == await harness.broker.links(turn(user=BOB, team=None))
    assert [] == await harness.broker.links(turn(instance="another"))
    assert [] == await harness.broker.links(turn(user=None, team=TEAM))
    assert await harness.broker.pending(turn(user=BOB, team=None), links="apart") is None


async def test_a_turn_token_of_a_private_turn_never_answers_with_a_link(harness: Harness) -> None:
    begun = await harness.broker.turns.begin(turn(), private_links=True)
    token_holder = await harness.broker.turns.admit(begun.token.reveal())
    result = await harness.broker.oauth_for(token_holder).get_access_token("mail")
    assert isinstance(result, AuthorizationRequired)
    assert f"{BASE}/connect" == result.authorization_url


@pytest.mark.parametrize("language", ["en", "ko"])
async def test_the_page_where_such_answers_lead_says_so_and_nothing_else(harness: Harness, language: Locale) -> None:
    result = await asked_privately(harness, "mail")
    browser = harness.browser()
    page = await browser.open(result.authorization_url, headers={"accept-language": language})
    assert 200 == page.status
    assert {"en": "sent to you privately", "ko": "따로 보냈습니다"}[language] in page.text
    assert not page.document.forms
    assert not page.document.links
    assert [] == [header for header in page.headers if header[0].lower() == "set-cookie"]
    assert page.source == (await browser.open(f"{BASE}/connect?x=1", headers={"accept-language": language})).source


def test_every_reason_has_its_sentence_in_every_language() -> None:
    for words in SENTENCES.values():
        assert words["invitations"].keys() == words["privateInvitations"].keys() == set(get_args(Reason))
        assert words["keyInvitations"].keys() == words["privateKeyInvitations"].keys() < set(get_args(Reason))
        named = [*words["privateInvitations"].values(), *words["privateKeyInvitations"].values()]
        assert all("{app}" in sentence for sentence in named)
