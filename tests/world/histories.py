"""Is what callers saw of one grant possible in some order, one call after another? (Wing and Gong, with a memo.)

A grant is a register: a consent writes its family, a revocation writes None, a token call reads. A call takes effect at
one moment between its begin and its end. A write without an acknowledgement takes effect at any later moment, or never.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

MOST_STEPS: Final = 20_000


@dataclass(eq=False)
class Operation:
    """One call on a grant. `family` is the family read or written: None is no grant."""

    reads: bool
    family: int | None
    begin: float
    end: float = inf  # of a write without an acknowledgement
    code: str = ""  # of a consent, whose family is known later


def is_possible(history: Sequence[Operation]) -> bool:
    """Tell whether some order explains all calls. True also where the search takes too many steps."""
    due = sum(1 << number for number, each in enumerate(history) if each.end < inf)
    seen, left = set[tuple[int, int | None]](), list[tuple[int, int | None]]()
    left.append(((1 << len(history)) - 1, None))
    while left and len(seen) < MOST_STEPS:
        waiting, family = left.pop()
        if not waiting & due:
            return True
        if (waiting, family) not in seen:
            seen.add((waiting, family))
            left += _next(history, waiting, family)
    return bool(left)


def _next(history: Sequence[Operation], waiting: int, family: int | None) -> list[tuple[int, int | None]]:
    """Return what may be after one more call: no waiting call has ended before that one began."""
    calls = [(number, each) for number, each in enumerate(history) if waiting >> number & 1]
    first_end = min(each.end for _, each in calls)
    return [
        (waiting & ~(1 << number), family if each.reads else each.family)
        for number, each in calls
        if each.begin <= first_end and (not each.reads or each.family == family)
    ]
