"""Is a version the newest one? The feed knows, or the database says so, or it said so a moment ago and is away now."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import nullcontext
from math import inf
from typing import Final

from oauthbroker.core.bounded_cache import Bounded
from oauthbroker.core.clock import SystemClock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.format.port import Entry, Key
from oauthbroker.store.postgres.connection_pool import NO_ANSWER, ConnectionPool
from oauthbroker.store.postgres.feed import KNOWN, Feed
from oauthbroker.store.postgres.freshness_checks import FreshnessChecks, Question
from oauthbroker.store.postgres.pools import holds_lease

_COUNTED: Final = "queues"  # holds the last number of events: readers want the newest one, not that of a moment ago
_AWAY_SECONDS: Final = 1.0  # for one try, and between two, to reach a database without which answers are degraded


class Freshness:
    """What one process knows of versions. Belongs to one event loop."""

    def __init__(self, connections: ConnectionPool, feed: Feed, *, degraded_seconds: float) -> None:
        self._connections, self._feed, self._checks = connections, feed, FreshnessChecks(connections)
        self._degraded_seconds, self._monotonic, self._failed_at = degraded_seconds, SystemClock.monotonic, -inf
        self._checked = Bounded[Key, tuple[object, float]](KNOWN if degraded_seconds else 0)
        self._checked_at = -inf  # the latest one

    @property
    def degraded(self) -> bool:
        return self._monotonic() - self._failed_at < _AWAY_SECONDS

    @property
    def may_degrade(self) -> bool:
        return self._monotonic() - self._checked_at < self._degraded_seconds

    def unchanged(self, entry: Entry) -> bool:
        confirmed = entry.key.kind != _COUNTED and not holds_lease.get() and self._feed.confirms(entry)
        if confirmed and self._degraded_seconds:
            self._checked_at = self._feed.heard_at
            self._checked.keep(entry.key, (entry.stamp, self._checked_at))
        return confirmed

    async def is_current(self, *entries: Entry) -> bool:
        """Ask for all entries in one statement. Raises `storeUnavailable` if the database is away and did not confirm
        the versions within the bound."""
        unsure = [entry for entry in entries if not self.unchanged(entry)]
        if not unsure or (self.degraded and self._were_checked(unsure)):
            return True
        mark, current = self._feed.mark, None
        try:
            async with asyncio.timeout(_AWAY_SECONDS) if self._were_checked(unsure) else nullcontext():
                current = await self._checks.are_newest(*map(_question, unsure))
        except (BrokerError, TimeoutError) as error:
            if isinstance(error, TimeoutError):
                error = BrokerError(Code.STORE_UNAVAILABLE, note=NO_ANSWER)
            away = error.code is Code.STORE_UNAVAILABLE and not self._connections.closed
            if not away or not self._were_checked(unsure):  # a write that began meanwhile has made it uncertain
                raise error from None
        if current is None:
            self._failed_at = self._monotonic()
            return True
        for entry, is_newest in zip(unsure, current, strict=True):
            if is_newest:
                self.learn(entry, mark)
        return all(current)

    def learn(self, entry: Entry, mark: int) -> None:
        """Note that a version was the newest one when the feed had this mark."""
        self._feed.learn(entry.key, entry.stamp, mark)
        self._checked_at = self._monotonic()
        self._checked.keep(entry.key, (entry.stamp, self._checked_at))

    def forget(self, key: Key) -> None:
        """Confirm no version of an entry that is deleted, or under way to a newer one."""
        self._checked.pop(key)

    def forget_all(self) -> None:
        """Confirm no version of a database that has lost its last transactions."""
        self._checked.clear()

    def _were_checked(self, entries: Iterable[Entry]) -> bool:
        """Return whether the database called these versions current within the bound, for a caller without a lease."""
        return bool(self._degraded_seconds) and not holds_lease.get() and all(map(self._was_checked, entries))

    def _was_checked(self, entry: Entry) -> bool:
        stamp, at = self._checked.get(entry.key) or (None, -inf)
        return stamp == entry.stamp and self._monotonic() - at < self._degraded_seconds


def _question(entry: Entry) -> Question:
    return entry.key.kind, bytes.fromhex(entry.key.name), entry.stamp
