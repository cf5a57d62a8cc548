"""Rate limits: one token bucket a caller, in memory, and never more buckets than a bound."""

from __future__ import annotations

import math

from oauthbroker.core.bounded_cache import Bounded
from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code

MOST_BUCKETS = 10_000
BURST_SECONDS = 10
FAILURES_PER_MINUTE = 60
FAILED_LOGINS = 20


@dataclass(slots=True)
class _Bucket:
    """The calls that a caller has left, as counted at a monotonic time."""

    left: float
    at: float


class Limiter:
    """Allow each caller `per_minute` calls a minute, and `burst` of them at once: by default ten seconds' worth.

    Beyond `most` callers the one that has been quiet the longest is evicted, and starts with a full bucket again.
    """

    def __init__(self, clock: Clock, per_minute: int, *, burst: int | None = None, most: int = MOST_BUCKETS) -> None:
        self._clock = clock
        self._rate = per_minute / 60
        self._burst = max(1.0, self._rate * BURST_SECONDS) if burst is None else float(burst)
        self._buckets = Bounded[str, _Bucket](most)

    def __len__(self) -> int:
        return len(self._buckets)

    def give_back(self, caller: str) -> None:
        """Take back a call that was counted and did not happen."""
        found = self._buckets.get(caller)
        if found is not None:
            found.left = min(self._burst, found.left + 1)

    def admit(self, caller: str) -> None:
        """Count one call. Raises `rateLimited`, with the seconds until the next call would be allowed."""
        now, bucket = self._clock.monotonic(), self._buckets.get(caller)
        if bucket is None:
            bucket = _Bucket(self._burst, now)
            self._buckets.keep(caller, bucket)
        else:
            self._buckets.touch(caller)
        left = min(self._burst, bucket.left + (now - bucket.at) * self._rate)
        bucket.left, bucket.at = left - 1 if left >= 1 else left, now
        if left < 1:
            raise BrokerError(Code.RATE_LIMITED, retry_after_seconds=math.ceil((1 - left) / self._rate))


def failed_logins(clock: Clock) -> Limiter:
    """Return the limit of failed sign-ins of one address. A good key is never refused for the failures of others."""
    return Limiter(clock, FAILED_LOGINS, burst=FAILED_LOGINS)


class RequestLimits:
    """Two limits: for callers who are known, and for addresses that send no good credentials.

    A failed authentication costs only its address something, and only other failures are refused for it: a caller
    with a good token is never kept out by a stranger behind the same address.
    """

    def __init__(self, clock: Clock, per_minute: int) -> None:
        self._known = Limiter(clock, per_minute)
        self._strangers = Limiter(clock, min(per_minute, FAILURES_PER_MINUTE))
        self.called = self._known.admit  # counts a call of a known caller
        self.strange = self._strangers.admit  # and one without good credentials; an ended turn's is a known caller's

    def admits(self, caller: str) -> bool:
        """Count a call of a known caller. False if it is one too many."""
        try:
            self._known.admit(caller)
        except BrokerError:
            return False
        return True

    def give_back(self, caller: str) -> None:
        """Take back a call that `admits` counted and that another way answers."""
        self._known.give_back(caller)
