"""A request's body off the wire, by its length or in chunks (RFC 9112 sections 6.2 and 7.1), and nothing beyond it."""

from __future__ import annotations

import re

from oauthbroker.errors import Code

FIELD = rb"[-!#$%&'*+.^_`|~0-9A-Za-z]++:[^\x00-\x08\x0a-\x1f\x7f]*+\r\n"
"""A header as it stands on the wire: a token, no space before the colon, no control character but the tab."""
_FIELD = re.compile(FIELD)
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})(;[^\x00-\x08\x0a-\x1f\x7f]*+)?\r\n")


class Malformed(Exception):
    """What came is not read on: which status and code to answer with, and a word for the operator."""

    def __init__(self, status: int, note: str) -> None:
        super().__init__(note)
        self.status, self.note = status, note
        self.code = Code.REQUEST_TOO_LARGE if status == 431 else Code.REQUEST_INVALID


class Sized:
    """A body of so many bytes."""

    __slots__ = ("_left", "over")

    def __init__(self, length: int) -> None:
        self._left, self.over = length, False

    def take(self, data: bytes) -> tuple[bytes, bytes]:
        """What of `data` is the body's, and what comes after it."""
        if len(data) < self._left:
            self._left -= len(data)
            return data, b""
        at, self._left, self.over = self._left, 0, True
        return data[:at], data[at:]


class Chunks:
    """A body in chunks. Their extensions and the trailer, `spare` bytes of them, are read and forgotten."""

    __slots__ = ("_at_end", "_held", "_in_trailer", "_left", "_spare", "over")

    def __init__(self, spare: int) -> None:
        self.over = False
        self._held, self._left, self._spare = b"", 0, spare
        self._at_end, self._in_trailer = False, False

    def take(self, data: bytes) -> tuple[bytes, bytes]:
        """What of `data` is the body's, and what comes after it. Raises Malformed."""
        data, at, parts = self._held + data, 0, list[bytes]()
        while not self.over:
            if self._left:
                part = data[at : at + self._left]
                if not part:
                    break
                parts.append(part)
                at, self._left, self._at_end = at + len(part), self._left - len(part), self._left == len(part)
                continue
            step = self._framing(data, at)
            if not step:
                break
            at += step
        self._held = b"" if self.over else data[at:]
        return b"".join(parts), data[at:] if self.over else b""

    def _framing(self, data: bytes, at: int) -> int:
        """How many bytes of framing stand there; 0 while they are not complete."""
        if self._at_end or self._in_trailer:
            if data.startswith(b"\r\n", at):
                self.over, self._at_end = self._in_trailer, False
                return 2
            if len(data) - at < 2 and b"\r\n".startswith(data[at:]):
                return 0
            if self._at_end:
                raise Malformed(400, "chunk")
        found = (_FIELD if self._in_trailer else _SIZE).match(data, at)
        if found is None:
            self._judge_unfinished(data, at)
            return 0
        if self._in_trailer:
            self._spend(found.end() - at)
        else:
            self._spend(len(found[2] or b""))
            self._left = int(found[1], 16)
            self._in_trailer = not self._left
        return found.end() - at

    def _judge_unfinished(self, data: bytes, at: int) -> None:
        if data.find(b"\n", at) >= 0:
            raise Malformed(400, "trailer" if self._in_trailer else "chunk")
        if len(data) - at > self._spare:
            raise Malformed(431, "chunk framing too large")

    def _spend(self, count: int) -> None:
        self._spare -= count
        if self._spare < 0:
            raise Malformed(431, "chunk framing too large")
