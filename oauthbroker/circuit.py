"""A circuit per app: while its provider is down, too busy or refuses our client, nobody waits to be told so again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from oauthbroker.clock import Clock
from oauthbroker.errors import BrokerError, Code

_COUNTED = {Code.APP_MISCONFIGURED, Code.PROVIDER_RATE_LIMITED, Code.PROVIDER_UNREACHABLE}
_AT_ONCE = 32  # calls of one app; half of what one provider may have open, so that no app fills the row of another
_FAILURES = 3  # in a row, before it opens without having been asked to
_LONGEST = 60.0
_MISCONFIGURED = 30.0
_PROBE = 30.0  # the longest that one trial call keeps the others waiting


@dataclass(slots=True)
class _Circuit:
    failures: int = 0
    code: Code | None = None
    until: float = 0.0
    trial_until: float = 0.0


class Circuits:
    """The circuits of one process. Times are the clock's monotonic seconds; pauses are spread by jitter."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._circuits: dict[str, _Circuit] = {}
        self._rows: dict[str, asyncio.Semaphore] = {}

    @asynccontextmanager
    async def turn(self, app: str, *, wait: float) -> AsyncIterator[None]:
        """One of the calls that an app may have under way. Raises what `check` raises, looked at when it is our turn,
        and `providerUnreachable` after `wait` seconds in the row."""
        row = self._rows.setdefault(app, asyncio.Semaphore(_AT_ONCE))
        try:
            async with asyncio.timeout(wait):
                await row.acquire()
            ours = True
        except TimeoutError:
            ours = False
        if not ours:
            raise BrokerError(Code.PROVIDER_UNREACHABLE, note="too many wait for this provider", retry_after_seconds=1)
        try:
            self.check(app)
            yield
        finally:
            row.release()

    def pause(self, app: str) -> float:
        """Seconds until somebody may ask again; 0 for now."""
        circuit = self._circuits.get(app)
        if circuit is None or circuit.code is None:
            return 0.0
        return max(0.0, max(circuit.until, circuit.trial_until) - self._clock.monotonic())

    def check(self, app: str) -> None:
        """Raises the code that opened the circuit, with the seconds left. Once they are over, one call at a time may
        try again."""
        circuit, left = self._circuits.get(app), self.pause(app)
        if circuit is None or circuit.code is None:
            return
        if left > 0:
            raise BrokerError(circuit.code, note="not asked again yet", retry_after_seconds=max(1, round(left)))
        circuit.trial_until = self._clock.monotonic() + _PROBE

    def worked(self, app: str) -> None:
        """The provider answered as it should."""
        self._circuits.pop(app, None)

    def failed(self, app: str, error: BrokerError) -> bool:
        """Notes a failure; whether it opened the circuit, which is worth one line in the log.

        429 and an asked-for pause open it at once and for as long as the provider said, a refused client for 30 s,
        other failures after three in a row for 1 s, then twice as long each time up to a minute.
        """
        if error.code not in _COUNTED:  # it answered, and spoke of one grant
            self.worked(app)
            return False
        circuit = self._circuits.setdefault(app, _Circuit())
        circuit.failures += 1
        pause = self._pause(circuit, error)
        if pause is None:
            return False
        news = circuit.code is not error.code
        circuit.code, circuit.until, circuit.trial_until = error.code, self._clock.monotonic() + pause, 0.0
        return news

    def _pause(self, circuit: _Circuit, error: BrokerError) -> float | None:
        match error.code:
            case Code.APP_MISCONFIGURED:
                return _MISCONFIGURED
            case Code.PROVIDER_RATE_LIMITED | Code.PROVIDER_UNREACHABLE if error.retry_after_seconds is not None:
                return float(error.retry_after_seconds)
            case Code.PROVIDER_RATE_LIMITED:
                return self._spread(circuit.failures - 1)
            case Code.PROVIDER_UNREACHABLE if circuit.failures >= _FAILURES:
                return self._spread(circuit.failures - _FAILURES)
        return None

    def _spread(self, step: int) -> float:
        longest = min(2.0 ** min(step, 10), _LONGEST)
        return self._clock.jitter(longest / 2, longest)
