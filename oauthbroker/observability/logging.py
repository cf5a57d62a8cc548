"""The log: records of the logger `oauthbroker`, quiet until an embedding program configures `logging`; or JSON lines,
which `oauthbroker serve` chooses. No secret reaches it: a `Secret` shows stars (core/secret)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from json import JSONEncoder, encoder
from typing import Any, Final, Protocol, Self, TextIO

from oauthbroker.core.clock import Clock, Spelling

LOGGER: Final = logging.getLogger("oauthbroker")
LOGGER.addHandler(logging.NullHandler())  # without one, logging prints warnings itself


class Log(Protocol):
    """The log of the process (structlog's fits, too). `event` is a fixed sentence; values are fields."""

    def bind(self, **fields: Any) -> Self:
        """Return a log whose lines have these fields, too."""
        ...

    def info(self, event: str, **fields: Any) -> Any: ...

    def warning(self, event: str, **fields: Any) -> Any: ...

    def error(self, event: str, **fields: Any) -> Any: ...


class LoggerLog:
    """Writes records of a logger: the event and its fields as text, and as the attributes `event` and `fields`."""

    __slots__ = ("_fields", "_logger")

    def __init__(self, logger: logging.Logger, fields: dict[str, Any]) -> None:
        self._logger, self._fields = logger, fields

    def bind(self, **fields: Any) -> Self:
        return type(self)(self._logger, self._fields | fields)

    def info(self, event: str, **fields: Any) -> None:
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._write(logging.ERROR, event, fields)

    def _write(self, level: int, event: str, fields: dict[str, Any]) -> None:
        if self._logger.isEnabledFor(level):
            fields = self._fields | fields
            text = " ".join([event, *(f"{name}={value!r}" for name, value in fields.items())])
            self._logger.log(level, "%s", text, extra={"event": event, "fields": fields}, stacklevel=3)


class JsonLog:
    """Writes one JSON object a line, ASCII only, so that no value can start a line of its own."""

    __slots__ = ("_clock", "_fields", "_spelt", "_stream")

    def __init__(self, stream: TextIO, clock: Clock, fields: dict[str, Any]) -> None:
        self._stream = stream
        self._clock = clock
        self._fields = fields
        self._spelt = Spelling()

    def bind(self, **fields: Any) -> Self:
        return type(self)(self._stream, self._clock, self._fields | fields)

    def info(self, event: str, **fields: Any) -> None:
        self._write("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._write("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._write("error", event, fields)

    def _write(self, level: str, event: str, fields: dict[str, Any]) -> None:
        line = {"time": self._spelt(self._clock.now()), **self._fields, **fields, "event": event, "level": level}
        self._stream.write(_encode(line) + "\n")
        self._stream.flush()


def _prepared() -> Callable[[dict[str, Any]], str]:
    """Return JSON's encoder. `JSONEncoder.encode` makes a new one for each document, which costs as much as a line."""
    make = getattr(encoder, "c_make_encoder", None)
    if make is None:
        return JSONEncoder(default=repr).encode
    pieces = make(None, repr, encoder.encode_basestring_ascii, None, ": ", ", ", False, False, True)
    return lambda document: "".join(pieces(document, 0))


_encode = _prepared()


def logger_log() -> LoggerLog:
    return LoggerLog(LOGGER, {})


def json_log(stream: TextIO, clock: Clock) -> JsonLog:
    return JsonLog(stream, clock, {})
