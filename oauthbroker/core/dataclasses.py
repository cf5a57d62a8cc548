"""Python's dataclasses, made in a quarter of the time: `dataclass` compiles `__init__` alone. A process makes hundreds
of them before its first token. `InitVar` and `field(hash=...)` are not supported; the rest is as Python does it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import KW_ONLY, MISSING, FrozenInstanceError, asdict, astuple, field, fields, replace
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass

__all__ = ["KW_ONLY", "asdict", "astuple", "dataclass", "field", "fields", "replace"]

Class = type[Any]

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
            made = dataclasses.dataclass(init=False, repr=False, eq=False, **forms)(cls)
            methods = {
                "__init__": _init(made, frozen=frozen),
                **(_repr(made) if repr else {}),
                **(_comparisons(made, frozen=frozen) if eq else {}),
            }
            for name, method in methods.items():
                if own.get(name) is None:
                    setattr(made, name, method)
            if frozen:
                _freeze(made, slots=forms.get("slots", False))
            return made

        return make if cls is None else make(cls)


def _init(cls: Class, *, frozen: bool) -> Callable[..., None]:
    """Compile the `__init__` of a class."""
    names: dict[str, Any] = {"_put": object.__setattr__, "_missing": MISSING}
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
    made: Callable[..., None] = names["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    made.__annotations__ = {each.name: each.type for each in fields(cls) if each.init} | {"return": None}
    return made


def _repr(cls: Class) -> dict[str, Any]:
    names = [each.name for each in fields(cls) if each.repr]

    def shown(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return {"__repr__": recursive_repr()(shown)}


def _comparisons(cls: Class, *, frozen: bool) -> dict[str, Any]:
    names = [each.name for each in fields(cls) if each.compare]
    values: Callable[[Any], Any] = attrgetter(*names) if names else lambda _: ()

    def equal(self: Any, other: object) -> bool:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return {"__eq__": equal, "__hash__": (lambda self: hash(values(self))) if frozen else None}


def _freeze(cls: Class, *, slots: bool) -> None:
    """Refuse every change of an instance. pickle and copy fill the slots of a new one."""
    names = [each.name for each in fields(cls)]

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

    methods: dict[str, Callable[..., Any]] = {"__setattr__": put, "__delattr__": drop}
    if slots:
        methods |= {"__getstate__": lambda self: [getattr(self, name) for name in names], "__setstate__": fill}
    for name, method in methods.items():
        setattr(cls, name, method)
