"""The three answers, as Python objects and as the specification's JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.results import AuthorizationRequired, DevicePrompt, Failed, Ready, TokenResult, result_from_json
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
    ready = Ready(token, "bearer", expires, ("chat:write",), degraded)
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
    asked = AuthorizationRequired("as-1", "https://b.example/connect/abc", UNTIL, "please", "noGrant")
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
            "message": "The record is locked by another process. Ask again shortly.",
            "retryable": True,
            **more,
        },
    } == failed.to_json()


def test_every_answer_is_plain_json(canaries: Canaries) -> None:
    for result in (
        Ready(canaries.mint("access token"), "bearer", UNTIL, ("a",)),
        AuthorizationRequired("as-1", "u", UNTIL, "m", "scopes"),
        Failed(Code.RATE_LIMITED, "m", True, 3),
    ):
        assert result.to_json() == json.loads(json.dumps(result.to_json()))


PROMPT = DevicePrompt("https://idp.example/device", "https://idp.example/device?code=AB", "AB-CD", 5)
PRINTED: list[TokenResult] = [
    Ready(Secret("at"), "bearer", UNTIL, ("a", "b")),
    Ready(Secret("at"), "DPoP", None, (), degraded=True),
    AuthorizationRequired("as-1", "https://b.example/connect/x", UNTIL, "please", "scopes"),
    AuthorizationRequired("as-1", "https://b.example/connect/x", UNTIL, "please", "noGrant", PROMPT),
    AuthorizationRequired("as-1", "https://b", UNTIL, "x", "expired", DevicePrompt("https://idp", None, "AB", 5)),
    Failed(Code.RATE_LIMITED, "later", retryable=True, retry_after_seconds=7),
    Failed(Code.APP_FORBIDDEN, "never", retryable=False),
]


@pytest.mark.rule("12.5.2")
@pytest.mark.parametrize("result", PRINTED, ids=lambda result: str(result.status))
def test_what_was_printed_is_read_as_it_was(result: TokenResult) -> None:
    assert result == result_from_json(json.loads(json.dumps(result.to_json())))


def test_a_later_brokers_words_are_understood_as_far_as_they_go() -> None:
    error = {"code": "somethingNew", "message": "do this", "retryable": True, "more": 1}
    assert Failed(Code.BROKER_ANSWER_INVALID, "do this", retryable=True) == result_from_json(
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
def test_what_is_none_of_the_three_is_refused(said: object) -> None:
    with pytest.raises(ValueError, match=r".*"):
        result_from_json(said)
