"""Cut a stream into lines, none of them longer in memory than one may be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

MOST_BYTES = 64 * 1024  # of one line
BOM = b"\xef\xbb\xbf"


class LineCutter:
    """Cuts the pieces of a stream into numbered lines without their ends; empty ones are skipped. One that is too long
    comes cut, and is longer than allowed."""

    def __init__(self) -> None:
        self._number, self._begun = 0, bytearray()

    def cut(self, piece: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield the lines that end in this piece."""
        *ended, rest = piece.split(b"\n")
        for part in ended:
            self._keep(part)
            yield from self._line()
        self._keep(rest)

    def end(self) -> Iterator[tuple[int, bytes]]:
        """Yield the last line, if it has no end."""
        return self._line()

    def _keep(self, part: bytes) -> None:
        self._begun += part[: MOST_BYTES + 2 - len(self._begun)]

    def _line(self) -> Iterator[tuple[int, bytes]]:
        self._number += 1
        data, self._begun = bytes(self._begun), bytearray()
        data = (data.removeprefix(BOM) if self._number == 1 else data).rstrip(b"\r\n")
        if data.strip():
            yield self._number, data


def lines_of(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the numbered lines of a stream."""
    cutter = LineCutter()
    while piece := stream.read(MOST_BYTES):
        yield from cutter.cut(piece)
    yield from cutter.end()
