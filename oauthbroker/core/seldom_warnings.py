"""Let a library write its repeated warnings seldom."""

from __future__ import annotations

import logging
from math import inf
from typing import Final

from oauthbroker.core.clock import SystemClock

AGAIN_SECONDS: Final = 60.0


class SeldomWarnings(logging.Filter):
    """Lets one line a minute pass of the warnings that have this text in them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text, self._said = text, -inf

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING or self._text not in record.getMessage():
            return True
        now = SystemClock.monotonic()
        is_due = now - self._said >= AGAIN_SECONDS
        self._said = now if is_due else self._said
        return is_due
