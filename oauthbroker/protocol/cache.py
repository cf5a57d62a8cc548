"""One document fetched now and then: kept while good, its failure kept briefly, never fetched twice at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from oauthbroker.clock import Clock
from oauthbroker.errors import BrokerError

T = TypeVar("T")
Fetch = Callable[[], Awaitable[T]]

GOOD_SECONDS = 24 * 3600
FAILURE_SECONDS = 30
RENEWAL_SECONDS = 60


class Remembered(Generic[T]):
    """A value with a memory. `fetch` raises `BrokerError` when it fails; nothing stale is ever served."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = asyncio.Lock()
        self._value: T | None = None
        self._failure: BrokerError | None = None
        self._until = 0.0
        self._renewed_at = float("-inf")
        self._renewal_failed: BrokerError | None = None

    async def get(self, fetch: Fetch[T]) -> T:
        """The value, at most a day old. A failure is repeated for 30 seconds without asking again."""
        async with self._lock:
            if self._clock.monotonic() < self._until:
                if self._failure is not None:
                    raise _copy(self._failure)
                if self._value is not None:
                    return self._value
            return await self._fetch(fetch)

    async def renew(self, seen: T, fetch: Fetch[T]) -> T:
        """A newer value than `seen`, if a minute has passed since somebody last asked for one; else what there is, or
        the failure of that last time: then nobody knows whether there is a newer one."""
        async with self._lock:
            if self._value is not None and self._value is not seen:
                return self._value
            if self._clock.monotonic() - self._renewed_at < RENEWAL_SECONDS:
                if self._renewal_failed is not None:
                    raise _copy(self._renewal_failed)
                return seen
            self._renewed_at, self._renewal_failed = self._clock.monotonic(), None
            try:
                return await self._fetch(fetch)
            except BrokerError as exc:
                failure = _copy(exc)
            self._renewal_failed = failure
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
        if self._value is None or self._clock.monotonic() >= self._until:  # a good value outlives a failed renewal
            self._value, self._failure = None, _copy(failure)
            self._until = self._clock.monotonic() + FAILURE_SECONDS
        raise _copy(failure)


def _copy(error: BrokerError) -> BrokerError:
    """The same words without the traceback, whose frames would keep an answer alive."""
    return BrokerError(error.code, note=error.note, retry_after_seconds=error.retry_after_seconds)
