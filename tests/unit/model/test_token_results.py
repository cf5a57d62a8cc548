"""The three answers, as Python objects and as the specification's JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.token_results import (
    AuthorizationRequired,
    DevicePrompt,
    Failed,
    Ready,
    TokenResult,
    result_from_json,
)
from oauthbroker.testing import Canaries

UNTIL = datetime(2026, 2, 1, 10, 0, tzinfo=UTC)


@pytest.mark.rule("12.5.2")
@pytest.mark.parametrize(
    "expires, degraded, more",
    [
        (UNTIL, False, {"expiresAt": "2026-02-01T10:00:00Z"}),
        (UNTIL, True, {"expiresAt": "2026-02-01T10:00:00Z", "degraded": True}),
        (None, False, {}),
    ],
)
def test_ready_is_printed_with_what_there_is_and_nothing_made_up(
    expires: datetime | None, degraded: bool, more: dict[str, object], canaries: Canaries
) -> None:
    token = canaries.mint("access token")
    ready = Ready(
        access_token=token, token_type="bearer", expires_at=expires, scopes=("chat:write",), degraded=degraded
    )
    assert {
        "status": "ready",
        "accessToken": token.reveal(),
        "tokenType": "bearer",
        "scopes": ["chat:write"],
        **more,
    } == ready.to_json()
    canaries.look(repr(ready), "the repr of a ready result")


@pytest.mark.rule("12.5.2")
def test_authorization_required_is_printed_whole_but_its_repr_keeps_the_link() -> None:
    asked = AuthorizationRequired(
        auth_session_id="as-1",
        authorization_url="https://b.example/connect/abc",
        expires_at=UNTIL,
        message="please",
        reason="noGrant",
    )
    assert {
        "status": "authorization_required",
        "authSessionId": "as-1",
        "authorizationUrl": "https://b.example/connect/abc",
        "expiresAt": "2026-02-01T10:00:00Z",
        "message": "please",
        "reason": "noGrant",
    } == asked.to_json()
    assert "AuthorizationRequired(as-1, reason=noGrant)" == repr(asked) == str(asked)


@pytest.mark.rule("12.5.2")
@pytest.mark.parametrize("after, more", [(None, {}), (7, {"retryAfterSeconds": 7})])
def test_an_error_is_printed_as_one_object_with_code_and_message(after: int | None, more: dict[str, int]) -> None:
    failed = Failed.from_error(BrokerError(Code.STORE_LOCKED, retry_after_seconds=after), "en")
    assert {
        "status": "error",
        "error": {
            "code": "storeLocked",
            "message": "The record is being changed. Ask again shortly.",
            "retryable": True,
            **more,
        },
    } == failed.to_json()


def test_every_answer_is_plain_json(canaries: Canaries) -> None:
    for result in (
        Ready(access_token=canaries.mint("access token"), token_type="bearer", expires_at=UNTIL, scopes=("a",)),
        AuthorizationRequired(
            auth_session_id="as-1", authorization_url="u", expires_at=UNTIL, message="m", reason="scopes"
        ),
        Failed(code=Code.RATE_LIMITED, message="m", retryable=True, retry_after_seconds=3),
    ):
        assert result.to_json() == json.loads(json.dumps(result.to_json()))


PROMPT = DevicePrompt(
    verification_uri="https://idp.example/device",
    verification_uri_complete="https://idp.example/device?code=AB",
    user_code="AB-CD",
    interval=5,
)
PRINTED: list[TokenResult] = [
    Ready(access_token=Secret("at"), token_type="bearer", expires_at=UNTIL, scopes=("a", "b")),
    Ready(access_token=Secret("at"), token_type="DPoP", expires_at=None, scopes=(), degraded=True),
    AuthorizationRequired(
        auth_session_id="as-1",
        authorization_url="https://b.example/connect/x",
        expires_at=UNTIL,
        message="please",
        reason="scopes",
    ),
    AuthorizationRequired(
        auth_session_id="as-1",
        authorization_url="https://b.example/connect/x",
        expires_at=UNTIL,
        message="please",
        reason="noGrant",
        device_code=PROMPT,
    ),
    AuthorizationRequired(
        auth_session_id="as-1",
        authorization_url="https://b",
        expires_at=UNTIL,
        message="x",
        reason="expired",
        device_code=DevicePrompt(
            verification_uri="https://idp", verification_uri_complete=None, user_code="AB", interval=5
        ),
    ),
    Failed(code=Code.RATE_LIMITED, message="later", retryable=True, retry_after_seconds=7),
    Failed(code=Code.APP_FORBIDDEN, message="never", retryable=False),
]


@pytest.mark.rule("12.5.2")
@pytest.mark.parametrize("result", PRINTED, ids=lambda result: str(result.status))
def test_a_printed_result_is_read_back_unchanged(result: TokenResult) -> None:
    assert result == result_from_json(json.loads(json.dumps(result.to_json())))


def test_a_later_brokers_words_are_understood_as_far_as_they_go() -> None:
    error = {"code": "somethingNew", "message": "do this", "retryable": True, "more": 1}
    assert Failed(code=Code.BROKER_ANSWER_INVALID, message="do this", retryable=True) == result_from_json(
        {"status": "error", "error": error}
    )
    ready = result_from_json({**PRINTED[0].to_json(), "tokenBinding": {"jkt": "x"}})
    assert PRINTED[0] == ready


BROKEN: list[object] = [
    None, [], "ready", {}, {"status": "later"}, {"status": 1}, {"status": "error"}, {"status": "error", "error": {"code": 1}},
    {**PRINTED[0].to_json(), "scopes": [1]}, {**PRINTED[0].to_json(), "tokenType": None},
    {**PRINTED[0].to_json(), "expiresAt": "2026-02-01T10:00:00"}, {**PRINTED[2].to_json(), "deviceCode": "AB"},
    {**PRINTED[3].to_json(), "deviceCode": {**PROMPT.to_json(), "interval": True}},
]  # fmt: skip


@pytest.mark.parametrize("said", BROKEN)
def test_any_other_result_is_refused(said: object) -> None:
    with pytest.raises(ValueError, match=r".*"):
        result_from_json(said)


def test_a_failure_has_the_wrong_members_that_its_error_names() -> None:
    error = BrokerError(Code.REQUEST_INVALID)
    error.errors = ({"pointer": "/minTtlSeconds", "problem": "type"},)
    assert error.errors == Failed.from_error(error, "en").errors
    assert () == Failed.from_error(BrokerError(Code.TURN_ENDED), "en").errors
