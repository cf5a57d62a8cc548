"""The log of the process: one JSON object a line."""

from __future__ import annotations

import json
from typing import Any, Protocol, Self, TextIO

from oauthbroker.core.clock import Clock, to_iso

_encode = json.JSONEncoder(default=repr).encode


class Log(Protocol):
    """The log of the process, as the parts write it; a logger of structlog is one. `event` is a fixed sentence; values
    are fields."""

    def bind(self, **fields: Any) -> Self:
        """Return a log whose lines have these fields, too."""
        ...

    def info(self, event: str, **fields: Any) -> Any: ...

    def warning(self, event: str, **fields: Any) -> Any: ...

    def error(self, event: str, **fields: Any) -> Any: ...


class JsonLog:
    """Writes one JSON object a line, ASCII only, so that no value can start a line of its own."""

    __slots__ = ("_clock", "_fields", "_stream")

    def __init__(self, stream: TextIO, clock: Clock, fields: dict[str, Any]) -> None:
        self._stream = stream
        self._clock = clock
        self._fields = fields

    def bind(self, **fields: Any) -> Self:
        return type(self)(self._stream, self._clock, self._fields | fields)

    def info(self, event: str, **fields: Any) -> None:
        self._write("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._write("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._write("error", event, fields)

    def _write(self, level: str, event: str, fields: dict[str, Any]) -> None:
        said = {"time": to_iso(self._clock.now()), **self._fields, **fields, "event": event, "level": level}
        self._stream.write(_encode(said) + "\n")
        self._stream.flush()


def json_log(stream: TextIO, clock: Clock) -> JsonLog:
    return JsonLog(stream, clock, {})
