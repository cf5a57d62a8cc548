"""Cache one fetched document: a good value for a day, a failure briefly, and one fetch at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from oauthbroker.core.clock import Clock
from oauthbroker.core.errors import BrokerError

T = TypeVar("T")
Fetch = Callable[[], Awaitable[T]]

GOOD_SECONDS = 24 * 3600
FAILURE_SECONDS = 30
REFRESH_SECONDS = 60


class DocumentCache(Generic[T]):
    """Caches one value. `fetch` raises `BrokerError` when it fails. Expired values are never returned."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = asyncio.Lock()
        self._value: T | None = None
        self._failure: BrokerError | None = None
        self._until = 0.0
        self._refreshed_at = float("-inf")
        self._refresh_failed: BrokerError | None = None

    async def get(self, fetch: Fetch[T]) -> T:
        """Return the value, at most a day old. A failure is repeated for 30 seconds without a new fetch."""
        async with self._lock:
            if self._clock.monotonic() < self._until:
                if self._failure is not None:
                    raise _copy(self._failure)
                if self._value is not None:
                    return self._value
            return await self._fetch(fetch)

    async def refresh(self, seen: T, fetch: Fetch[T]) -> T:
        """Return a newer value than `seen`, fetched at most once a minute.

        Within that minute it returns the cached value, or repeats the failure of the last fetch.
        """
        async with self._lock:
            if self._value is not None and self._value is not seen:
                return self._value
            if self._clock.monotonic() - self._refreshed_at < REFRESH_SECONDS:
                if self._refresh_failed is not None:
                    raise _copy(self._refresh_failed)
                return seen
            self._refreshed_at, self._refresh_failed = self._clock.monotonic(), None
            try:
                return await self._fetch(fetch)
            except BrokerError as exc:
                failure = _copy(exc)
            self._refresh_failed = failure
            raise _copy(failure)

    async def _fetch(self, fetch: Fetch[T]) -> T:
        try:
            value = await fetch()
        except BrokerError as exc:
            failure = exc
        else:
            self._value, self._failure = value, None
            self._until = self._clock.monotonic() + GOOD_SECONDS
            return value
        if self._value is None or self._clock.monotonic() >= self._until:  # a good value outlives a failed refresh
            self._value, self._failure = None, _copy(failure)
            self._until = self._clock.monotonic() + FAILURE_SECONDS
        raise _copy(failure)


def _copy(error: BrokerError) -> BrokerError:
    """Copy the error without its traceback, whose frames would keep an answer alive."""
    return BrokerError(error.code, note=error.note, retry_after_seconds=error.retry_after_seconds)
