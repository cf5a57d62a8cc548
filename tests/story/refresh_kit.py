"""Grants whose token is about to expire or has expired."""

from __future__ import annotations

from oauthbroker.model.token_results import Ready
from tests.kit.running_broker import Harness

LIFETIME = 3600
PAUSE = 400  # longer than any pause that a refusal leads to


async def connected_and_resumed(harness: Harness, app: str = "mail") -> Ready:
    first = await harness.connected(app)
    await harness.event()
    return first


async def with_expired_token(harness: Harness, app: str = "mail") -> Ready:
    """A grant whose token has just ended."""
    first = await connected_and_resumed(harness, app)
    harness.clock.advance(3600)
    return first
