"""Texts of values that code of tools and extensions has made. Each method of such a value may raise anything. The
process of an isolated call imports this file, so it imports little."""

from __future__ import annotations

import json
from typing import Any

from oauthbroker.plugins import plain_json, type_name
from oauthbroker.tools.types.output_limits import READ, VALUE


def text_of(value: object) -> str:
    """Return the text of a foreign value, without halves of characters. One without text is reported by its type.
    A very long text ends at a space."""
    is_error = issubclass(type(value), BaseException)
    try:
        text = (
            str.__str__(value)
            if issubclass(type(value), str)
            else _error_text(value)
            if is_error
            else _json_text(value)
        )
    except BaseException:  # noqa: BLE001  (code of the value)
        text = "" if is_error else f"a value of the type '{type_name(value)}'"
    if not text and is_error:
        return type_name(value)
    text = ended_at_space(text, READ)
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def ended_at_space(text: str, most: int) -> str:
    """Return a text of at most `most` characters. One that is longer ends at a space, because a token that is cut is no
    longer recognised as one."""
    if len(text) <= most:
        return text
    return text[:most].rpartition(" ")[0] or f"a text of {len(text)} characters without a space"


def _json_text(value: object) -> str:
    """Return a value as JSON. `str` of a list may have no end: it repeats parts that are shared."""
    return json.dumps(plain_json(value, VALUE), ensure_ascii=False)


def _error_text(error: Any) -> str:
    for each in BaseException.__dict__["args"].__get__(error):
        if issubclass(type(each), (list, tuple, dict, set, frozenset)):
            _json_text(each)  # refuses values without an end
    return str.__str__(str(error))


def plain_text(value: object, most: int) -> str | None:
    """Return a text of 1 to `most` characters; None for another value, and for one with half a character."""
    text = str.__str__(value) if issubclass(type(value), str) else ""
    return text if 0 < len(text) <= most and text_of(text) == text else None


def cause_of(error: BaseException) -> BaseException:
    """Return the exception that a tool raised: Python wraps a StopIteration that leaves a coroutine, and task groups
    wrap even a single exception."""
    if issubclass(type(error), BaseExceptionGroup):
        inner = BaseExceptionGroup.__dict__["exceptions"].__get__(error)
        return cause_of(inner[0]) if len(inner) == 1 else error
    cause = BaseException.__dict__["__cause__"].__get__(error)
    wraps = type(error) is RuntimeError and issubclass(type(cause), (StopIteration, StopAsyncIteration))
    return cause if wraps and cause is not None else error
