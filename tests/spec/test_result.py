"""12.5.2: the three shapes of an answer, exactly, as `getAccessToken` gives them; in Korean too."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from oauthbroker.core.clock import printed
from oauthbroker.model.settings import Settings
from oauthbroker.testing import IdentityProvider
from tests.kit.running_broker import BASE, Harness, running, turn, user_app

MAIL: dict[str, Any] = {"oauthAppRef": {"kind": "OAuthApp", "name": "mail"}}
LINK = re.compile(re.escape(BASE) + r"/connect/[A-Za-z0-9_-]{65}")


@pytest.fixture
async def korean(identity_provider: IdentityProvider) -> AsyncIterator[Harness]:
    settings = Settings(public_base_url=BASE, weaken=frozenset({"plainHttpProvider"}), locale="ko")
    async with running(identity_provider, [user_app(identity_provider)], settings=settings) as harness:
        yield harness


@pytest.mark.rule("12.5.2")
async def test_ready_carries_token_type_end_and_scopes_and_nothing_else(harness: Harness) -> None:
    """A full answer has five members; the token is the one the provider knows."""
    await harness.connected()
    answer = await harness.broker.oauth(turn()).getAccessToken({**MAIL, "scopes": ["read"], "minTtlSeconds": 60})
    token = answer.pop("accessToken")
    assert harness.idp.is_alive(token)
    assert {
        "status": "ready",
        "tokenType": "bearer",
        "expiresAt": printed(harness.clock.now() + timedelta(seconds=3600)),
        "scopes": ["read", "write", "admin"],
    } == answer


@pytest.mark.rule("12.5.2")
async def test_a_token_without_an_end_has_no_end_in_the_answer(harness: Harness) -> None:
    """`expiresAt` is left out rather than made up."""
    harness.idp.change("client-mail", access_lifetime=None)
    await harness.connected()
    answer = await harness.broker.oauth(turn()).getAccessToken(MAIL)
    assert {"status", "accessToken", "tokenType", "scopes"} == answer.keys()


@pytest.mark.rule("12.5.2")
async def test_authorization_required_carries_session_link_end_and_message(harness: Harness) -> None:
    """And one member of ours, `reason`, that an agent may use to choose its words."""
    answer = await harness.broker.oauth(turn()).getAccessToken(MAIL)
    assert re.fullmatch(r"as-[A-Za-z0-9_-]{22}", answer.pop("authSessionId"))
    assert LINK.fullmatch(answer.pop("authorizationUrl"))
    assert {
        "status": "authorization_required",
        "expiresAt": printed(harness.clock.now() + timedelta(seconds=600)),
        "message": "A connection to Mail is needed. Open the link below and agree. The work then continues by itself.",
        "reason": "noGrant",
    } == answer


@pytest.mark.rule("12.5.2")
async def test_error_carries_one_object_with_code_and_message(harness: Harness) -> None:
    """And `retryable`, a member of ours, because a machine should not have to read the sentence."""
    answer = await harness.broker.oauth(turn(user=None)).getAccessToken(MAIL)
    assert {
        "status": "error",
        "error": {
            "code": "subjectUnavailable",
            "message": "turn.auth.subjects.user is missing, so no token can be looked up. Start the turn with that subject.",
            "retryable": False,
        },
    } == answer


@pytest.mark.rule("12.5.2")
async def test_the_same_shapes_speak_korean(korean: Harness) -> None:
    """The sentences say what the specification's examples say."""
    asked = await korean.broker.oauth(turn()).getAccessToken(MAIL)
    assert (
        "외부 서비스(Mail) 연결이 필요합니다. 아래 링크에서 승인을 완료하면 작업을 이어갈 수 있습니다."
        == asked["message"]
    )
    failed = await korean.broker.oauth(turn(user=None)).getAccessToken(MAIL)
    assert failed["error"]["message"].startswith("turn.auth.subjects.user 가 없어 토큰을 조회할 수 없습니다.")
    block = await korean.broker.pending(turn())
    assert block is not None
    assert [asked["message"]] == [item["message"] for item in block["items"]]


@pytest.mark.rule("12.5.2")
async def test_both_spellings_of_the_call_give_the_same_answer(harness: Harness) -> None:
    """The Python call is the same call: its answer printed is the specification's JSON."""
    oauth = harness.broker.oauth(turn())
    assert await oauth.getAccessToken(MAIL) == (await oauth.get_access_token("OAuthApp/mail")).to_json()
    await harness.connected()
    assert await oauth.getAccessToken(MAIL) == (await oauth.get_access_token("OAuthApp/mail")).to_json()
