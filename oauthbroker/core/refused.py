"""A refusal of a command or of a server's start: one sentence, and the exit statuses of the process."""

from __future__ import annotations

import traceback
from typing import Any

CRASHED, REFUSED, TEMPORARY, STOPPED = 1, 2, 75, 130  # EX_TEMPFAIL of sysexits.h: worth another start


class Refused(Exception):
    """A refusal with a sentence of ours, which says what to do and holds no secret. `more` is what `--json` adds."""

    def __init__(self, text: str, **more: Any) -> None:
        super().__init__(text)
        self.more = more


class RefusedForNow(Refused):
    """A refusal that passes by itself, such as an address that another process has."""


def described(crash: BaseException) -> str:
    """Return the type and the innermost lines: `KeyError at wiring.py:120, grants.py:31`. Nothing of its message."""
    while isinstance(crash, BaseExceptionGroup):
        crash = crash.exceptions[0]
    frames = traceback.extract_tb(crash.__traceback__)[-3:]
    places = ", ".join(f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in reversed(frames))
    return f"{type(crash).__name__} at {places or 'an unknown place'}"
