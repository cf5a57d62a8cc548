"""Python's dataclasses, made in a fifth of the time: `dataclass` compiles only `__init__`, and that for the second
instance. A process makes hundreds of classes before its first token, and uses a third, most of them once. `InitVar`,
`order` and `field(hash=...)` are not supported; the rest is as Python does it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, MISSING, Field, FrozenInstanceError, asdict, astuple, field, fields, replace
from functools import partial
from operator import attrgetter
from reprlib import recursive_repr
from types import FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass

__all__ = ["KW_ONLY", "asdict", "astuple", "dataclass", "field", "fields", "replace"]

Class = type[Any]
Fields = Sequence[Field[Any]]
Methods = dict[str, Any]


class _Default:
    """Stands in a signature for what a factory makes, as in Python's own."""

    def __repr__(self) -> str:
        return "<factory>"


_DEFAULT = _Default()

if not TYPE_CHECKING:  # type checkers read Python's own

    def dataclass(
        cls: Class | None = None,
        /,
        *,
        eq: bool = True,
        repr: bool = True,  # noqa: A002
        frozen: bool = False,
        **forms: bool,
    ) -> Any:
        """Make a class a dataclass, as Python's decorator of the same name does."""

        def make(cls: Class) -> Class:
            own = vars(cls)
            if cls.__doc__ is None:  # else Python would write "Name()", and load `tokenize` to learn it
                cls.__doc__ = cls.__name__
            of_another = any("__dataclass_params__" in vars(base) for base in cls.__mro__[1:])
            compared = frozen and of_another  # Python refuses a frozen class of one that is not, and the reverse
            made = _collected(cls, frozen=compared, **forms)
            made.__dataclass_params__.frozen = frozen
            members = fields(made)
            methods = {"__init__": Init(made, frozen)}
            methods |= _repr(members) if repr else {}
            methods |= _comparisons(members, frozen=frozen) if eq else {}
            methods |= _refusals(made, members, slots=forms.get("slots", False)) if frozen else {}
            for name, method in methods.items():
                if own.get(name) is None:
                    setattr(made, name, method)
            return made

        return make if cls is None else make(cls)


def _collected(cls: Class, **forms: bool) -> Class:
    """Let Python collect the fields. It looks three times into each annotation for a word that few have: it sees the
    others wrapped, as types that are no text."""
    written = vars(cls).get("__annotations__", {})
    cls.__annotations__ = {name: text if _is_special(text) else (text,) for name, text in written.items()}
    made: Class = dataclasses.dataclass(init=False, repr=False, eq=False, **forms)(cls)
    cls.__annotations__ = made.__annotations__ = written
    for each in fields(made):
        if isinstance(each.type, tuple):
            (each.type,) = each.type
    return made


def _is_special(annotation: Any) -> bool:
    return not isinstance(annotation, str) or "ClassVar" in annotation or "KW_ONLY" in annotation


class Init:
    """The `__init__` of a class, until it makes a second instance or is looked at."""

    __slots__ = ("cls", "frozen", "is_used")

    def __init__(self, cls: Class, frozen: bool) -> None:  # noqa: FBT001
        self.cls, self.frozen, self.is_used = cls, frozen, False

    def __get__(self, instance: object, _: Class | None = None) -> Callable[..., None]:
        if instance is not None and not self.is_used:
            self.is_used = True
            return partial(self._fill, instance)
        return self._compiled(instance)

    def _compiled(self, instance: object) -> Callable[..., None]:
        made = _init(self.cls, frozen=self.frozen)
        self.cls.__init__ = made
        return made if instance is None else made.__get__(instance)

    def _fill(self, instance: object, /, *given: Any, **named: Any) -> None:
        """Do what the compiled function does, which also refuses arguments that do not fit."""
        members = fields(self.cls)
        values = dict(zip((each.name for each in members if each.init and not each.kw_only), given, strict=False))
        needed = {each.name for each in members if each.init and each.default is each.default_factory}  # both MISSING
        by_name = {each.name for each in members if each.init}.difference(values)
        if len(values) < len(given) or not named.keys() <= by_name or needed.difference(values, named):
            self._compiled(instance)(*given, **named)
            return
        values |= named
        put = object.__setattr__ if self.frozen else setattr
        for each in members:
            if each.name in values:
                put(instance, each.name, values[each.name])
            elif each.default is not MISSING:
                put(instance, each.name, each.default)
            elif each.default_factory is not MISSING:
                put(instance, each.name, each.default_factory())
        after = getattr(instance, "__post_init__", None)
        if after is not None:
            after()


def _init(cls: Class, *, frozen: bool) -> FunctionType:
    """Compile the `__init__` of a class."""
    names: dict[str, Any] = {"__name__": cls.__module__, "_put": object.__setattr__, "_missing": _DEFAULT}
    by_place, by_name, body = ["self"], ["*"], []
    for each in fields(cls):
        name, default, value = each.name, "", each.name
        if each.default is not MISSING:
            names[f"_default_{name}"], default = each.default, f" = _default_{name}"
            value = value if each.init else f"_default_{name}"
        elif each.default_factory is not MISSING:
            names[f"_make_{name}"], default = each.default_factory, " = _missing"
            value = f"_make_{name}() if {name} is _missing else {name}" if each.init else f"_make_{name}()"
        if each.init:
            (by_name if each.kw_only else by_place).append(name + default)
        if each.init or default:
            body.append(f"_put(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join([*by_place, *(by_name if len(by_name) > 1 else ())])
    exec(f"def __init__({parameters}):\n " + "\n ".join(body or ["pass"]), names)  # noqa: S102
    made: FunctionType = names["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    made.__annotations__ = {each.name: each.type for each in fields(cls) if each.init} | {"return": None}
    return made


def _repr(members: Fields) -> Methods:
    names = [each.name for each in members if each.repr]

    def shown(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return {"__repr__": recursive_repr()(shown)}


def _comparisons(members: Fields, *, frozen: bool) -> Methods:
    names = [each.name for each in members if each.compare]
    values: Callable[[Any], Any] = attrgetter(*names) if names else lambda _: ()

    def equal(self: Any, other: object) -> bool:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return {"__eq__": equal, "__hash__": (lambda self: hash(values(self))) if frozen else None}


def _refusals(cls: Class, members: Fields, *, slots: bool) -> Methods:
    """Return what refuses every change of an instance. pickle and copy fill the slots of a new one."""
    names = [each.name for each in members]

    def put(self: Any, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def drop(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    def fill(self: Any, state: list[Any]) -> None:
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    state: Methods = {"__getstate__": lambda self: [getattr(self, name) for name in names], "__setstate__": fill}
    return {"__setattr__": put, "__delattr__": drop, **(state if slots else {})}
