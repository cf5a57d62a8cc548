"""Texts of values that code of tools and extensions has made, its exceptions included. Each method of such a value may
raise anything. The process of an isolated call imports this file, so it imports little."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from oauthbroker.plugins import plain_json, type_name
from oauthbroker.tools.types.results import READ, VALUE, truncated

_MOST: Final = 300  # characters of a text in a log


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
    """Return a text of at most `most` characters. A cut is at a space: half a token is not recognised as one."""
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
    """Return the exception that a tool raised: coroutines wrap a StopIteration, and task groups a single exception."""
    if issubclass(type(error), BaseExceptionGroup):
        inner = BaseExceptionGroup.__dict__["exceptions"].__get__(error)
        return cause_of(inner[0]) if len(inner) == 1 else error
    cause = BaseException.__dict__["__cause__"].__get__(error)
    wraps = type(error) is RuntimeError and issubclass(type(cause), (StopIteration, StopAsyncIteration))
    return cause if wraps and cause is not None else error


def described(error: BaseException, file: Path | None = None) -> str:
    """Describe an exception of the bundle's code to a log and to its author: `ValueError: text (notes.py:7)`. Without a
    `file`, the place is the innermost one. The reader scrubs the text."""
    text, name, place = one_line(text_of(error)), type_name(error), _place(error, file)
    return name + (f": {text}" if text != name else "") + (f" ({place})" if place else "")


def one_line(text: str) -> str:
    """Return a foreign text for a line of a log: bounded, without control characters."""
    words = "".join(each if each.isprintable() else " " for each in text[: 4 * _MOST]).split()
    return truncated(" ".join(words), _MOST)


def _place(error: BaseException, file: Path | None) -> str:
    """Return the place of an exception; empty if it has none."""
    try:
        if issubclass(type(error), SyntaxError):
            name, line = (SyntaxError.__dict__[each].__get__(error) for each in ("filename", "lineno"))
            return f"{Path(one_line(str.__str__(name))).name}:{int(line)}"
        place, traceback = "", BaseException.__dict__["__traceback__"].__get__(error)
        while traceback is not None:
            found = traceback.tb_frame.f_code.co_filename
            if file is None or found == str(file):
                place = f"{Path(found).name}:{traceback.tb_lineno}"
            traceback = traceback.tb_next
    except BaseException:  # noqa: BLE001  (members that the code of the bundle has set)
        return ""
    return place
