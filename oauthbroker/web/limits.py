"""How often somebody may call: token buckets, in memory, and never more of them than a bound."""

from __future__ import annotations

import math
from collections import OrderedDict

from oauthbroker.clock import Clock
from oauthbroker.errors import BrokerError, Code

MOST_BUCKETS = 10_000
BURST_SECONDS = 10
FAILURES_PER_MINUTE = 60


class Buckets:
    """One bucket a caller: `per_minute` calls a minute, up to ten seconds' worth of them at once.

    Beyond `most` callers the one that has been quiet the longest is forgotten, and starts with a full bucket again.
    """

    def __init__(self, clock: Clock, per_minute: int, *, most: int = MOST_BUCKETS) -> None:
        self._clock = clock
        self._rate = per_minute / 60
        self._size = max(1.0, self._rate * BURST_SECONDS)
        self._most = most
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, who: str) -> None:
        """Raises `rateLimited`, with the seconds until the next call would be taken."""
        now = self._clock.monotonic()
        left, at = self._buckets.get(who, (self._size, now))
        left = min(self._size, left + (now - at) * self._rate)
        if left < 1:
            raise BrokerError(Code.RATE_LIMITED, retry_after_seconds=math.ceil((1 - left) / self._rate))
        self._buckets[who] = (left - 1, now)
        self._buckets.move_to_end(who)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)


class RequestLimits:
    """Two sorts of buckets: callers who are known, and addresses that nobody known has called from.

    A failed authentication costs only its address something, and only other failures are refused for it: whoever has
    a good token is never kept out by a stranger behind the same address.
    """

    def __init__(self, clock: Clock, per_minute: int) -> None:
        self._known = Buckets(clock, per_minute)
        self._strangers = Buckets(clock, min(per_minute, FAILURES_PER_MINUTE))

    def called(self, caller: str) -> None:
        """Raises `rateLimited`."""
        self._known.take(caller)

    def strange(self, address: str) -> None:
        """An anonymous call, or one with no or a bad token; not one with our own token of a turn that is over, which
        is a known caller's. Raises `rateLimited`."""
        self._strangers.take(address)
