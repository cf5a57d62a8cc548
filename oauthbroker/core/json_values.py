"""Count the values of a stranger's JSON before they are parsed.

A body of few bytes may hold millions of values, each of which costs a hundred times its bytes. Each value but the first
stands behind `[`, `{`, `,` or `:`, so these are counted, outside strings. Line ends count too: an event stream is read
line by line. A line ends each string, because no string of JSON holds a line end; so the state of the count agrees with
the parser's as far as the parser gets.
"""

from __future__ import annotations

import re
from typing import Final

MOST_VALUES: Final = 20_000  # of one document; it is parsed in a few milliseconds
_NOISE: Final = bytes(set(range(256)) - set(b'"[{,:\r\n'))
_STRING: Final = re.compile(rb'"[^"\r\n]*+"?')


class ValueCounter:
    """Counts what comes in pieces. Memory and time are bounded by the size of a piece."""

    __slots__ = ("_backslash", "_inside", "_left", "_quotes_left")

    def __init__(self, most: int = MOST_VALUES) -> None:
        self._left, self._quotes_left = most, 4 * most + 4  # each text is a value, or the name of one
        self._inside = self._backslash = b""

    def feed(self, piece: bytes) -> bool:
        """Count a further piece. Return False as soon as there are too many values, and for a NUL, which stands in
        every text of UTF-16 and in no JSON of UTF-8."""
        text, self._backslash = self._backslash + piece, b""
        if (len(text) - len(text.rstrip(b"\\"))) % 2:
            text, self._backslash = text[:-1], b"\\"
        marks = text.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NOISE)
        self._quotes_left -= marks.count(b'"')
        if self._quotes_left < 0 or b"\0" in text:
            self._left = -1
        if self._left >= 0:
            marks = self._inside + marks
            self._left -= len(_STRING.sub(b"", marks))
            line = marks[max(marks.rfind(b"\n"), marks.rfind(b"\r")) + 1 :]
            self._inside = b'"' if line.count(b'"') % 2 else b""
        return self._left >= 0


def has_few_values(body: bytes, most: int = MOST_VALUES) -> bool:
    """Return whether a whole document holds at most `most` values."""
    return len(body) <= most or ValueCounter(most).feed(body)
