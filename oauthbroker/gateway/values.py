"""JSON values as the gateway sees them: their types, the printed formats, bounds, and how messages show them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import isfinite
from typing import Any, Final

MAX_DEPTH: Final = 32
MOST_VALUES: Final = 10_000  # of one action, names of members included
NO_JSON: Final = f"Action must be JSON: {MAX_DEPTH} levels and {MOST_VALUES} values at most, finite numbers, Unicode"
AMONG: Final = ("in", "notIn")  # the comparisons with a list
NUMBERS: Final = ("integer", "number")
_MOST_BITS: Final = 4096  # of an integer
_MOST_SHOWN: Final = 64  # characters of a value in a message
_SCALARS: Final = {str: "string", bool: "boolean", int: "integer", float: "number"}
_TYPES: Final = {**_SCALARS, list: "array", dict: "object", type(None): "null"}
_UUID: Final = "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
FORMATS: Final = {  # linear: no character can be matched in two ways
    "uuid": re.compile(_UUID),
    "email": re.compile(r"[^\s\ufeff@]+@[^\s\ufeff@][^\s\ufeff@.]*\.[^\s\ufeff@]+"),
    "phone": re.compile("[0-9+()-]+"),
    "iso8601": re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{3})?Z?"),
    "productId": re.compile(f"{_UUID}|prod_[A-Za-z0-9_-]+"),
    "orderId": re.compile(f"{_UUID}|order_[A-Za-z0-9_-]+"),
    "couponCode": re.compile("[A-Za-z0-9-]+"),
}


def type_of(value: Any) -> str:
    """Return the JSON type. Neither a bool nor 1.0 is an integer. A value that JSON lacks has a name of its own."""
    name = _TYPES.get(type(value), "no JSON value")
    return "no finite number" if name == "number" and not isfinite(value) else name


def key_of(value: Any) -> tuple[str, Any] | None:
    """Return a scalar as a key that tells true from 1, and None for other values."""
    kind = type_of(value)
    return ("number" if kind in NUMBERS else kind, value) if kind in _SCALARS.values() else None


def is_json(value: Any, depth: int = MAX_DEPTH, left: Iterator[int] | None = None) -> bool:
    """Tell whether a value is JSON within bounds: depth, number of values, text that UTF-8 can hold."""
    left = iter(range(MOST_VALUES)) if left is None else left
    if depth < 0 or next(left, None) is None:
        return False
    if type(value) is dict:
        named = all(type(each) is str and is_json(each, depth, left) for each in value)
        return named and all(is_json(each, depth - 1, left) for each in value.values())
    if type(value) is list:
        return all(is_json(each, depth - 1, left) for each in value)
    if type(value) is str:
        return value.isascii() or not any("\ud800" <= char <= "\udfff" for char in value)
    return value.bit_length() <= _MOST_BITS if type(value) is int else not type_of(value).startswith("no ")


def size_of(value: Any) -> int:
    """Count the values in a JSON value, itself included."""
    parts = value.values() if type(value) is dict else value if type(value) is list else ()
    return 1 + sum(map(size_of, parts))


def shown(value: Any) -> str:
    """Return a value for a message: one line, short, without control characters."""
    if type(value) is str:
        text = value if len(value) <= _MOST_SHOWN else f"{value[:_MOST_SHOWN]}…"
        return "".join(char if char.isprintable() else "\ufffd" for char in text)
    if type(value) is int and value.bit_length() > 3 * _MOST_SHOWN:  # a digit has more than three bits
        return f"a number of {value.bit_length()} bits"
    return str(value).lower() if type(value) in _SCALARS else type_of(value)
