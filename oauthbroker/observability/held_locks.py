"""Tell background work that found a lock held, and comes back, from work that failed."""

from __future__ import annotations

from oauthbroker.core.clock import Clock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.observability.logging import Log

LASTS_SECONDS = 300.0  # a lock that is held for longer than any work needs: its holder was stopped, or hangs


class HeldLocks:
    """The passes of background work that only found a lock held. They are no fault, and say nothing in the log until
    they have done so for long, one after the other."""

    __slots__ = ("_clock", "_log", "_since")

    def __init__(self, clock: Clock, log: Log) -> None:
        self._clock, self._log = clock, log
        self._since: dict[str, tuple[float, float]] = {}

    def worked(self, task: str) -> None:
        """Note a pass of this task that found no lock held."""
        self._since.pop(task, None)

    def met(self, task: str, error: BaseException) -> bool:
        """Note a pass that failed. Return whether it only found a lock held; else the caller logs it."""
        if not (isinstance(error, BrokerError) and error.code is Code.STORE_LOCKED):
            self.worked(task)
            return False
        now = self._clock.monotonic()
        first, logged = self._since.setdefault(task, (now, now))
        if now - logged >= LASTS_SECONDS:
            self._since[task] = first, now
            self._log.warning("a lock stays held", task=task, seconds=round(now - first))
        return True
