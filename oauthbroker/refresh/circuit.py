"""Circuit breakers: while a provider is down, too busy or refuses our client, calls fail at once instead of asking it.

One for each app, and one for each grant, because trouble with one user's account must not stop the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal

from oauthbroker.core.clock import Clock
from oauthbroker.core.errors import BrokerError, Code

News = Literal["", "app", "grant"]
_COUNTED = {Code.APP_MISCONFIGURED, Code.PROVIDER_RATE_LIMITED, Code.PROVIDER_UNREACHABLE}
_FAILURES = 3  # in a row, before it opens without having been asked to
_GRANTS = 2  # grants that have failed since the last success, before a failure counts for the app
_SHORT_TIME = 60.0  # seconds within which as many grants must meet 429, before it counts for the app
_LONGEST = 60.0
_MISCONFIGURED = 30.0
_PROBE = 30.0  # seconds for which a trial without a turn keeps the other calls waiting
_SHORTEST = 1.0  # seconds that the other calls are told to wait at least while a turn tries
_MOST_OWN = 10_000


@dataclass(slots=True, kw_only=True)
class _Circuit:
    failures: int = 0
    grants: dict[str, tuple[Code, float]] = field(default_factory=dict)  # how each has failed last, and when
    code: Code | None = None
    until: float = 0.0
    trial_until: float = 0.0
    is_tried: bool = False  # by a turn, which gives its place back when it leaves

    def seconds_left(self, now: float) -> float:
        """Return the seconds until the next call may try; 0 or less for now."""
        left = max(self.until, self.trial_until) - now
        return max(left, _SHORTEST) if self.is_tried else left


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCircuit:
    """An open circuit, with its code and the seconds until it lets a call through. `grant` is empty for an app's."""

    app: str
    grant: str
    code: Code
    seconds_left: float
    failures: int


