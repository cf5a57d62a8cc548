"""Values that code of tools and extensions may give us: one table for each place where we take one.

`VALUES` are made anew for each use. `made(name)` makes one; `PLAIN` are the names of those that are JSON within the limits of a
tool's output. The file imports nothing of ours at its top, so that a tool in a process of its own can use it.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import io
import pathlib
import threading
import types
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, NoReturn


class Raised(Exception):
    """What the methods of hostile values raise."""


def _raise(*_args: Any, **_named: Any) -> NoReturn:
    raise Raised("a method of a value raised")


def _exit(*_args: Any, **_named: Any) -> NoReturn:
    raise SystemExit(9)


METHODS = ["__str__", "__repr__", "__iter__", "__len__", "__eq__", "__ne__", "__hash__", "__bool__", "__getattribute__", "__int__",
           "__float__", "__index__", "__format__", "__call__", "__await__", "__getitem__", "__contains__", "__reduce__", "__dir__",
           "items", "keys", "get", "values", "encode", "to_json", "__json__", "model_dump", "__dict__"]  # fmt: skip


def _hostile(base: type, method: str, how: Callable[..., Any] = _raise) -> type:
    return type(f"Hostile{base.__name__.title()}", (base,), {method: how})


def _with_class(base: type, raises: bool) -> type:
    return type("Disguised", (base,), {"__class__": property(_raise) if raises else dict})


class _Meta(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise Raised("the class has no name")

    def __instancecheck__(cls, _instance: object) -> bool:
        raise Raised("no instance is checked")


class Nameless(metaclass=_Meta):
    pass


class Colour(enum.Enum):
    RED = 1


class Word(enum.StrEnum):
    RED = "red"


class Number(enum.IntEnum):
    ONE = 1


@dataclasses.dataclass
class Point:
    x: int = 1


class NamedPoint(NamedTuple):
    x: int
    y: int


class ArrayLike:
    dtype, shape = "float64", (2,)

    def __array__(self) -> NoReturn:
        raise Raised("no array")

    def __len__(self) -> int:
        return 2

    def __eq__(self, other: object) -> Any:
        return [True, False]

    def __bool__(self) -> bool:
        raise ValueError("the truth value of an array is ambiguous")

    __hash__ = None  # type: ignore[assignment]


def _model() -> Any:
    import pydantic

    return pydantic.create_model("Model", x=(int, 1))()


def nested(levels: int, make: Callable[[Any], Any] = lambda inner: [inner]) -> Any:
    value: Any = make(None)
    for _ in range(levels - 1):
        value = make(value)
    return value


def _cycle(kind: type) -> Any:
    inner: list[Any] = []
    inner.append({"again": inner} if kind is dict else [inner])
    return inner


def _shared(levels: int) -> Any:
    """Return few objects that are 10 ** levels values."""
    value: Any = "x"
    for _ in range(levels):
        value = [value] * 10
    return value


async def _coroutine() -> int:
    return 1


async def _async_generator() -> Any:
    yield 1


def _generator() -> Any:
    yield 1


def _error(kind: type[BaseException], *args: Any, **members: Any) -> BaseException:
    error = kind(*args)
    for name, value in members.items():
        setattr(error, name, value)
    return error


def nested_group(levels: int) -> Exception:
    error: Exception = ValueError("inside")
    for _ in range(levels):
        error = ExceptionGroup("x", [error])
    return error


def _itself() -> Exception:
    error = RuntimeError("coroutine raised StopIteration")
    error.__cause__ = error
    return error


def _made(base: type, method: str, how: Callable[..., Any], *args: Any, **named: Any) -> Any:
    return _hostile(base, method, how)(*args, **named)


PLAIN_VALUES: dict[str, Callable[[], Any]] = {
    "none": lambda: None, "true": lambda: True, "zero": lambda: 0, "empty text": lambda: "", "empty list": list, "empty dict": dict,
    "a tuple": lambda: (1, (2,)), "a named tuple": lambda: NamedPoint(1, 2), "an ordered dict": lambda: collections.OrderedDict(a=1),
    "a default dict": lambda: collections.defaultdict(list, a=1), "a counter": lambda: collections.Counter("aab"),
    "a word": lambda: Word.RED, "a number": lambda: Number.ONE, "numbers as names": lambda: {1: "a", 2.5: "b", None: "c", False: "d"},
    "the largest integer": lambda: 2**1024 - 1, "the largest float": lambda: 1.7e308, "minus zero": lambda: -0.0,
    "NUL": lambda: {"\0": "\0"}, "an emoji": lambda: "\U0001f600", "60 levels": lambda: nested(60), "control characters": lambda: "\x1b[31m\x7f\u2028",
    "a prototype": lambda: {"__proto__": {"x": 1}, "constructor": "y"}, "many values": lambda: list(range(30_000)),
    **{f"a text with {method}": partial(_made, str, method, _raise, "text") for method in METHODS if method != "__getattribute__"},
    **{f"an int with {method}": partial(_made, int, method, _raise, 7) for method in METHODS if method != "__getattribute__"},
    **{f"a dict with {method}": partial(_made, dict, method, _raise, a=1) for method in METHODS if method != "__await__"},
    **{f"a list with {method}": partial(_made, list, method, _raise, [1]) for method in METHODS if method != "__await__"},
    "a float with __float__": lambda: _hostile(float, "__float__")(1.5), "a dict that exits": lambda: _hostile(dict, "items", _exit)(a=1),
    "a disguised list": lambda: _with_class(list, raises=False)([1]), "a list without a class": lambda: _with_class(list, raises=True)([1]),
}  # fmt: skip
OTHER_VALUES: dict[str, Callable[[], Any]] = {
    **{f"an object with {method}": partial(_made, object, method, _raise) for method in METHODS},
    **{f"an object that exits at {method}": partial(_made, object, method, _exit) for method in METHODS[:12]},
    "an object without a class": _with_class(object, raises=True), "a disguised object": _with_class(object, raises=False),
    "an object of a class without a name": Nameless, "a class without a name": lambda: Nameless, "a class": lambda: int, "a function": lambda: _generator,
    "a module": lambda: types, "NaN": lambda: float("nan"), "infinity": lambda: [float("-inf")], "a huge integer": lambda: 10**400,
    "an enormous integer": lambda: [1 << 100_000], "NaN as a name": lambda: {float("nan"): 1}, "two equal names": lambda: {1: "a", "1": "b"},
    "a tuple as a name": lambda: {(1, 2): 3}, "bytes as a name": lambda: {b"a": 1}, "half a character": lambda: "\ud800",
    "half a character as a name": lambda: {"\udfff": 1}, "half a character inside": lambda: [{"a": ["x\ud83dy"]}],
    "a list in itself": lambda: _cycle(list), "a dict in itself": lambda: _cycle(dict), "65 levels": lambda: nested(65), "200 levels": lambda: nested(200),
    "600 levels": lambda: nested(600), "100000 levels": lambda: nested(100_000), "100000 levels of dicts": lambda: nested(100_000, lambda inner: {"a": inner}),
    "shared parts": lambda: _shared(12), "shared texts": lambda: [["x" * 100_000] * 1000] * 1000, "10 MB": lambda: "x" * 10_000_000,
    "10 MB of words": lambda: "word " * 2_000_000, "10 MB as a name": lambda: {"x" * 10_000_000: 1}, "a million values": lambda: [0] * 1_000_000,
    "110000 members": lambda: dict.fromkeys(map(str, range(110_000))), "300 KB": lambda: "é" * 150_000, "a set": lambda: {1, 2},
    "a frozen set": lambda: frozenset({1}), "bytes": lambda: b"bytes", "a bytearray": lambda: bytearray(b"x"), "a memory view": lambda: memoryview(b"x"),
    "a date": lambda: dt.date(2026, 1, 1), "a time": lambda: dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "a decimal": lambda: decimal.Decimal("1.5"),
    "a fraction": lambda: fractions.Fraction(1, 3), "a complex number": lambda: 1j, "a UUID": lambda: uuid.UUID(int=1), "a path": lambda: pathlib.Path("x"),
    "a colour": lambda: Colour.RED, "a data class": Point, "a pydantic model": _model, "an array": ArrayLike, "a range": lambda: range(3), "a generator": _generator,
    "an async generator": _async_generator, "an iterator": lambda: iter([1]), "a map": lambda: map(str, [1]), "a deque": lambda: collections.deque([1]),
    "a user dict": lambda: collections.UserDict(a=1), "a proxy": lambda: types.MappingProxyType({"a": 1}), "a namespace": lambda: types.SimpleNamespace(a=1),
    "an ellipsis": lambda: ..., "not implemented": lambda: NotImplemented, "a lock": threading.Lock, "a file": lambda: io.StringIO("x"), "an exception": lambda: ValueError("x"),
    "a set deep inside": lambda: {"rows": [1, {"tags": {1}}]}, "an event loop's lock": asyncio.Lock,
    "a dict with __await__": lambda: _hostile(dict, "__await__")(a=1), "a list with __await__": lambda: _hostile(list, "__await__")([1]),
}  # fmt: skip
ERRORS: dict[str, Callable[[], BaseException]] = {
    **{kind.__name__: partial(_error, kind, "no") for kind in (ValueError, KeyError, SystemExit, KeyboardInterrupt, GeneratorExit, StopIteration,
       StopAsyncIteration, asyncio.CancelledError, TimeoutError, MemoryError, RecursionError, BaseException, OSError, EOFError, ConnectionError, Warning)},
    **{f"an error with {method}": partial(_made, ValueError, method, _raise, "no") for method in METHODS},
    **{f"an error that exits at {method}": partial(_made, ValueError, method, _exit, "no") for method in METHODS[:9]},
    "an error without a class": lambda: _with_class(ValueError, raises=True)("no"), "a disguised error": lambda: _with_class(ValueError, raises=False)("no"),
    "an error without a text": ValueError, "an error of half a character": lambda: ValueError("\ud800"), "an error of 10 MB": lambda: ValueError("x" * 10_000_000),
    "an error of words": lambda: ValueError("word " * 2_000_000), "an error of a value": lambda: ValueError({"a": object()}), "an error of bytes": lambda: ValueError(b"\xff"),
    "a group": lambda: BaseExceptionGroup("two", [ValueError("a"), KeyboardInterrupt("b")]), "a group of one": lambda: ExceptionGroup("one", [ValueError("inside")]),
    "a deep group": lambda: ExceptionGroup("x", [nested_group(50)]), "an error with itself as its cause": _itself, "a Unicode error": lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no"),
}  # fmt: skip


VALUES = PLAIN_VALUES | OTHER_VALUES
PLAIN = frozenset(PLAIN_VALUES)


def made(name: str) -> Any:
    return (VALUES | ERRORS)[name]()
