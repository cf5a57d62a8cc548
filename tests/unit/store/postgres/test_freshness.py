"""What a process knows of versions while the database is away."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.store.format.port import FEED_SECONDS, Entry, Key
from oauthbroker.store.postgres.feed import Feed
from oauthbroker.store.postgres.freshness import Freshness

GRANT = Entry(Key("grants", "00"), 1, b"", stamp=7)


class DatabaseAway:
    closed = False

    async def read(self, statement: str, values: dict[str, Any]) -> Any:
        raise BrokerError(Code.STORE_UNAVAILABLE)


class DatabaseSilent(DatabaseAway):
    async def read(self, statement: str, values: dict[str, Any]) -> Any:
        await asyncio.sleep(60)


async def test_a_version_that_a_write_makes_uncertain_while_the_database_is_silent_is_unavailable(monkeypatch: Any):
    """The write ends in the outage too, so the process does not know which version is the newest."""
    monkeypatch.setattr("oauthbroker.store.postgres.freshness._AWAY_SECONDS", 0.01)
    feed = Feed(Secret("postgresql://nowhere"))
    freshness = Freshness(DatabaseSilent(), feed, degraded_seconds=30)  # type: ignore[arg-type]
    freshness.learn(GRANT, feed.mark)
    assert await freshness.is_current(GRANT)
    freshness._failed_at = float("-inf")
    asking = asyncio.ensure_future(freshness.is_current(GRANT))
    await asyncio.sleep(0)
    freshness.forget(GRANT.key)
    with pytest.raises(BrokerError) as refused:
        await asking
    assert Code.STORE_UNAVAILABLE is refused.value.code


@pytest.mark.parametrize("degraded_seconds", [0, 30])
async def test_a_version_that_the_feed_confirmed_counts_as_checked_at_the_last_heartbeat(degraded_seconds: float):
    """A warm token call asks the feed alone, perhaps for hours, before the database goes away."""
    now = 0.0
    feed = Feed(Secret("postgresql://nowhere"), trusted=True)
    freshness = Freshness(DatabaseAway(), feed, degraded_seconds=degraded_seconds)  # type: ignore[arg-type]
    feed._monotonic = freshness._monotonic = lambda: now
    feed._task = asyncio.ensure_future(asyncio.sleep(0))  # it listens
    freshness.learn(GRANT, feed.mark)
    now = feed.heard_at = 1000.0
    now += FEED_SECONDS - 1
    assert freshness.unchanged(GRANT)
    now += 1
    assert not freshness.unchanged(GRANT)
    now = 1029.0
    if degraded_seconds:
        assert await freshness.is_current(GRANT)
        assert freshness.degraded
    now = 1030.0 + degraded_seconds
    with pytest.raises(BrokerError) as refused:
        await freshness.is_current(GRANT)
    assert Code.STORE_UNAVAILABLE is refused.value.code
