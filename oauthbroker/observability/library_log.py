"""The log records of libraries, without their texts, which may quote a request (case 92)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from oauthbroker.core.refused import described
from oauthbroker.observability.logging import Log
from oauthbroker.observability.sampled_lines import SampledLines

_ours: ContextVar[bool] = ContextVar("oauthbroker_unlogged", default=False)


class LibraryLog(logging.Handler):
    """Logs the source and level of libraries' log records, sampled: a stranger can cause some of them at will."""

    def __init__(self, log: Log) -> None:
        super().__init__(level=logging.WARNING)
        self._log, self._sampled = log, SampledLines(log)

    def emit(self, record: logging.LogRecord) -> None:
        place = f"{record.filename}:{record.lineno}"
        if not self._sampled.admits((("library", record.name), ("place", place)), record.created):
            return
        crash = record.exc_info[1] if record.exc_info else None
        self._log.warning(
            "library",
            library=record.name,
            severity=record.levelname.lower(),
            place=place,
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


@contextmanager
def unlogged(library: str) -> Iterator[None]:
    """Drop a library's log records of our calls inside the block, which may quote a secret. An embedding program's own
    calls are logged as before."""
    for name in [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == library]:
        logging.getLogger(name).addFilter(_not_ours)
    before = _ours.set(True)
    try:
        yield
    finally:
        _ours.reset(before)


def _not_ours(_: logging.LogRecord) -> bool:
    return not _ours.get()
