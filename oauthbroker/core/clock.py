"""Read the time and make random values. Only this module may do either."""

from __future__ import annotations

import binascii
import os
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol

LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)  # before any setting of a clock
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
SET_BACK = timedelta(minutes=5)  # clocks of machines on one store may differ by less
BELIEVED_SECONDS = 7 * 24 * 3600.0  # a clock that kept pace for so long is right


class Clock(Protocol):
    """What the broker may know of time and chance; tests inject their own (`oauthbroker.testing.TestClock`)."""

    def now(self) -> datetime:
        """Return the wall time, aware, UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that only grow; for deadlines inside one process."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for so many seconds."""
        ...

    def random_bytes(self, count: int) -> bytes:
        """Return random bytes from the system's CSPRNG."""
        ...

    def jitter(self, low: float, high: float) -> float:
        """Return a number between low and high, for spreading retries; not for secrets."""
        ...


class SystemClock:
    """The real thing. The times are the interpreter's own functions, because each token call reads them."""

    now = staticmethod(partial(datetime.now, UTC))
    monotonic = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        """Wait for so many seconds in the event loop."""
        import asyncio  # a third of the start of a program that has no event loop, such as a tool with the sync client

        await asyncio.sleep(seconds)

    def random_bytes(self, count: int) -> bytes:
        """Return random bytes from the system's CSPRNG."""
        return os.urandom(count)

    def jitter(self, low: float, high: float) -> float:
        """Return a number from `low` up to `high`; not for secrets."""
        return low + (high - low) * int.from_bytes(os.urandom(7), "big") / (1 << 56)


class ThreadClock(SystemClock):
    """The real thing for a thread without an event loop: `sleep` blocks it."""

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251  (no event loop waits in this thread)


def give_way(seconds: float = 0.000_05) -> None:
    """Let other threads of the interpreter run, for so many seconds. A thread that only computes has the interpreter's
    lock for five milliseconds each time, and the event loop waits for as long at each system call."""
    time.sleep(seconds)


class CertainTime:
    """The latest time that has certainly passed. Deletions that cannot be undone go by it: a clock that was set forward
    may be set back.

    The clock is believed once it has kept pace with this process for a week. Until then only the time that the process
    has run counts, from the clock's earliest reading. So after a step back, or after the machine was suspended, it
    is behind for two weeks of running at most.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._turned = clock.monotonic()
        self._began: datetime = self._start()  # the process's start by the clock: the earliest since `_turned`
        self._before: datetime = self._began  # and in the week before

    def now(self) -> datetime:
        """Return the clock's time, or an earlier one if the clock has moved further than this process has run."""
        start, monotonic = self._start(), self._clock.monotonic()
        if monotonic - self._turned >= BELIEVED_SECONDS:
            self._before, self._began, self._turned = self._began, start, monotonic
        self._began = min(self._began, start)
        certain = min(self._before, self._began) + timedelta(seconds=monotonic) + SET_BACK
        return min(self._clock.now(), certain)

    def _start(self) -> datetime:
        return self._clock.now() - timedelta(seconds=self._clock.monotonic())


def has_passed(deadline: datetime, set_at: datetime, now: datetime) -> bool:
    """Return whether a deadline is over. One that was set in the future is: the clock was set back since, by an unknown
    amount, and the deadline would be further away than it can be."""
    return deadline <= now or set_at > now + SET_BACK


def random_text(clock: Clock, bits: int) -> str:
    """`bits` of entropy as unpadded base64url: 128 bits are 22 characters, 256 bits are 43."""
    return url_safe(clock.random_bytes(bits // 8))


def url_safe(given: bytes) -> str:
    """Return bytes as unpadded base64url."""
    return binascii.b2a_base64(given, newline=False).translate(_URL_SAFE, b"=").decode()


def to_iso(moment: datetime) -> str:
    """Return the exact moment, with microseconds when there are any: for records and for the audit log."""
    return f"{(moment if moment.tzinfo is UTC else moment.astimezone(UTC)).isoformat()[:-6]}Z"


class Spelling:
    """Format times as `to_iso` does, and cache the text of the current second."""

    __slots__ = ("_began", "_words")

    def __init__(self) -> None:
        self._began, self._words = datetime.min.replace(tzinfo=UTC), ""

    def __call__(self, at: datetime) -> str:
        since = at - self._began
        if since.seconds or since.days:
            self._began = at.astimezone(UTC).replace(microsecond=0)
            self._words = to_iso(self._began)[:-1]
        return f"{self._words}.{at.microsecond:06}Z" if at.microsecond else f"{self._words}Z"


def printed(moment: datetime) -> str:
    """Return `2026-02-01T10:00:00Z`, as the specification prints times in answers: whole seconds, rounded down.

    Do not sort by it, and do not keep it: moments of the same second look alike.
    """
    return to_iso(moment.replace(microsecond=0))


def from_iso(text: str) -> datetime:
    """Parse the output of `to_iso`. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("a time without a zone")
    return moment if moment.tzinfo is UTC else moment.astimezone(UTC)
