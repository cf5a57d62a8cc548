"""Limit the number of open authorizations, per app and in all, counted in this process (case 99).

The cap per subject is exact across processes, because it is read from the pair's waiting list.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from oauthbroker.core.clock import has_passed
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.settings import Limits


@dataclass(frozen=True, slots=True)
class _Open:
    """A counted session: its app, its start, and its latest end."""

    app: str
    created_at: datetime
    expires_at: datetime

    def is_past(self, now: datetime) -> bool:
        return has_passed(self.expires_at, self.created_at, now)


class OpenSessions:
    """The open sessions that this process knows, removed when they end or expire."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open: dict[str, _Open] = {}
        self._per_app: Counter[str] = Counter()

    def admit(self, locator: str, app: str, expires_at: datetime, now: datetime) -> None:
        """Count one more session. Raises `rateLimited`, and counts nothing, if that exceeds a limit."""
        self.check(app, now)
        self._open[locator] = _Open(app, now, expires_at)
        self._per_app[app] += 1

    def check(self, app: str, now: datetime) -> None:
        """Raise `rateLimited` if one more session would exceed a limit."""
        if self._is_full(app):
            self._forget_expired(now)
            if self._is_full(app):
                raise BrokerError(Code.RATE_LIMITED, retry_after_seconds=60)

    def waiting(self, now: datetime) -> Counter[str]:
        """Return the number of open sessions by app."""
        return Counter(each.app for each in self._open.values() if not each.is_past(now))

    def ended(self, locator: str) -> None:
        found = self._open.pop(locator, None)
        if found is not None:
            self._per_app[found.app] -= 1

    def _is_full(self, app: str) -> bool:
        return len(self._open) >= self._limits.sessions_total or self._per_app[app] >= self._limits.sessions_per_app

    def _forget_expired(self, now: datetime) -> None:
        for locator in [locator for locator, each in self._open.items() if each.is_past(now)]:
            self.ended(locator)
