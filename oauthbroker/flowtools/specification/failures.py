"""Why a run ends without success: codes and sentences. What no flow takes or keeps: values that two readers of one JSON
read differently, or that are no JSON."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from oauthbroker import Turn

_MOST_ERRORS: Final = 20
_MOST_PLACES, _LONGEST_PLACE = 5, 128  # in the sentence
Steps = tuple[str | int, ...]
MOST_DEPTH: Final = 64
_LARGEST: Final = sys.float_info.max
_Place = tuple[Any, Any] | None  # the place around it, and its name or number there
_ODD = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """The authenticated caller of a run, or the service identity of a trigger. `turn` says for whom its requests ask
    for tokens; without it they get none. `repeats`: it is an agent, whose turn goes on after a consent and repeats the
    call; no other process goes on with its run."""

    id: str
    roles: frozenset[str] = frozenset()
    turn: Turn | None = field(default=None, repr=False)
    repeats: bool = False


class FlowFailed(Exception):
    """A run cannot go on. `code` is stable; the message names no value of a row or of the input. `errors` are places in
    the input, as JSON pointers, each with the keyword of the rule that it breaks."""

    def __init__(self, code: str, message: str, errors: Iterable[tuple[str, str]] = ()) -> None:
        super().__init__(message)
        self.code, self.message, self.errors = code, message, tuple(errors)


def input_invalid(what: str, errors: Iterable[tuple[str, str]]) -> FlowFailed:
    """Return the refusal of an input, with its places."""
    found = tuple(islice(errors, _MOST_ERRORS))
    places = ", ".join(f"{pointer[:_LONGEST_PLACE]} ({keyword})" for pointer, keyword in found[:_MOST_PLACES])
    return FlowFailed("inputInvalid", f"{what}: {places}", found)


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
            names = (scalar_fault(name) if isinstance(name, str) else "type" for name in each)
            if fault := next(filter(None, names), ""):
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
