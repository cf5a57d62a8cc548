"""Many names of entries in their order, in little memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

from oauthbroker.store.posix.system_calls import GIVE_WAY_EVERY, Fs

_BYTES: Final = 32  # of a name


class SortedNames:
    """A million names takes 32 MiB and is freed at once. As texts they take 110 MiB, and to free or to sort them in one
    piece stops all threads for longer than a call may take."""

    __slots__ = ("_pieces",)

    def __init__(self, fs: Fs, names: Iterable[str]) -> None:
        """Sort names of entries. For a thread: gives way to other threads on the way."""
        pieces, sorted_since = defaultdict[str, bytearray](bytearray), 0
        for name in names:
            pieces[name[:2]] += bytes.fromhex(name)
        for piece in pieces.values():
            piece[:] = b"".join(sorted(_cut(piece)))
            sorted_since += len(piece) // _BYTES
            if sorted_since >= GIVE_WAY_EVERY:
                fs.give_way()
                sorted_since = 0
        self._pieces = [pieces[first] for first in sorted(pieces)]

    def __len__(self) -> int:
        return sum(map(len, self._pieces)) // _BYTES

    def __iter__(self) -> Iterator[str]:
        return map(bytes.hex, chain.from_iterable(map(_cut, self._pieces)))

    def after(self, name: str) -> Iterator[str]:
        """Return the names after one. Those of other pieces before it are not looked at."""
        pieces = [piece for piece in self._pieces if piece[:1].hex() >= name[:2]]
        return (each for each in map(bytes.hex, chain.from_iterable(map(_cut, pieces))) if each > name)


def _cut(piece: bytearray) -> Iterator[bytes]:
    return (bytes(piece[at : at + _BYTES]) for at in range(0, len(piece), _BYTES))
