"""Describe an exception of the bundle's code to a log and to the author of the bundle: its type, its text in one line,
and its line of the file. The reader scrubs the text."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from oauthbroker.plugins import type_name
from oauthbroker.tools.types.foreign_values import text_of
from oauthbroker.tools.types.results import truncated

_MOST: Final = 300  # characters of a text


def described(error: BaseException, file: Path | None = None) -> str:
    """Return `ValueError: text (notes.py:7)`. Without a `file`, the place is the innermost one."""
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
