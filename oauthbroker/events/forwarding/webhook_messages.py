"""Send an event as a webhook, as Standard Webhooks 1.0 says."""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import b64encode
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from oauthbroker.core.version import VERSION
from oauthbroker.events.forwarding.sent_event import TAKEN, SentEvent
from oauthbroker.model.forwarders import Webhook, webhook_key
from oauthbroker.protocol.answer_checks import retry_after_seconds
from oauthbroker.protocol.network.api_request import ApiRequest, Headers
from oauthbroker.records import AgentEvent


def event_body(event: AgentEvent) -> bytes:
    """Return the event as JSON, with the members that a poll gives."""
    return json.dumps(event.to_json(), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def webhook_request(webhook: Webhook, event: AgentEvent, now: datetime, *, ca: str) -> ApiRequest:
    """Return the signed request. `webhook-id` is the event's id, so a repetition has the same one; an id may have dots,
    which no timestamp has. `webhook-signature` has one signature for each secret."""
    body, at, parts = event_body(event), b"%d" % int(now.timestamp()), urlsplit(webhook.url)
    signed = b".".join((event.id.encode(), at, body))
    keys = [key for secret in webhook.secrets if (key := webhook_key(secret)) is not None]
    signatures = [b"v1," + b64encode(hmac.digest(key, signed, hashlib.sha256)) for key in keys]
    return ApiRequest(
        method="POST",
        scheme=parts.scheme,
        host=parts.hostname or "",
        port=parts.port or (443 if parts.scheme == "https" else 80),
        path=(parts.path or "/") + (f"?{parts.query}" if parts.query else ""),
        headers=(
            (b"Content-Type", b"application/json"),
            (b"User-Agent", f"oauthbroker/{VERSION}".encode()),
            (b"webhook-id", event.id.encode()),
            (b"webhook-timestamp", at),
            (b"webhook-signature", b" ".join(signatures)),
        ),
        body=body,
        ca=ca,
    )


def webhook_response(status: int, headers: Headers, now: datetime) -> SentEvent:
    """Check an answer by its status: 2xx takes the event; 429 or 503 with Retry-After asks for a pause; others refuse
    it, redirects included."""
    if 200 <= status <= 299:
        return TAKEN
    named: Mapping[str, Any] = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
    pause = retry_after_seconds(named.get("retry-after", ""), named.get("date", ""), now)
    if status in {429, 503} and pause is not None:
        return SentEvent(outcome="away", why=f"status {status}", pause_seconds=pause)
    return SentEvent(outcome="refused", why=f"status {status}")
