"""Canonical JSON for plaintexts: one schema number, sorted keys, no spaces; anything else is refused, never guessed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from oauthbroker.clock import from_iso, to_iso
from oauthbroker.errors import BrokerError, Code
from oauthbroker.secret import Secret

API_VERSION = "agents.example.io/v1alpha1"
SCHEMA = 1


def encode(kind: str, data: Mapping[str, Any]) -> bytes:
    """The plaintext of a record, for the seal only."""
    body = {"apiVersion": API_VERSION, "kind": kind, "schema": SCHEMA, **data}
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def decode(kind: str, body: bytes) -> dict[str, Any]:
    """The inverse. Raises `recordCorrupt` for what is not a record of this kind and schema."""
    from pydantic_core import from_json  # here: a client has the records' nouns, and no plaintext to decode

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
