"""Keep the texts of libraries' log records out of our log: they may quote a request (case 92)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from oauthbroker.core.refused import described

if TYPE_CHECKING:
    from oauthbroker.observability.logging import Log


class LibraryLog(logging.Handler):
    """Logs the source and level of libraries' log records. Their texts may quote a request and are dropped."""

    def __init__(self, log: Log) -> None:
        super().__init__(level=logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        crash = record.exc_info[1] if record.exc_info else None
        self._log.warning(
            "library",
            library=record.name,
            severity=record.levelname.lower(),
            place=f"{record.filename}:{record.lineno}",
            **({"crash": described(crash)} if crash is not None else {}),
        )


@contextmanager
def calm_libraries(log: Log) -> Iterator[None]:
    """Forward, inside the block, every library's warnings and errors to `log`, and drop lower levels."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    root.handlers[:] = [LibraryLog(log)]
    root.setLevel(logging.WARNING)
    try:
        yield
    finally:
        root.handlers[:] = before[0]
        root.setLevel(before[1])
