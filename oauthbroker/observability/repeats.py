"""Tell a failure of background work that the log has said a moment ago, and the outage that many of them share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from oauthbroker.core.clock import Clock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.observability.logging import Log

REPEAT_SECONDS: Final = 60.0
_PROBE: Final = ""  # among the tasks


class Repeats:
    """The failures that the log has said within the last minute."""

    __slots__ = ("_clock", "_logged")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._logged = dict[tuple[str, ...], float]()

    def is_new(self, *failure: str) -> bool:
        """Return whether the caller logs this failure: it did not do so within the last minute."""
        now = self._clock.monotonic()
        self._logged = {each: at for each, at in self._logged.items() if 0 <= now - at < REPEAT_SECONDS}
        if failure in self._logged:
            return False
        self._logged[failure] = now
        return True


class StoreOutage:
    """Logs a line when passes of background work, or a probe, begin to find the store away, and one when it is back."""

    __slots__ = ("_clock", "_contradicted", "_failing", "_log", "_over", "_since")

    def __init__(self, clock: Clock, log: Log) -> None:
        self._clock, self._log = clock, log
        self._failing = set[str]()
        self._contradicted = set[str]()  # by probes, which had not found the store away; none has worked since
        self._since = self._over = clock.monotonic()

    @property
    def lasts(self) -> bool:
        """Whether a pass has found the store away, and none of those that did has worked since."""
        return bool(self._failing)

    def failed(self, task: str, error: BrokerError, began: float) -> None:
        """Note a pass that failed. One that began before the store was back says nothing of the store now."""
        if error.code is not Code.STORE_UNAVAILABLE or began < self._over:
            return
        if not self._failing:
            self._since = self._clock.monotonic()
            self._log.warning("the store is away", code=error.code.value, note=error.note)
        self._failing.add(task)

    def worked(self, task: str) -> None:
        """Note a pass that did its work. The store is back if that pass had found it away: others may not use it."""
        self._contradicted.discard(task)
        if task in self._failing:
            self._end()

    async def look(self, probe: Callable[[], Awaitable[object]]) -> None:
        """Probe the store: if it answers it is back, also for the passes that had found it away. One that finds it away
        again, though no probe does, has a fault of its own, which lasts until it works. Raises what `probe` raises."""
        began = self._clock.monotonic()
        try:
            await probe()
        except BrokerError as error:
            self.failed(_PROBE, error, began)
            raise
        alone = set[str]()
        if _PROBE not in self._failing:
            alone = self._failing & self._contradicted
            self._contradicted |= self._failing
        if self._failing and not alone:
            self._end()

    def _end(self) -> None:
        self._failing.clear()
        self._over = self._clock.monotonic()
        self._log.info("the store is back", seconds=round(self._over - self._since))
