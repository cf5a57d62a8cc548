"""The one cache: entries in memory, never more of them than a bound, the oldest evicted first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Bounded(Generic[K, V]):
    """The entries that were kept or touched last: at most `most`, and with `size_of` at most `most_bytes` together.

    An entry that alone exceeds `most_bytes` is not kept, and evicts no other. `get`, and `touch`, which makes an entry
    the newest or raises KeyError, are the dictionary's own: they are on the warm path of a token call.
    """

    __slots__ = ("_bytes", "_kept", "_most", "_most_bytes", "_size_of", "_sizes", "get", "touch", "values")

    def __init__(self, most: int, *, most_bytes: int = 0, size_of: Callable[[V], int] | None = None) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._size_of = size_of
        self._kept: OrderedDict[K, V] = OrderedDict()
        self._sizes: dict[K, int] = {}
        self._bytes = 0
        self.get = self._kept.get
        self.values = self._kept.values
        self.touch = self._kept.move_to_end

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, key: object) -> bool:
        return key in self._kept

    def __iter__(self) -> Iterator[K]:
        return iter(self._kept)

    @property
    def bytes(self) -> int:
        """Return the total size of the entries; 0 without `size_of`."""
        return self._bytes

    def keep(self, key: K, value: V) -> list[tuple[K, V]]:
        """Add or replace an entry as the newest, and return the entries that were evicted for it."""
        if key in self._kept:
            self.pop(key)
        if self._size_of is not None:
            size = self._size_of(value)
            if size > self._most_bytes:
                return [(key, value)]
            self._sizes[key] = size
            self._bytes += size
        self._kept[key] = value
        evicted: list[tuple[K, V]] = []
        while len(self._kept) > self._most or self._bytes > self._most_bytes:
            oldest = next(iter(self._kept))
            evicted.append((oldest, self._kept[oldest]))
            self.pop(oldest)
        return evicted

    def pop(self, key: K) -> V | None:
        """Remove an entry and return its value; None if there is none."""
        self._bytes -= self._sizes.pop(key, 0)
        return self._kept.pop(key, None)

    def items(self) -> list[tuple[K, V]]:
        """Return the entries, the oldest first."""
        return list(self._kept.items())

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()
        self._sizes.clear()
        self._bytes = 0
