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
    closed, asked = False, 0

    async def read(self, statement: str, values: dict[str, Any]) -> Any:
        self.asked += 1
        raise BrokerError(Code.STORE_UNAVAILABLE)


class DatabaseAnswers:
    """Calls a version the newest one if it is `newest`, unless it `fails`."""

    newest, closed, fails = True, False, Code.STORE_UNAVAILABLE

    async def read(self, statement: str, values: dict[str, Any]) -> Any:
        if self.closed or self.fails is not Code.STORE_UNAVAILABLE:
            raise BrokerError(self.fails)
        return [(1,)] if self.newest else []


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


async def test_what_the_database_said_a_moment_ago_may_be_said_again_without_it_for_the_bound_and_no_longer():
    now = 0.0
    feed = Feed(Secret("postgresql://nowhere"))
    freshness = Freshness(DatabaseAnswers(), feed, degraded_seconds=30)  # type: ignore[arg-type]
    feed._monotonic = freshness._monotonic = lambda: now
    assert (False, False) == (freshness.may_degrade, freshness.degraded)
    assert await freshness.is_current(GRANT)
    now = 29.0
    assert (True, False) == (freshness.may_degrade, freshness.degraded)
    now = 30.0
    assert not freshness.may_degrade


async def test_a_version_that_is_not_the_newest_is_not_confirmed_when_the_database_goes_away():
    database = DatabaseAnswers()
    freshness = Freshness(database, Feed(Secret("postgresql://nowhere")), degraded_seconds=30)  # type: ignore[arg-type]
    database.newest = False
    assert not await freshness.is_current(GRANT)
    assert not freshness.may_degrade
    freshness._connections = freshness._checks._connections = DatabaseAway()  # type: ignore[assignment]
    with pytest.raises(BrokerError):
        await freshness.is_current(GRANT)


@pytest.mark.parametrize(
    ("closed", "fails"), [(True, Code.STORE_UNAVAILABLE), (False, Code.STORE_FORMAT)], ids=["closed", "no outage"]
)
async def test_a_failure_that_is_no_outage_confirms_nothing(closed: bool, fails: Code):
    database = DatabaseAnswers()
    freshness = Freshness(database, Feed(Secret("postgresql://nowhere")), degraded_seconds=30)  # type: ignore[arg-type]
    assert await freshness.is_current(GRANT)
    database.closed, database.fails = closed, fails
    with pytest.raises(BrokerError) as refused:
        await freshness.is_current(GRANT)
    assert fails is refused.value.code


async def test_a_database_that_was_found_away_is_not_asked_again_at_each_call():
    """A call would wait for it, although its answer is known."""
    database = DatabaseAway()
    feed = Feed(Secret("postgresql://nowhere"))
    freshness = Freshness(database, feed, degraded_seconds=30)  # type: ignore[arg-type]
    freshness.learn(GRANT, feed.mark)
    for _ in range(3):
        assert await freshness.is_current(GRANT)
    assert 1 == database.asked
