"""Canonical JSON for plaintexts: one schema number, sorted keys, no spaces. Any other form is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from oauthbroker.core.clock import from_iso, to_iso
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret

API_VERSION = "agents.example.io/v1alpha1"
SCHEMA = 1


def encode(kind: str, data: Mapping[str, Any]) -> bytes:
    """Encode a record's plaintext, for the seal only."""
    body = {"apiVersion": API_VERSION, "kind": kind, "schema": SCHEMA, **data}
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def decode(kind: str, body: bytes) -> dict[str, Any]:
    """Decode a record's plaintext. Raises `recordCorrupt` for another kind, schema or shape."""
    from pydantic_core import from_json  # imported here: a client uses the records and decodes no plaintext

    try:
        data = from_json(body)
    except ValueError:
        data = None
    if not isinstance(data, dict) or [data.get(word) for word in ("apiVersion", "kind", "schema")] != [
        API_VERSION,
        kind,
        SCHEMA,
    ]:
        raise BrokerError(Code.RECORD_CORRUPT, note=f"not a {kind} of schema {SCHEMA}")
    return data


def reveal(secret: Secret | None) -> str | None:
    return None if secret is None else secret.reveal()


def conceal(text: str | None) -> Secret | None:
    return None if text is None else Secret(text)


def iso(moment: datetime | None) -> str | None:
    return None if moment is None else to_iso(moment)


def moment(text: str | None) -> datetime | None:
    return None if text is None else from_iso(text)
