"""Records as they are printed, and every secret there is in them."""

from __future__ import annotations

import json
from typing import Any

from oauthbroker.store.format.port import Key
from tests.kit.running_broker import Harness


async def printed(harness: Harness, key: Key) -> dict[str, Any]:
    """A record's plaintext, which exists only inside the broker."""
    entry = await harness.store.get(key)
    assert entry is not None
    found = json.loads(entry.body)
    assert isinstance(found, dict)
    return found


async def secrets_of(harness: Harness) -> dict[str, str]:
    """Every secret that the store's records hold right now, by its kind."""
    found: dict[str, str] = {}
    async for session in harness.repository.sessions():
        attempt, ticket = session.record.attempt, session.record.ticket
        found[f"state {len(found)}"] = attempt.state.reveal()
        for kind, secret in (("code verifier", attempt.verifier), ("nonce", attempt.nonce), ("ticket", ticket)):
            if secret is not None:
                found[f"{kind} {len(found)}"] = secret.reveal()
    async for grant in harness.repository.grants():
        token = grant.record.token
        if token is not None:
            found[f"access token {len(found)}"] = token.access_token.reveal()
            if token.refresh_token is not None:
                found[f"refresh token {len(found)}"] = token.refresh_token.reveal()
    return found
