"""Circuit breakers: while a provider is down, too busy or refuses our client, calls fail at once instead of asking it.

One for each app, and one for each grant, because trouble with one user's account must not stop the others. `Suspects`
assesses which of the two it is.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Literal

from oauthbroker.core.bounded_cache import Bounded
from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.refresh.concurrency_limit import ConcurrencyLimit
from oauthbroker.refresh.suspects import ALL, SEVERAL, Suspects

News = Literal["", "app", "grant"]
UNREACHED = frozenset({Code.PROVIDER_UNREACHABLE, Code.OUTGOING_PROXY_REFUSED})  # nothing was sent, or no answer came
COUNTED = {Code.APP_MISCONFIGURED, Code.PROVIDER_RATE_LIMITED, *UNREACHED}
_FAILURES = 3  # in a row, before it opens without having been asked to
_MISCONFIGURED = 30.0
_LONGEST = {Code.APP_MISCONFIGURED: _MISCONFIGURED, **dict.fromkeys(UNREACHED, 5.0)}  # an app's; 60 s for other codes
_LONGEST_OWN = dict.fromkeys(UNREACHED, 15.0)  # a grant's; 60 s for other codes
_MINUTE = 60.0
_PROBE = 30.0  # seconds for which a trial without a turn keeps the other calls waiting
_GOOD_FIRST = 5.0  # seconds for which a trial is kept for a grant that did not fail last
_SHORTEST = 1.0  # seconds that the other calls are told to wait at least while a turn tries
_MOST_OWN = 10_000


@dataclass(slots=True, kw_only=True)
class _Circuit:
    failures: int = 0
    code: Code | None = None
    until: float = 0.0
    trial_until: float = 0.0
    is_tried: bool = False  # by a turn, which gives its place back when it leaves
    asked: bool = False  # the provider named the time

    def seconds_left(self, now: float) -> float:
        """Return the seconds until the next call may try; 0 or less for now."""
        if self.is_tried:  # its turn ends soon, and ends the trial
            return max(self.until - now, _SHORTEST)
        return max(self.until, self.trial_until) - now


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
    under way at the most; a provider that slows down gets fewer.
    """

    def __init__(self, clock: Clock, at_once: int = 32) -> None:
        self._clock = clock
        self._at_once = at_once
        self._circuits: dict[str, _Circuit] = {}
        self._own = Bounded[tuple[str, str], _Circuit](_MOST_OWN)
        self._suspects = defaultdict[str, Suspects](Suspects)
        self._limits = defaultdict[str, ConcurrencyLimit](partial(ConcurrencyLimit, clock, at_once))
        self._rows_of_failing: dict[str, asyncio.Semaphore] = {}

    @asynccontextmanager
    async def permit(self, app: str, grant: str = "", *, wait: float) -> AsyncIterator[None]:
        """Hold one of the places for calls that an app may have under way. Raises as `check` does once it has a place,
        and `providerUnreachable` after `wait` seconds without one. Grants that failed last get half of the places: an
        account whose calls hang must not hold all."""
        async with AsyncExitStack() as places:
            try:
                async with asyncio.timeout(wait):
                    for row in self._rows_of(app, grant):
                        await places.enter_async_context(row)
                ours = True
            except TimeoutError:
                ours = False
            if not ours:
                note = "too many wait for this provider"
                raise BrokerError(Code.PROVIDER_UNREACHABLE, note=note, retry_after_seconds=1)
            trial = self._admit(app, grant)
            try:
                if trial is not None:
                    trial.is_tried = True
                yield
            finally:
                if trial is not None:  # one that never reached the provider has told nothing
                    trial.is_tried, trial.trial_until = False, 0.0

    def _rows_of(self, app: str, grant: str) -> list[AbstractAsyncContextManager[None]]:
        every = self._limits[app].held(grant)
        if not self._suspects[app].has_failed(grant):
            return [every]
        return [self._rows_of_failing.setdefault(app, asyncio.Semaphore(max(1, self._at_once // 2))), every]

    def pause(self, app: str, grant: str = "") -> float:
        """Return the seconds until a call may ask again; 0 for now."""
        found = self._closed_way(app, grant)
        return 0.0 if found is None else found[1]

    def check(self, app: str, grant: str = "") -> None:
        """Raise the code that opened the circuit, with the seconds left. Once they are over, one call at a time may try
        again; without a `turn`, one in half a minute. A grant that did not fail last comes first."""
        self._admit(app, grant)

    def _admit(self, app: str, grant: str) -> _Circuit | None:
        """Do the work of `check`. Return the circuit whose trial this call is; None if it is no trial."""
        found = self._closed_way(app, grant)
        if found is not None:
            code, left = found
            error = BrokerError(code, note="not asked again yet")
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
        every = [((app, ""), circuit) for app, circuit in self._circuits.items()] + self._own.items()
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
        return [app for app, circuit in self._circuits.items() if circuit.until > now]

    def worked(self, app: str, grant: str = "") -> None:
        """Close the circuits after a successful answer. Grants that have failed since the last one may try at once,
        unless the provider asked them to wait: perhaps it is back."""
        common = self._circuits.pop(app, None)
        self._own.pop((app, grant))
        if app in self._limits:
            self._limits[app].answered(grant)
        was_open = common is not None and common.code is not None
        for each in self._suspects[app].worked(grant, all_were_paused=was_open):
            own = self._own.get((app, each))
            if own is not None and not own.asked and own.code is not Code.PROVIDER_RATE_LIMITED:
                own.until = self._clock.monotonic()

    def reset(self, app: str) -> None:
        """Close all circuits of an app whose configuration has changed."""
        self._circuits.pop(app, None)
        self._suspects.pop(app, None)
        for pair in [pair for pair in self._own if pair[0] == app]:
            self._own.pop(pair)

    def failed(self, app: str, error: BrokerError, grant: str = "", *, own: bool = False) -> News:
        """Count a failure. Return whose circuit it opened, if any, so that the caller logs it once.

        429 and `Retry-After` open the circuit at once, for the provider's time; a refused client for 30 s; three other
        failures in a row for 1 s, then for twice as long each time, up to 5 s. A failure that may be the grant's
        `own` pauses that grant alone: three tries, then as above, up to 15 s. Where several grants fail and none works,
        it is the app's news, and where very many do, the app's circuit opens, at first for 1 s: that is a guess.
        """
        if error.code is Code.PROVIDER_RATE_LIMITED and app in self._limits:
            self._limits[app].slow_down(grant)
        if error.code not in COUNTED:  # it answered, and spoke of one grant
            self._circuits.pop(app, None)
            return ""
        if own:
            return self._failed_alone(app, error, grant)
        circuit = self._circuits.setdefault(app, _Circuit())
        circuit.failures += 1
        pause = self._pause(circuit, error)
        return "app" if pause is not None and self._open(circuit, error.code, pause) else ""

    def _failed_alone(self, app: str, error: BrokerError, grant: str) -> News:
        now, suspects = self._clock.monotonic(), self._suspects[app]
        is_news = not self._may_go_on(app, grant, error) and self.pause_one(app, grant, error)
        failing = suspects.failed(grant, error.code, now)
        circuit = self._circuits.setdefault(app, _Circuit())
        was_trial = circuit.code is not None and circuit.until <= now and not suspects.is_alone(grant)
        if was_trial or (failing >= ALL and circuit.code is not error.code):
            circuit.failures = circuit.failures + 1 if was_trial else 1
            self._open(circuit, error.code, self._spread(circuit.failures - 1, _LONGEST.get(error.code, _MINUTE)))
        if failing >= SEVERAL and suspects.tell_once(error.code):
            return "app"
        return "grant" if is_news and not suspects.is_reported(error.code) else ""

    def _may_go_on(self, app: str, grant: str, error: BrokerError) -> bool:
        """Count the first two of three failures in a row, after which nothing pauses."""
        own = self._own.get((app, grant)) or _Circuit()
        if error.code not in UNREACHED or error.retry_after_seconds is not None:
            return False
        if own.failures + 1 >= _FAILURES:
            return False
        own.failures += 1
        self._own.keep((app, grant), own)
        return True

    def _open(self, circuit: _Circuit, code: Code, pause: float) -> bool:
        news = circuit.code is not code
        circuit.code, circuit.until, circuit.trial_until = code, self._clock.monotonic() + pause, 0.0
        return news

    def pause_one(self, app: str, grant: str, error: BrokerError) -> bool:
        """Open the grant's circuit for the provider's time, or for 1 s, then for twice as long each time, up to a
        minute; 15 s where the provider failed. Return whether it opened for a new reason."""
        circuit = self._own.get((app, grant)) or _Circuit()
        self._own.keep((app, grant), circuit)
        news = circuit.code is not error.code
        circuit.failures += 1
        circuit.code, asked = error.code, error.retry_after_seconds
        circuit.asked = asked is not None
        longest = _LONGEST_OWN.get(error.code, _MINUTE)
        pause = self._spread(circuit.failures, longest) if asked is None else float(asked)
        circuit.until = self._clock.monotonic() + pause
        return news

    def _closed_way(self, app: str, grant: str) -> tuple[Code, float] | None:
        """Return why this grant may not ask, and for how many seconds: what lasts longest of the grant's circuit, the
        app's, and the precedence of grants that did not fail. None if it may."""
        now, found = self._clock.monotonic(), list[tuple[Code, float]]()
        own, common = self._own.get((app, grant)), self._circuits.get(app)
        if own is not None and own.code is not None:
            found.append((own.code, own.seconds_left(now)))
        if common is not None and common.code is not None:
            suspects, left = self._suspects[app], common.seconds_left(now)
            if suspects.any_good and suspects.has_failed(grant):
                left = max(left, common.until + _GOOD_FIRST - now)
            found.append((common.code, left))
        code_and_left = max(found, key=lambda each: each[1], default=None)
        return code_and_left if code_and_left is not None and code_and_left[1] > 0 else None

    def _pause(self, circuit: _Circuit, error: BrokerError) -> float | None:
        match error.code:
            case Code.APP_MISCONFIGURED:
                return _MISCONFIGURED
            case Code.PROVIDER_RATE_LIMITED | Code.PROVIDER_UNREACHABLE if error.retry_after_seconds is not None:
                return float(error.retry_after_seconds)
            case Code.PROVIDER_RATE_LIMITED:
                return self._spread(circuit.failures - 1, _MINUTE)
            case Code.PROVIDER_UNREACHABLE | Code.OUTGOING_PROXY_REFUSED if circuit.failures >= _FAILURES:
                return self._spread(circuit.failures - _FAILURES, _LONGEST[error.code])
        return None

    def _spread(self, step: int, longest: float) -> float:
        pause = min(2.0 ** min(step, 10), longest)
        return self._clock.jitter(pause / 2, pause)
