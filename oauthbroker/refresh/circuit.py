"""Circuits: while a provider is down, too busy or refuses our client, nobody waits to be told so again.

One per app, and one per grant for trouble that is that grant's own: one person's account must not stop everybody's.
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
_GRANTS = 2  # that have failed since the last success, before what may be one grant's own trouble is the app's
_SHORT_TIME = 60.0  # within which as many grants must be asked to wait, before that is the app's
_LONGEST = 60.0
_MISCONFIGURED = 30.0
_PROBE = 30.0  # how long a trial that has no turn keeps the others waiting
_SHORTEST = 1.0  # what the others are told to wait at least while a turn tries
_MOST_OWN = 10_000


@dataclass(slots=True)
class _Circuit:
    failures: int = 0
    grants: dict[str, tuple[Code, float]] = field(default_factory=dict)  # how each has failed last, and when
    code: Code | None = None
    until: float = 0.0
    trial_until: float = 0.0
    is_tried: bool = False  # by a turn, which gives its place back when it leaves

    def seconds_left(self, now: float) -> float:
        """Until the next call may try; 0 or less for now."""
        left = max(self.until, self.trial_until) - now
        return max(left, _SHORTEST) if self.is_tried else left


@dataclass(frozen=True, slots=True)
class OpenCircuit:
    """Who is not asked for now, why, and for how many seconds more. `grant` is empty for all of an app."""

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
        """One of the calls that an app may have under way. Raises what `check` raises, looked at when it is our turn,
        and `providerUnreachable` after `wait` seconds in the row."""
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
        """Seconds until somebody may ask again; 0 for now."""
        circuit = self._closed_way(app, grant)
        return 0.0 if circuit is None else circuit.seconds_left(self._clock.monotonic())

    def check(self, app: str, grant: str = "") -> None:
        """Raises the code that opened the circuit, with the seconds left. Once they are over, one call at a time may
        try again: for a caller without a `turn` that is one in half a minute."""
        self._admit(app, grant)

    def _admit(self, app: str, grant: str) -> _Circuit | None:
        """What `check` does; the circuit whose trial this call is, None for a call that is none."""
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
        """Every circuit of this process that is open, the apps' before those of single grants."""
        now = self._clock.monotonic()
        every = [((app, ""), circuit) for app, circuit in self._circuits.items()] + list(self._own.items())
        return [
            OpenCircuit(app, grant, circuit.code, circuit.until - now, circuit.failures)
            for (app, grant), circuit in every
            if circuit.code is not None and circuit.until > now
        ]

    def open_for(self) -> list[str]:
        """The apps whose circuits are open now; those of single grants are not counted."""
        now = self._clock.monotonic()
        return [app for app, circuit in self._circuits.items() if circuit.code is not None and circuit.until > now]

    def worked(self, app: str, grant: str = "") -> None:
        """The provider answered as it should."""
        self._circuits.pop(app, None)
        self._own.pop((app, grant), None)

    def failed(self, app: str, error: BrokerError, grant: str = "", *, own: bool = False) -> News:
        """Notes a failure; whose circuit it opened, if any, which is worth one line in the log.

        429 and an asked-for pause open it at once and for as long as the provider said, a refused client for 30 s,
        other failures after three in a row for 1 s, then twice as long each time up to a minute. What may be one
        grant's `own` trouble pauses that grant, and counts for the app once another grant has met it too: 429 when
        that was within a minute, or when it is what the app's circuit was open for.
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
        """Nobody asks for this grant for as long as the provider said, or 1 s, then twice as long each time up to a
        minute. Whether that is news."""
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
        """What stands in the way right now, if anything: the longer of the app's and the grant's own."""
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
