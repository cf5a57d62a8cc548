"""What no flow takes or keeps: values that two readers of one JSON read differently, or that are no JSON."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Any, Final

Steps = tuple[str | int, ...]
MOST_DEPTH: Final = 64
_LARGEST: Final = sys.float_info.max
_Place = tuple[Any, Any] | None  # the place around it, and its name or number there
_ODD = re.compile("[\0\ud800-\udfff]")


def json_fault(value: Any) -> tuple[Steps, str] | None:
    """Return the place of a fault and its kind; None without one. `number`: beyond a double, NaN or an infinity.
    `nul`: a text or name with the character NUL, at which programs in C end it. `text`: one that is no UTF-8. `depth`:
    nested deeper than MOST_DEPTH. `type`: no JSON. A fault of a name is at the place of its object."""
    waiting: list[tuple[_Place, Any, int]] = [(None, value, 0)]
    while waiting:
        place, each, depth = waiting.pop()
        if fault := "depth" if depth > MOST_DEPTH else scalar_fault(each):
            return _steps(place), fault
        if isinstance(each, list):
            waiting += [((place, at), inner, depth + 1) for at, inner in enumerate(each)]
        elif isinstance(each, dict):
            waiting += [((place, name), inner, depth + 1) for name, inner in each.items()]
            if fault := next(filter(None, map(_name_fault, each)), ""):
                return _steps(place), fault
    return None


def scalar_fault(value: Any) -> str:
    """Return the kind of a value's own fault, without a look into it; empty without one."""
    if isinstance(value, str):
        found = _ODD.search(value)
        return "" if found is None else "nul" if found[0] == "\0" else "text"
    if isinstance(value, int | float):
        return "" if abs(value) <= _LARGEST else "number"  # no comparison holds for NaN
    return "" if value is None or isinstance(value, dict | list) else "type"


def pointer(steps: Iterable[object]) -> str:
    """Return a place as a JSON pointer (RFC 6901)."""
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in steps)


def _steps(place: _Place) -> Steps:
    return () if place is None else (*_steps(place[0]), place[1])


def _name_fault(name: object) -> str:
    return scalar_fault(name) if isinstance(name, str) else "type"
