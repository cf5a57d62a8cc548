"""How many authorizations may be open at once: per app and in all, counted in this process (case 99).

The cap per subject is exact across processes, because it is read from the pair's waiting list.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from oauthbroker.errors import BrokerError, Code
from oauthbroker.settings import Limits


class OpenSessions:
    """The open sessions this process knows of, forgotten when they end or expire."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open: dict[str, tuple[datetime, str]] = {}
        self._per_app: Counter[str] = Counter()

    def admit(self, locator: str, app: str, expires_at: datetime, now: datetime) -> None:
        """Counts one more. Raises `rateLimited` when that would be too many, and counts nothing then."""
        self.check(app, now)
        self._open[locator] = (expires_at, app)
        self._per_app[app] += 1

    def check(self, app: str, now: datetime) -> None:
        """Raises `rateLimited` when one more would be too many."""
        if self._is_full(app):
            self._forget_expired(now)
        if self._is_full(app):
            raise BrokerError(Code.RATE_LIMITED, retry_after_seconds=60)

    def waiting(self, now: datetime) -> Counter[str]:
        """How many are open, by app."""
        return Counter(app for expires_at, app in self._open.values() if expires_at > now)

    def ended(self, locator: str) -> None:
        found = self._open.pop(locator, None)
        if found is not None:
            self._per_app[found[1]] -= 1

    def _is_full(self, app: str) -> bool:
        return len(self._open) >= self._limits.sessions_total or self._per_app[app] >= self._limits.sessions_per_app

    def _forget_expired(self, now: datetime) -> None:
        for locator in [locator for locator, (expires_at, _) in self._open.items() if expires_at <= now]:
            self.ended(locator)
