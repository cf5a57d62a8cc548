"""How often somebody may be wrong: logins that fail cost the store a look each."""

from __future__ import annotations

from collections import deque

from oauthbroker.clock import Clock
from oauthbroker.errors import BrokerError, Code

MOST, SECONDS = 20, 60.0
MOST_PEERS = 10_000


class Attempts:
    """Failures of each peer within the last minute, in this process. Keys are not to be guessed anyway: 256 bits."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failed: dict[str, deque[float]] = {}

    def check(self, peer: str) -> None:
        """Raises `rateLimited` for a peer that was wrong too often."""
        moments = self._recent(peer)
        if len(moments) >= MOST:
            left = moments[0] + SECONDS - self._clock.monotonic()
            raise BrokerError(Code.RATE_LIMITED, note="too many logins failed", retry_after_seconds=max(1, round(left)))

    def failed(self, peer: str) -> None:
        if len(self._failed) >= MOST_PEERS:
            self._failed = {each: moments for each in list(self._failed) if (moments := self._recent(each))}
        self._failed.setdefault(peer, deque(maxlen=MOST)).append(self._clock.monotonic())

    def _recent(self, peer: str) -> deque[float]:
        moments = self._failed.get(peer, deque())
        while moments and moments[0] <= self._clock.monotonic() - SECONDS:
            moments.popleft()
        return moments
