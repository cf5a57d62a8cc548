"""Convert any output to searchable bytes: text, objects, exceptions with their causes and contexts."""

from __future__ import annotations

import json
import logging
import pickle
import traceback
from collections.abc import Iterator

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def text_of(content: object) -> bytes:
    if isinstance(content, bytes | bytearray | memoryview):
        return bytes(content)
    if isinstance(content, str):
        return content.encode("utf-8", "surrogatepass")
    if isinstance(content, BaseException):
        return "\n".join(_everything_in(content)).encode("utf-8", "surrogatepass")
    return f"{_as_json(content)}\n{content!r}".encode("utf-8", "surrogatepass")


def text_of_record(record: logging.LogRecord) -> bytes:
    """Return the text of a log record: its message, its extras, its exception and the exception's causes."""
    extras = {key: value for key, value in vars(record).items() if key not in _STANDARD}
    parts = [record.getMessage()]
    if extras:
        parts.append(repr(extras))
    if record.exc_info and record.exc_info[1] is not None:
        parts += _everything_in(record.exc_info[1])
    if record.exc_text:
        parts.append(record.exc_text)
    if record.stack_info:
        parts.append(record.stack_info)
    return "\n".join(parts).encode("utf-8", "surrogatepass")


def _as_json(content: object) -> str:
    try:
        return json.dumps(content, default=repr)
    except (TypeError, ValueError, RecursionError):
        return ""


def _everything_in(exc: BaseException) -> list[str]:
    """Return the rendered traceback, and str, repr, args, attributes and pickle of the exception and all linked
    ones."""
    return ["".join(traceback.format_exception(exc)), *(text for one in _chain(exc) for text in _bare(one))]


def _chain(exc: BaseException, seen: set[int] | None = None) -> Iterator[BaseException]:
    """Yield causes, contexts (suppressed ones too) and members of groups, each once."""
    seen = set() if seen is None else seen
    if id(exc) in seen:
        return
    seen.add(id(exc))
    yield exc
    nested = exc.exceptions if isinstance(exc, BaseExceptionGroup) else ()
    for other in (exc.__cause__, exc.__context__, *nested):
        if other is not None:
            yield from _chain(other, seen)


def _bare(exc: BaseException) -> Iterator[str]:
    for view in (str, repr, lambda one: repr(one.args), lambda one: repr(getattr(one, "__dict__", {})), _errors):
        try:
            yield view(exc)
        except Exception as broken:  # noqa: BLE001 - an exception that cannot be printed is still swept otherwise
            yield type(broken).__name__
    try:
        yield pickle.dumps(exc).decode("latin-1")
    except Exception as broken:  # noqa: BLE001 - many exceptions do not pickle
        yield type(broken).__name__


def _errors(exc: BaseException) -> str:
    """Return Pydantic's `errors()`, which hold the input that its repr omits."""
    errors = getattr(exc, "errors", None)
    return repr(errors()) if callable(errors) else ""
