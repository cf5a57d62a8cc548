"""The tags of many entries by the names of these, in little memory."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from oauthbroker.store.format.entry_names import is_place

_NAME: Final = 32  # bytes
_TAG: Final = 17  # bytes: the number of the label, and the value
_ROW: Final = _NAME + _TAG


class TagsByName:
    """Two million tags take 100 MiB. As sets of texts for each name they take more than a gigabyte."""

    __slots__ = ("_labels", "_pieces")

    def __init__(self, places: Iterable[tuple[str, str]] = ()) -> None:
        """Sort places, `<value>.<name>`, each after its label."""
        pieces, numbers = defaultdict[int, bytearray](bytearray), dict[str, int]()
        for label, place in places:
            if is_place(place):
                value, _, name = place.partition(".")
                row = bytes.fromhex(name)
                pieces[row[0]] += row + bytes([numbers.setdefault(label, len(numbers))]) + bytes.fromhex(value)
        self._pieces = {first: _sorted(pieces.pop(first)) for first in sorted(pieces)}
        self._labels = list(numbers)

    def of(self, name: str) -> frozenset[tuple[str, str]]:
        """Return the tags of an entry, as pairs of a label and a value."""
        start, found = bytes.fromhex(name), set[tuple[str, str]]()
        piece = self._pieces.get(start[0], b"")
        first = bisect_left(range(len(piece) // _ROW), start, key=lambda at: piece[at * _ROW : at * _ROW + _NAME])
        for at in range(first * _ROW, len(piece), _ROW):
            if piece[at : at + _NAME] != start:
                break
            label, value = piece[at + _NAME], piece[at + _NAME + 1 : at + _ROW]
            found.add((self._labels[label], value.hex()))
        return frozenset(found)

    def names(self) -> Iterator[str]:
        """Yield the names of the entries, in their order, once for each tag."""
        for piece in self._pieces.values():
            yield from (piece[at : at + _NAME].hex() for at in range(0, len(piece), _ROW))


def _sorted(piece: bytearray) -> bytes:
    return b"".join(sorted(bytes(piece[at : at + _ROW]) for at in range(0, len(piece), _ROW)))
