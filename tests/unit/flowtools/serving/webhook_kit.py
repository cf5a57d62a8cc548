"""Signed webhooks."""

from __future__ import annotations

import base64
import hmac
from typing import Any

NOW = 1_700_000_000
RAW = b"0123456789abcdef0123456789abcdef"
SECRET, OLD, OTHER = (f"whsec_{base64.b64encode(each).decode()}" for each in (RAW, RAW[::-1], b"x" * 32))
BODY = b'{"text": "paid"}'


def standard(secret: str = SECRET, *, event: str = "msg_1", at: Any = NOW, body: bytes = BODY) -> dict[str, str]:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signature = base64.b64encode(hmac.digest(key, f"{event}.{at}.".encode() + body, "sha256")).decode()
    return {"webhook-id": event, "webhook-timestamp": str(at), "webhook-signature": f"v1,{signature}"}
