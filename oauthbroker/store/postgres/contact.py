"""Since when a process has had unbroken contact with the database: who was cut off takes no lapsed lease at once."""

from __future__ import annotations

from math import inf
from typing import Final

from oauthbroker.core.clock import SystemClock

LEASE_SECONDS: Final = 30.0
_LEAST_GAP: Final = 1.0


def grace_of(lease_seconds: float) -> float:
    """Return the seconds that a holder has to connect again and to store its answer, before others go on."""
    return lease_seconds / 2


class Contact:
    """The contact of one process with its database. Time is real also under a test's clock.

    A lease lapses while its holder cannot reach the database, and also while no process can. Only a process that has
    reached it all the time, for the grace, can tell these apart: by then every holder that lives has come back.
    A gap of a quarter of a lease between two answers counts as a break: in a longer outage a lease may lapse.
    """

    def __init__(self, lease_seconds: float = LEASE_SECONDS) -> None:
        self._gap, self._grace = max(lease_seconds / 4, _LEAST_GAP), grace_of(lease_seconds)
        self._begun, self._heard = inf, -inf

    @property
    def steady(self) -> bool:
        """Whether the contact has been unbroken for the grace. Ask right before the statement that relies on it."""
        return self.unbroken and SystemClock.monotonic() - self._begun >= self._grace

    @property
    def unbroken(self) -> bool:
        """Whether the database has answered a moment ago, and ever since."""
        return SystemClock.monotonic() - self._heard <= self._gap

    def heard(self) -> None:
        """Note that the database has answered."""
        if not self.unbroken:
            self._begun = SystemClock.monotonic()
        self._heard = SystemClock.monotonic()

    def lost(self) -> None:
        """Note that it has not: the next answer begins the contact anew."""
        self._heard = -inf