class Circuits:
    """The circuits of one process. Times are the clock's monotonic seconds; pauses are spread by jitter.

    `grant` is a grant's id; left out for calls that are about none. `at_once` are the calls that one app may have
    under way.
    """

    def __init__(self, clock: Clock, at_once: int = 32) -> None:
        self._clock = clock
        self._at_once = at_once
        self._circuits: dict[str, _Circuit] = {}
        self._own: dict[tuple[str, str], _Circuit] = {}
        self._rows: dict[str, asyncio.Semaphore] = {}

    @asynccontextmanager
    async def turn(self, app: str, grant: str = "", *, wait: float) -> AsyncIterator[None]:
        """Hold one of the places for calls that an app may have under way. Raises as `check` does once it has a place,
        and `providerUnreachable` after `wait` seconds without one."""
        row = self._rows.setdefault(app, asyncio.Semaphore(self._at_once))
        try:
            async with asyncio.timeout(wait):
                await row.acquire()
            ours = True
        except TimeoutError:
            ours = False
        if not ours:
            raise BrokerError(Code.PROVIDER_UNREACHABLE, note="too many wait for this provider", retry_after_seconds=1)
        trial: _Circuit | None = None
        try:
            trial = self._admit(app, grant)
            if trial is not None:
                trial.is_tried = True
            yield
        finally:
            row.release()
            if trial is not None:  # one that never reached the provider has told nothing
                trial.is_tried, trial.trial_until = False, 0.0

    def pause(self, app: str, grant: str = "") -> float:
        """Return the seconds until a call may ask again; 0 for now."""
        circuit = self._closed_way(app, grant)
        return 0.0 if circuit is None else circuit.seconds_left(self._clock.monotonic())

    def check(self, app: str, grant: str = "") -> None:
        """Raise the code that opened the circuit, with the seconds left. Once they are over, one call at a time may try
        again; without a `turn`, one in half a minute."""
        self._admit(app, grant)

    def _admit(self, app: str, grant: str) -> _Circuit | None:
        """Do the work of `check`. Return the circuit whose trial this call is; None if it is no trial."""
        circuit = self._closed_way(app, grant)
        if circuit is not None and circuit.code is not None:
            left = circuit.seconds_left(self._clock.monotonic())
            error = BrokerError(circuit.code, note="not asked again yet")
            error.retry_after_seconds = max(1, round(left)) if error.retryable else None
            raise error
        common = self._circuits.get(app)
        if common is None or common.code is None:
            return None
        common.trial_until = self._clock.monotonic() + _PROBE
        return common

    def open_now(self) -> list[OpenCircuit]:
        """Return the open circuits of this process, those of apps before those of grants."""
        now = self._clock.monotonic()
        every = [((app, ""), circuit) for app, circuit in self._circuits.items()] + list(self._own.items())
        return [
            OpenCircuit(
                app=app, grant=grant, code=circuit.code, seconds_left=circuit.until - now, failures=circuit.failures
            )
            for (app, grant), circuit in every
            if circuit.code is not None and circuit.until > now
        ]

    def open_for(self) -> list[str]:
        """Return the apps whose circuits are open now. Circuits of grants are not counted."""
        now = self._clock.monotonic()
        return [app for app, circuit in self._circuits.items() if circuit.code is not None and circuit.until > now]

    def worked(self, app: str, grant: str = "") -> None:
        """Close the circuits after a successful answer."""
        self._circuits.pop(app, None)
        self._own.pop((app, grant), None)

    def failed(self, app: str, error: BrokerError, grant: str = "", *, own: bool = False) -> News:
        """Count a failure. Return whose circuit it opened, if any, so that the caller logs it once.

        429 and `Retry-After` open the circuit at once, for the provider's time; a refused client for 30 s; three other
        failures in a row for 1 s, then for twice as long each time, up to a minute. A failure that may be the grant's
        `own` pauses that grant alone. It counts for the app once a second grant meets it: 429 within a minute, or while
        the app's circuit was open for 429.
        """
        if error.code not in _COUNTED:  # it answered, and spoke of one grant
            self._circuits.pop(app, None)
            return ""
        circuit = self._circuits.setdefault(app, _Circuit())
        circuit.grants[grant] = (error.code, self._clock.monotonic())
        alone = own and self._is_met_alone(circuit, error.code)
        if not alone or error.code is not Code.PROVIDER_RATE_LIMITED:  # an account's own limit is no failure
            circuit.failures += 1
        if alone:
            return "grant" if self.pause_one(app, grant, error) else ""
        pause = self._pause(circuit, error)
        if pause is None:
            return ""
        news = circuit.code is not error.code
        circuit.code, circuit.until, circuit.trial_until = error.code, self._clock.monotonic() + pause, 0.0
        return "app" if news else ""

    def pause_one(self, app: str, grant: str, error: BrokerError) -> bool:
        """Open the grant's circuit for the provider's time, or for 1 s, then for twice as long each time, up to a
        minute. Return whether it opened for a new reason."""
        now = self._clock.monotonic()
        if len(self._own) >= _MOST_OWN:
            self._own = {pair: circuit for pair, circuit in self._own.items() if circuit.until > now}
        circuit = self._own.setdefault((app, grant), _Circuit())
        news = circuit.code is not error.code
        circuit.failures += 1
        circuit.code = error.code
        asked = error.retry_after_seconds
        circuit.until = now + (self._spread(circuit.failures) if asked is None else float(asked))
        return news

    def _is_met_alone(self, circuit: _Circuit, code: Code) -> bool:
        met = [at for each, at in circuit.grants.values() if each is code]
        if code is not Code.PROVIDER_RATE_LIMITED:
            return len(met) < _GRANTS
        young = self._clock.monotonic() - _SHORT_TIME
        return circuit.code is not code and sum(at >= young for at in met) < _GRANTS

    def _closed_way(self, app: str, grant: str) -> _Circuit | None:
        """Return the open circuit that stays open longest, the app's or the grant's; None if both are closed."""
        now = self._clock.monotonic()
        found = [
            circuit
            for circuit in (self._circuits.get(app), self._own.get((app, grant)))
            if circuit is not None and circuit.code is not None and circuit.seconds_left(now) > 0
        ]
        return max(found, key=lambda circuit: circuit.seconds_left(now), default=None)

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
