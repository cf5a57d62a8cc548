"""How often somebody may be wrong: failures of each peer within a minute, and never more peers than a bound."""

from __future__ import annotations

from collections import OrderedDict, deque

from oauthbroker.clock import Clock
from oauthbroker.errors import BrokerError, Code

MOST, SECONDS = 20, 60.0
MOST_PEERS = 10_000


class Attempts:
    """In this process. Keys are not to be guessed anyway (256 bits): this bounds what failures cost and leave behind.

    Only failures are counted and refused, so whoever has a good key is never kept out by a stranger. Beyond `most`
    peers the one that has been quiet the longest is forgotten.
    """

    def __init__(self, clock: Clock, *, most: int = MOST_PEERS) -> None:
        self._clock = clock
        self._most = most
        self._failed: OrderedDict[str, deque[float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._failed)

    def failed(self, peer: str) -> None:
        """Raises `rateLimited` for a peer that was wrong too often; that failure is not counted any more."""
        now = self._clock.monotonic()
        moments = self._failed.setdefault(peer, deque(maxlen=MOST))
        self._failed.move_to_end(peer)
        while moments and moments[0] <= now - SECONDS:
            moments.popleft()
        if len(moments) >= MOST:
            left = max(1, round(moments[0] + SECONDS - now))
            raise BrokerError(Code.RATE_LIMITED, note="too many logins failed", retry_after_seconds=left)
        moments.append(now)
        if len(self._failed) > self._most:
            self._failed.popitem(last=False)
