"""Copy JSON where it is written, within limits that each of its readers keeps to.

The value may come from any code, so none of its methods is called: texts, numbers, lists and dictionaries are read by
the methods of `str`, `int`, `float`, `list`, `tuple` and `dict`, and an object of another class is no JSON.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, Final

from oauthbroker.core.dataclasses import dataclass

Json = Any
_NUMBER_BITS: Final = 1024  # of an integer: the range of a double (RFC 7493), and far below what Python parses
_MOST_SHOWN: Final = 40  # characters of a member's name in a place
_STEPS: Final = 8  # of a place that are shown
_OTHER: Final = "which JSON does not have: use texts, finite numbers, true, false, null, lists and objects only"


@dataclass(frozen=True, slots=True)
class JsonLimits:
    """`levels` counts lists and objects inside one another; `values` counts all values, the outermost included."""

    size: int  # bytes, as JSON in UTF-8
    levels: int
    values: int


class NotPlainJson(ValueError):
    """A value is no JSON, or exceeds a limit. `problem` says why and what to do, and quotes nothing of the value. The
    text begins with the place as a JSON pointer, which has names of members, unless the problem is the whole value."""

    def __init__(self, problem: str, *, whole: bool = False) -> None:
        super().__init__(problem)
        self.problem, self._whole = problem, whole
        self._steps: list[str | int] = []

    def below(self, step: str | int) -> None:
        """Note that the place is inside this member or element."""
        self._steps.append(step)

    def __str__(self) -> str:
        steps = ["".join(map(_shown, str(each)[:_MOST_SHOWN])) for each in self._steps[: -_STEPS - 1 : -1]]
        place = "".join(f"/{each}" for each in steps) + ("/..." if len(self._steps) > _STEPS else "")
        return self.problem if self._whole or not place else f"at {place} {self.problem}"


def _shown(char: str) -> str:
    return {"~": "~0", "/": "~1"}.get(char, char) if char.isprintable() else "\ufffd"


def plain_json(value: object, limits: JsonLimits) -> Json:
    """Return a copy of a value as JSON has it: tuples become lists, and numbers as names of members become texts.
    Raises NotPlainJson."""
    copy = _Copier(limits).copied(value, limits.levels)
    if len(json.dumps(copy, ensure_ascii=False).encode()) > limits.size:
        raise _too_large(limits)
    return copy


def type_name(value: object) -> str:
    """Return the name of a value's class, also where the class has a metaclass with a `__name__` of its own."""
    name: str = type.__dict__["__name__"].__get__(type(value))
    return str.__str__(name)


class _Copier:
    """Copies one value. Its budgets end the walk over a value that refers to its parts many times."""

    def __init__(self, limits: JsonLimits) -> None:
        self._limits = limits
        self._characters, self._values = limits.size, limits.values - 1  # without the outermost one
        self._open = set[int]()  # the containers around the present one

    def copied(self, value: object, levels: int) -> Json:
        kind = type(value)
        if value is None or kind is bool:
            return value
        if issubclass(kind, str):
            return self._text(value)
        if issubclass(kind, (int, float)):
            return _number(value)
        base: Any = dict if issubclass(kind, dict) else list if issubclass(kind, list) else tuple
        if not issubclass(kind, base):
            raise NotPlainJson(f"it holds a value of the type '{type_name(value)}', {_OTHER}")
        if id(value) in self._open:
            raise NotPlainJson("it contains itself: refer to it by a text")
        if levels == 0:
            raise NotPlainJson(f"it has more than {self._limits.levels} levels: put the inner ones into a text")
        self._values -= base.__len__(value)
        if self._values < 0:
            raise NotPlainJson(f"it has more than {self._limits.values} values: use fewer", whole=True)
        self._open.add(id(value))
        copy = self._object(value, levels - 1) if base is dict else self._array(base.__iter__(value), levels - 1)
        self._open.discard(id(value))
        return copy

    def _array(self, elements: Iterator[object], levels: int) -> list[Json]:
        copy: list[Json] = []
        try:
            copy.extend(self.copied(each, levels) for each in elements)
        except NotPlainJson as problem:
            problem.below(len(copy))
            raise
        return copy

    def _object(self, value: Any, levels: int) -> dict[str, Json]:
        copy: dict[str, Json] = {}
        for given, each in dict.items(value):
            name = str.__str__(given) if issubclass(type(given), str) else self._name(given)
            if name in copy:
                raise NotPlainJson("it has two members that have one name in JSON: use texts as names")
            try:
                copy[name] = self._text(each) if type(each) is str else self.copied(each, levels)
            except NotPlainJson as problem:
                problem.below(name)
                raise
        self._text("".join(copy))
        return copy

    def _name(self, given: object) -> str:
        if given is None or issubclass(type(given), (bool, int, float)):
            return json.dumps(given if given is None or type(given) is bool else _number(given))
        raise NotPlainJson(f"it has a member whose name is of the type '{type_name(given)}': use a text")

    def _text(self, given: object) -> str:
        text = str.__str__(given)
        self._characters -= len(text)
        if self._characters < 0:
            raise _too_large(self._limits)
        try:
            text.isascii() or text.encode()
        except UnicodeEncodeError:
            raise NotPlainJson("it holds half a character: remove the lone surrogate") from None
        return text


def _number(given: object) -> int | float:
    if issubclass(type(given), int):
        number = int.__int__(given)  # type: ignore[arg-type]
        if number.bit_length() > _NUMBER_BITS:
            raise NotPlainJson(f"it holds an integer of more than {_NUMBER_BITS} bits: use a text")
        return number
    real = float.__float__(given)  # type: ignore[arg-type]
    if not math.isfinite(real):
        raise NotPlainJson("it holds a number that is not finite: use null or a text")
    return real


def _too_large(limits: JsonLimits) -> NotPlainJson:
    return NotPlainJson(f"it has more than {limits.size} bytes: use less, or several parts", whole=True)
