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


State = tuple[int, int, int | None]  # the due calls and the open writes that wait, as bits; and the family


def is_possible(history: Sequence[Operation]) -> bool:
    """Tell whether some order explains all calls. True also where the search takes too many steps."""
    calls = sorted(history, key=lambda each: each.begin)
    due, opened = [each for each in calls if each.end < inf], [each for each in calls if each.end == inf]
    seen, left = set[State](), list[State]()
    left.append(((1 << len(due)) - 1, (1 << len(opened)) - 1, None))
    while left and len(seen) < MOST_STEPS:
        state = left.pop()
        if not state[0]:
            return True
        if state not in seen:
            seen.add(state)
            left += _next(due, opened, state)
    return bool(left)


def _next(due: Sequence[Operation], opened: Sequence[Operation], state: State) -> list[State]:
    """Return what may be after more calls. Reads of this family come at once: they change nothing. An open write comes
    only where a read sees it: otherwise it may as well never take effect."""
    waiting, may_come, family = state
    first_end, earliest = _earliest(due, waiting)
    reads = [number for number in earliest if due[number].reads]
    if now := sum(1 << number for number in reads if due[number].family == family):
        return [(waiting & ~now, may_come, family)]
    wanted = {due[number].family for number in reads}
    return [
        *(
            (waiting, may_come & ~(1 << number), each.family)
            for number, each in enumerate(opened)
            if may_come >> number & 1 and each.begin <= first_end and each.family in wanted
        ),
        *((waiting & ~(1 << number), may_come, due[number].family) for number in earliest if number not in reads),
    ]


def _earliest(due: Sequence[Operation], waiting: int) -> tuple[float, list[int]]:
    """Return the first end of the waiting calls, and those that have begun by then: any of them may be next."""
    number, first_end, found = (waiting & -waiting).bit_length() - 1, inf, list[int]()
    while number < len(due) and due[number].begin <= first_end:
        if waiting >> number & 1:
            found.append(number)
            first_end = min(first_end, due[number].end)
        number += 1
    return first_end, [each for each in found if due[each].begin <= first_end]
