"""Send the records of stdlib's logging to the process's log: ours whole, those of libraries without their texts, which
may quote a request (case 92)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from oauthbroker.core.refused import described
from oauthbroker.observability.logging import LOGGER, Log
from oauthbroker.observability.sampled_lines import SampledLines

OURS: ContextVar[bool] = ContextVar("oauthbroker_unlogged", default=False)


class LibraryLog(logging.Handler):
    """Logs our records, and the source and level of libraries' warnings, sampled: a stranger can cause some at will."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log, self._sampled = log, SampledLines(log)

    def emit(self, record: logging.LogRecord) -> None:
        is_ours, place = _is_ours(record), _place(record)
        if record.levelno < (logging.INFO if is_ours else logging.WARNING):
            return
        if not self._sampled.admits((("library", record.name), ("place", place)), record.created):
            return
        if is_ours:
            self._write(record.levelno)("message", logger=record.name, text=record.getMessage())
            return
        crash = record.exc_info[1] if record.exc_info else None
        self._log.warning(
            "library",
            library=record.name,
            severity=record.levelname.lower(),
            place=place,
            **({"crash": described(crash)} if crash is not None else {}),
        )

    def _write(self, level: int) -> Callable[..., object]:
        if level >= logging.ERROR:
            return self._log.error
        return self._log.warning if level >= logging.WARNING else self._log.info


def _is_ours(record: logging.LogRecord) -> bool:
    return record.name.partition(".")[0] == LOGGER.name


def _place(record: logging.LogRecord) -> str:
    return f"{record.filename}:{record.lineno}"


@contextmanager
def calm_libraries(log: Log) -> Iterator[None]:
    """Forward, inside the block, our records from INFO on to `log`, and every library's warnings and errors."""
    with _configured(LOGGER, logging.INFO, []), _configured(logging.getLogger(), logging.WARNING, [LibraryLog(log)]):
        yield


@contextmanager
def shown_to_people(say: Callable[[str], None]) -> Iterator[None]:
    """Give, inside the block, our warnings to `say`, a line each, and the sources of libraries' warnings."""
    root, handler = logging.getLogger(), _SaidLog(say)
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


class _SaidLog(logging.Handler):
    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        level = record.levelname.lower()
        if _is_ours(record):
            self._say(f"{level}: {record.getMessage()}")
        elif record.levelno >= logging.WARNING:
            self._say(f"{level}: {record.name} at {_place(record)}")


@contextmanager
def _configured(logger: logging.Logger, level: int, handlers: list[logging.Handler]) -> Iterator[None]:
    before = logger.handlers[:], logger.level
    logger.handlers[:] = handlers
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.handlers[:] = before[0]
        logger.setLevel(before[1])


@contextmanager
def unlogged(library: str) -> Iterator[None]:
    """Drop a library's log records of our calls inside the block, which may quote a secret. An embedding program's own
    calls are logged as before."""
    for name in [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == library]:
        logging.getLogger(name).addFilter(not_ours)
    before = OURS.set(True)
    try:
        yield
    finally:
        OURS.reset(before)


def not_ours(_: logging.LogRecord) -> bool:
    """Drop a library's records of our calls (`OURS`), which hold URLs, headers and secrets. Others pass."""
    return not OURS.get()
