"""A queue whose items repeat a number of times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

FOREVER: int | None = None
"""`times=FOREVER`: until `reset`."""


@dataclass(slots=True)
class _Turn(Generic[T]):
    what: T
    left: int | None


class Turns(Generic[T]):
    """A queue in which each item stays for its number of times."""

    def __init__(self) -> None:
        self._turns: list[_Turn[T]] = []

    def add(self, what: T, times: int | None) -> None:
        """Append an item. Raises ValueError for a number of times below one."""
        if times is not None and times < 1:
            raise ValueError("times is a positive number, or FOREVER (None)")
        self._turns.append(_Turn(what, times))

    def first(self) -> T | None:
        """Return the first item; it is removed after its number of times."""
        return self._use(self._turns[0]) if self._turns else None

    def all(self) -> list[T]:
        """Return all items, each counted once."""
        return [self._use(turn) for turn in list(self._turns)]

    def clear(self) -> None:
        self._turns.clear()

    def _use(self, turn: _Turn[T]) -> T:
        if turn.left is not None:
            turn.left -= 1
            if turn.left == 0:
                self._turns.remove(turn)
        return turn.what
