"""TestClock: a clock that the test moves, and repeatable randomness."""

from __future__ import annotations

import asyncio
import random
import secrets
from datetime import UTC, datetime, timedelta

_LONGEST_REAL_SLEEP = 0.002  # short for the test's speed, and long enough for other tasks to run


class TestClock:
    """A `Clock` for tests. It stands still until `advance` or `set`, and `sleep` moves it.

    `start` is an aware time (default: about the real time now, never later and never a whole second, so that rounding
    shows). With `frozen=True`, `sleep` does not move it; a sleeping task waits until the test advances the clock.
    Random bytes come from the system's CSPRNG. With `seed` they repeat, and are not secret.
    """

    __test__ = False  # keeps pytest from collecting it

    def __init__(self, start: datetime | None = None, *, frozen: bool = False, seed: int | None = None) -> None:
        now = start or datetime.now(UTC).replace(microsecond=654_321) - timedelta(seconds=1)
        if now.tzinfo is None:
            raise ValueError("TestClock needs an aware moment, for instance datetime(2026, 1, 31, tzinfo=UTC)")
        self._now = now.astimezone(UTC)
        self._monotonic = 1000.0
        self._frozen = frozen
        self._dice = random.Random(seed)
        self._seeded = seed is not None

    def now(self) -> datetime:
        """Return the clock's time, aware, UTC."""
        return self._now

    def monotonic(self) -> float:
        """Return monotonic seconds, moved by `advance` and not by `set`."""
        return self._monotonic

    async def sleep(self, seconds: float) -> None:
        """Let `seconds` pass on this clock; in real time at most about 2 ms (frozen: until `advance` gets there)."""
        until = self._monotonic + max(0.0, seconds)
        if self._frozen:
            await asyncio.sleep(0)
            while self._monotonic < until:
                await asyncio.sleep(_LONGEST_REAL_SLEEP)
            return
        await asyncio.sleep(min(max(0.0, seconds), _LONGEST_REAL_SLEEP))
        if self._monotonic < until:  # two concurrent sleeps overlap instead of adding up
            self.advance(until - self._monotonic)

    def advance(self, seconds: float) -> None:
        """Advance wall time and monotonic time by `seconds` (not negative; to go back, use `set`)."""
        if seconds < 0:
            raise ValueError("time only advances; use set() to make the wall clock jump back")
        self._now += timedelta(seconds=seconds)
        self._monotonic += seconds

    def set(self, moment: datetime) -> None:
        """Set the wall clock to `moment` (aware), in either direction; monotonic time stays."""
        if moment.tzinfo is None:
            raise ValueError("TestClock needs an aware moment")
        self._now = moment.astimezone(UTC)

    def random_bytes(self, count: int) -> bytes:
        """Return bytes from the system's CSPRNG, or from the seed."""
        return self._dice.randbytes(count) if self._seeded else secrets.token_bytes(count)

    def jitter(self, low: float, high: float) -> float:
        """Return a number between `low` and `high`, the same ones in each run with a `seed`."""
        return self._dice.uniform(low, high)
