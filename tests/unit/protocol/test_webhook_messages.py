"""Webhooks as bytes, checked by the package `standardwebhooks`."""

from __future__ import annotations

import json
from base64 import b64encode
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook as Validate
from standardwebhooks import WebhookVerificationError

from oauthbroker.core.secret import Secret
from oauthbroker.events.forwarding.sent_event import Outcome
from oauthbroker.events.forwarding.webhook_messages import webhook_request, webhook_response
from oauthbroker.model.forwarders import Webhook
from oauthbroker.model.turn import ResumeTarget
from oauthbroker.records import AgentEvent

KEYS = st.binary(min_size=24, max_size=64)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def secret_of(key: bytes) -> Secret:
    return Secret(f"whsec_{b64encode(key).decode()}")


def event_of(payload: dict[str, Any], name: str = "evt-as-x-auth.granted") -> AgentEvent:
    now = datetime.now(UTC)
    target = ResumeTarget("planner", "thread 1", origin={"channel": "C1"})
    return AgentEvent(id=name, type="auth.granted", target=target, payload=payload, created_at=now)


def sent(event: AgentEvent, *secrets: Secret, url: str = "https://a.example/hook") -> tuple[dict[str, str], bytes]:
    request = webhook_request(Webhook(url=url, secrets=secrets), event, datetime.now(UTC), ca="")
    assert isinstance(request.body, bytes)
    return {name.decode(): value.decode() for name, value in request.headers}, request.body


@given(st.lists(KEYS, min_size=1, max_size=2, unique=True), st.dictionaries(TEXT, TEXT, max_size=4))
def test_each_secret_verifies_the_body_that_is_sent(keys: list[bytes], payload: dict[str, str]):
    event = event_of(payload)
    headers, body = sent(event, *map(secret_of, keys))
    for key in keys:
        assert event.to_json() == Validate(secret_of(key).reveal()).verify(body, headers)
    assert (event.id, len(keys)) == (headers["webhook-id"], len(headers["webhook-signature"].split()))


@given(KEYS, st.integers(0), st.integers(1, 255))
def test_a_changed_byte_id_or_time_is_not_verified(key: bytes, place: int, flip: int):
    headers, body = sent(event_of({"n": 1}), secret_of(key))
    changed = bytearray(body)
    changed[place % len(body)] ^= flip
    later = {"webhook-timestamp": str(int(headers["webhook-timestamp"]) + 1)}
    for wrong, text in (
        (headers, bytes(changed).decode("latin-1")),
        (headers | {"webhook-id": "evt-other"}, body),
        (headers | later, body),
    ):
        with pytest.raises(WebhookVerificationError):
            Validate(secret_of(key).reveal()).verify(text, wrong, json_parse=False)


def test_a_request_is_what_a_poll_would_give_at_the_address_as_written():
    event = event_of({"scopesGranted": ["read"], "text": "안녕"})
    url = "https://a.example:8443/hook?team=1"
    request = webhook_request(Webhook(url=url, secrets=(secret_of(b"k" * 24),)), event, datetime.now(UTC), ca="PEM")
    assert ("POST", "https", "a.example", 8443) == (request.method, request.scheme, request.host, request.port)
    assert ("/hook?team=1", "PEM") == (request.path, request.ca)
    assert isinstance(request.body, bytes)
    assert event.to_json() == json.loads(request.body)


@pytest.mark.parametrize(
    ("status", "headers", "outcome", "pause"),
    [
        (200, {}, "taken", 0),
        (204, {}, "taken", 0),
        (299, {}, "taken", 0),
        (301, {}, "refused", 0),
        (400, {}, "refused", 0),
        (401, {}, "refused", 0),
        (410, {}, "refused", 0),
        (429, {}, "refused", 0),
        (500, {"retry-after": "5"}, "refused", 0),
        (503, {}, "refused", 0),
        (429, {"retry-after": "7"}, "away", 7),
        (503, {"retry-after": "99999"}, "away", 3600),
        (503, {"retry-after": "soon"}, "refused", 0),
        (503, {"retry-after": "Mon, 01 Jun 2026 12:01:00 GMT"}, "away", 60),
    ],
)
def test_the_status_says_what_became_of_the_event(status: int, headers: dict[str, str], outcome: Outcome, pause: int):
    answered = [(name.encode(), value.encode()) for name, value in headers.items()]
    made = webhook_response(status, answered, datetime(2026, 6, 1, 12, tzinfo=UTC))
    assert (outcome, pause) == (made.outcome, made.pause_seconds)
