"""The log of the process: one JSON object a line."""

from __future__ import annotations

import json
from typing import Any, Protocol, TextIO

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, WrappedLogger

from oauthbroker.core.clock import Clock, to_iso

_LEVELS = {"warn": "warning", "exception": "error"}  # methods that are named otherwise than their level


class Log(Protocol):
    """The log of the process, as the parts write it. `event` is a fixed sentence; values are fields."""

    def warning(self, event: str, *args: Any, **fields: Any) -> Any: ...

    def error(self, event: str, *args: Any, **fields: Any) -> Any: ...


def json_log(stream: TextIO, clock: Clock) -> FilteringBoundLogger:
    """Return a structured logger: one JSON object a line, ASCII only, so that no value can start a line of its own."""
    encode = json.JSONEncoder(default=repr).encode

    def line(_logger: WrappedLogger, name: str, event: EventDict) -> str:
        return encode({"time": to_iso(clock.now()), **event, "level": _LEVELS.get(name, name)})

    class Lines(structlog.make_filtering_bound_logger("info")):  # type: ignore[misc]
        """Writes a line of the level info in one step, because every request has one."""

        def info(self, event: str, *args: Any, **fields: Any) -> Any:
            if args:
                return super().info(event, *args, **fields)
            said = {"time": to_iso(clock.now()), **self._context, **fields, "event": event, "level": "info"}
            return self._logger.msg(encode(said))

    logger: FilteringBoundLogger = structlog.wrap_logger(
        structlog.WriteLogger(stream),
        processors=[line],
        wrapper_class=Lines,
        cache_logger_on_first_use=True,
    )
    return logger
