"""Show on stderr how far long work is: in place on a terminal, as a line every few seconds elsewhere.

Work that is done sooner than that shows nothing. With `--json`, stderr has no such lines unless it is a terminal.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from typing import Final, TextIO

from oauthbroker.core.clock import Clock, SystemClock
from oauthbroker.core.progress import Progress, unseen

SOON: Final = 0.5  # seconds until a terminal shows anything
OFTEN: Final = 0.1  # seconds between two changes on it
SELDOM: Final = 5.0  # seconds between two lines elsewhere
NOTHING: Final = "Stopped. Nothing was changed."
SOMEWHERE: Final = "Stopped before it was done. If it changes something, look how far it came before you type it again."
_CLEAR: Final = "\r\x1b[K"


class Stopped(Exception):
    """Ctrl-C, with a sentence about what the command has changed."""

    def __init__(self, text: str = SOMEWHERE) -> None:
        super().__init__(text)


@contextmanager
def stoppable(text: str) -> Iterator[None]:
    """Raise Stopped with this text at Ctrl-C, which work within may have met already."""
    try:
        yield
    except (KeyboardInterrupt, Stopped):
        raise Stopped(text) from None


def unchanged() -> AbstractContextManager[None]:
    """Say after Ctrl-C that nothing was changed: the command has only read so far."""
    return stoppable(NOTHING)


def resumable() -> AbstractContextManager[None]:
    """Say after Ctrl-C that the command, which may be repeated, goes on where it was stopped."""
    return stoppable("Stopped. Type this again: finished records are not repeated.")


@contextmanager
def progress(*, as_json: bool = False) -> Iterator[Progress]:
    """Yield what takes the counts of long work."""
    in_place = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    if as_json and not in_place:
        yield unseen
        return
    shown = ShownProgress(sys.stderr, SystemClock(), in_place=in_place)
    try:
        yield shown
    finally:
        shown.clear()


class ShownProgress:
    """Writes one count at a time, the one that changed last."""

    def __init__(self, stream: TextIO, clock: Clock, *, in_place: bool) -> None:
        self._stream, self._clock, self._in_place = stream, clock, in_place
        self._next = clock.monotonic() + (SOON if in_place else SELDOM)
        self._what, self._began, self._first = "", 0.0, 0
        self._is_shown = False

    def __call__(self, what: str, done: int, total: int | None) -> None:
        now = self._clock.monotonic()
        if what != self._what:
            self._what, self._began, self._first = what, now, done
        if now < self._next:
            return
        self._next = now + (OFTEN if self._in_place else SELDOM)
        seconds = now - self._began
        self._write(described(what, done, total, (done - self._first) / seconds if seconds else 0.0))

    def clear(self) -> None:
        """Remove the line from a terminal."""
        if self._is_shown and self._in_place:
            self._send(_CLEAR)

    def _write(self, line: str) -> None:
        self._is_shown = True
        self._send(f"{_CLEAR}{line[: self._width() - 1]}" if self._in_place else f"{line}\n")

    def _send(self, text: str) -> None:
        with suppress(OSError):  # the terminal is gone, and the work goes on
            self._stream.write(text)
            self._stream.flush()

    def _width(self) -> int:
        with suppress(OSError):
            return os.get_terminal_size(self._stream.fileno()).columns or 80
        return 80


def described(what: str, done: int, total: int | None, rate: float) -> str:
    """Return `1,200 of 5,000 records copied (24 %), 400 a second, 0:00:10 left`, without the unknown parts."""
    total = None if total is None else max(total, done)  # a running broker adds records meanwhile
    parts = [f"{done:,} {what}" if total is None else f"{done:,} of {total:,} {what}"]
    if total:
        parts[0] += f" ({100 * done // total} %)"
    if rate >= 1:
        parts.append(f"{rate:,.0f} a second")
    if total is not None and rate:
        parts.append(f"{timedelta(seconds=round((total - done) / rate))} left")
    return ", ".join(parts)
