"""TestClock: time that moves when a test says so, and chance that can be repeated."""

from __future__ import annotations

import asyncio
import random
import secrets
from datetime import UTC, datetime, timedelta

_LONGEST_REAL_SLEEP = 0.002  # a frozen clock must not slow a test, and must still let other tasks run


class TestClock:
    """A `Clock` for tests. It stands still until `advance` or `set`, and `sleep` moves it.

    `start` is an aware moment (default: about the real time now, never later and never a whole second, so that
    what is rounded shows). With `frozen=True` a sleep does not move it either; a task that sleeps then waits
    until somebody advances past its moment. Random bytes come from the system's CSPRNG unless `seed` is
    given; then they repeat, and are no secret.
    """

    __test__ = False  # pytest must not take it for a test class

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
        """The moment this clock shows, aware, UTC."""
        return self._now

    def monotonic(self) -> float:
        """Seconds that only grow, moved by `advance`, untouched by `set`."""
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
        if self._monotonic < until:  # two sleepers side by side share the time, they do not add theirs up
            self.advance(until - self._monotonic)

    def advance(self, seconds: float) -> None:
        """Move wall time and monotonic time on by `seconds` (not negative; to go back, use `set`)."""
        if seconds < 0:
            raise ValueError("time only advances; use set() to make the wall clock jump back")
        self._now += timedelta(seconds=seconds)
        self._monotonic += seconds

    def set(self, moment: datetime) -> None:
        """Make the wall clock jump to `moment` (aware), in either direction; monotonic time does not notice."""
        if moment.tzinfo is None:
            raise ValueError("TestClock needs an aware moment")
        self._now = moment.astimezone(UTC)

    def random_bytes(self, count: int) -> bytes:
        """From the system's CSPRNG, or from the seed."""
        return self._dice.randbytes(count) if self._seeded else secrets.token_bytes(count)

    def jitter(self, low: float, high: float) -> float:
        """A number between `low` and `high`."""
        return self._dice.uniform(low, high)
