"""The package's `dataclass` beside Python's: one table of classes, each made by both."""

from __future__ import annotations

import ast
import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import pytest

from oauthbroker.core.dataclasses import Init, dataclass
from tools.quality.architecture import FOLDERS, PACKAGE

PLUGINS = {"flowtools", "gateway", "integrations", "mcp", "tools"}  # they see the public names only
Make = Callable[..., Any]


def plain(make: Make, **forms: bool) -> Any:
    @make(**forms)
    class Plain:
        kind: ClassVar[str] = "k"
        place: int
        name: str = "a"
        many: list[int] = dataclasses.field(default_factory=list, compare=False)
        hidden: str = dataclasses.field(default="h", repr=False)
        made: int = dataclasses.field(init=False, default=7)
        later: dict[str, int] = dataclasses.field(init=False, default_factory=dict, compare=False)
        _: dataclasses.KW_ONLY
        word: str
        last: int = 3

    return Plain


def told(make: Make, **forms: bool) -> Any:
    @make(**forms)
    class Told(plain(make, **forms)):  # type: ignore[misc]
        own: int = 1
        checked: bool = dataclasses.field(init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "checked", self.own > 0)

        def __repr__(self) -> str:
            return f"told {self.own}"

    return Told


def empty(make: Make, **forms: bool) -> Any:
    @make(**forms)
    class Empty:
        pass

    return Empty


FORMS: dict[str, dict[str, bool]] = {
    "plain": {},
    "frozen": {"frozen": True},
    "frozen slots": {"frozen": True, "slots": True},
    "slots": {"slots": True},
    "by name": {"frozen": True, "slots": True, "kw_only": True},
    "without a repr": {"slots": True, "repr": False},
    "compared by identity": {"slots": True, "eq": False},
}
SOURCES: tuple[tuple[Any, list[dict[str, Any]]], ...] = (
    (plain, [{"place": 1, "word": "w"}, {"place": 1, "word": "w", "many": [1]}, {"place": 2, "word": "v", "last": 9}]),
    (told, [{"place": 1, "word": "w"}, {"place": 1, "word": "w", "own": 0}]),
    (empty, [{}]),
)
TABLE = [
    pytest.param(source, given, FORMS[form], id=f"{source.__name__}, {form}")
    for source, given in SOURCES
    for form in FORMS
]


def outcome(work: Callable[[], Any]) -> Any:
    """Return what `work` gives, or the type and words of its error."""
    try:
        return work()
    except Exception as problem:  # noqa: BLE001  (each kind is compared)
        return type(problem), str(problem).replace("'", "")


def behaviour(cls: Any, given: list[dict[str, Any]]) -> dict[str, Any]:
    """Return all that a program can see of a class and its instances."""
    each = [cls(**values) for values in given]
    first = each[0]
    name = next(iter(given[0]), "")
    seen = {
        "parameters": [
            (p.name, p.kind, repr(p.default), p.annotation) for p in inspect.signature(cls).parameters.values()
        ],
        "is at": (cls.__init__.__module__, cls.__init__.__qualname__),
        "pattern": cls.__match_args__,
        "types": ({each.name: each.type for each in dataclasses.fields(cls)}, cls.__annotations__),
        "equal": [[one == other for one in each] for other in each],
        "to another class": first == 1,
        "hash": outcome(lambda: [hash(one) == hash(other) for one in each for other in each]),
        "members": [dataclasses.asdict(one) for one in each],
        "replaced": dataclasses.asdict(dataclasses.replace(first)),
        "copied": dataclasses.asdict(copy.deepcopy(first)),
        "of its own": each[0].later is not each[-1].later if hasattr(first, "later") else None,
        "too few": outcome(cls) if name else None,
        "unknown": outcome(lambda: cls(**given[0], other=1)),
        "put": outcome(lambda: setattr(first, name, 5)) if name else None,
        "put anew": outcome(lambda: setattr(first, "other", 5)) is None,
        "deleted": outcome(lambda: delattr(first, name)) if name else None,
    }
    if cls.__repr__ is not object.__repr__:
        seen["repr"] = [repr(one) for one in each[1:]]
    return seen


@pytest.mark.parametrize(("source", "given", "forms"), TABLE)
def test_a_class_behaves_as_pythons_own(source: Any, given: list[dict[str, Any]], forms: dict[str, bool]) -> None:
    assert behaviour(source(dataclasses.dataclass, **forms), given) == behaviour(source(dataclass, **forms), given)


@pytest.mark.parametrize("make", [dataclasses.dataclass, dataclass])
def test_a_subclass_of_a_frozen_class_has_members_of_its_own(make: Make) -> None:
    class Wider(plain(make, frozen=True)):  # type: ignore[misc]
        pass

    wider: Any = Wider(1, word="w")
    wider.other = 5
    del wider.other
    changes: list[Callable[[], None]] = [lambda: setattr(wider, "place", 2), lambda: delattr(wider, "place")]
    for change in changes:
        with pytest.raises(dataclasses.FrozenInstanceError, match="field 'place'"):
            change()


@pytest.mark.parametrize("outer", [dataclasses.dataclass, dataclass])
@pytest.mark.parametrize("inner", [dataclasses.dataclass, dataclass])
def test_a_class_may_be_of_one_that_the_other_has_made(inner: Make, outer: Make) -> None:
    @outer(frozen=True)
    class Outer(plain(inner, frozen=True)):  # type: ignore[misc]
        own: int = 4

    one: Any = Outer(1, word="w")
    assert (1, 4, Outer(1, word="w")) == (one.place, one.own, one)
    with pytest.raises(dataclasses.FrozenInstanceError, match="field 'own'"):
        one.own = 5
    with pytest.raises(TypeError, match="cannot inherit"):
        outer(type("Open", (plain(inner, frozen=True),), {}))


@pytest.mark.parametrize("outer", [dataclasses.dataclass, dataclass])
@pytest.mark.parametrize("inner", [dataclasses.dataclass, dataclass])
def test_a_frozen_class_is_of_no_open_one(inner: Make, outer: Make) -> None:
    with pytest.raises(TypeError, match="cannot inherit frozen"):
        outer(frozen=True)(type("Frozen", (plain(inner),), {}))


def test_a_class_without_a_docstring_has_its_name() -> None:
    assert "Plain" == plain(dataclass).__doc__ == plain(dataclass, slots=True).__doc__


def test_an_init_is_compiled_once_for_the_second_instance() -> None:
    made = empty(dataclass)
    made()
    assert isinstance(vars(made)["__init__"], Init)
    made()
    assert vars(made)["__init__"] is made.__init__
    assert inspect.isfunction(made.__init__)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("given", "named"),
    [
        ((1,), {"word": "w"}),
        ((1, "b"), {"word": "w", "many": [2]}),
        ((), {"place": 1, "word": "w", "hidden": "x"}),
        ((), {"word": "w"}),
        ((1,), {"place": 2, "word": "w"}),
        ((1, "b", [], "x", 5), {"word": "w"}),
        ((1,), {"word": "w", "made": 8}),
        ((1,), {"word": "w", "later": {}}),
    ],
)
def test_a_first_instance_is_as_the_second(form: str, given: tuple[Any, ...], named: dict[str, Any]) -> None:
    for source in (plain, told):
        made, pythons = source(dataclass, **FORMS[form]), source(dataclasses.dataclass, **FORMS[form])
        first, second, third = (outcome(partial(_members, each, given, named)) for each in (made, made, pythons))
        assert first == second == third


def _members(cls: Any, given: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    return dataclasses.asdict(cls(*given, **named))


def test_a_first_instance_is_filled_through_the_setattr_of_its_class() -> None:
    @dataclass
    class Loud:
        word: str

        def __setattr__(self, name: str, value: str) -> None:
            object.__setattr__(self, name, value.upper())

    assert ["A", "B"] == [Loud("a").word, Loud("b").word]


@dataclass(frozen=True, slots=True)
class Sent:
    place: int
    inner: Any = None


def test_a_frozen_class_with_slots_is_pickled() -> None:
    assert Sent(1, Sent(2)) == pickle.loads(pickle.dumps(Sent(1, Sent(2))))  # noqa: S301


def test_a_repr_that_holds_itself_ends() -> None:
    inner: list[Sent] = []
    inner.append(Sent(1, inner))
    assert "Sent(place=1, inner=[...])" == repr(inner[0])


def test_a_missing_value_is_said_with_the_name_of_the_class() -> None:
    with pytest.raises(TypeError, match=r"Sent.__init__\(\) missing 1 required positional argument: 'place'"):
        Sent()  # type: ignore[call-arg]


def test_the_package_makes_its_dataclasses_with_it() -> None:
    others = []
    for path in sorted(PACKAGE.rglob("*.py")):
        folder = path.relative_to(PACKAGE).parts[0]
        if folder in PLUGINS or path == PACKAGE / "core" / "dataclasses.py":
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.ImportFrom(module="dataclasses", names=names) if {"dataclass", "InitVar"} & {
                    n.name for n in names
                }:
                    others.append(f"{path.relative_to(PACKAGE)}:{node.lineno} imports it from Python's dataclasses")
                case ast.Attribute(value=ast.Name(id="dataclasses"), attr="dataclass" | "InitVar"):
                    others.append(f"{path.relative_to(PACKAGE)}:{node.lineno} takes it from Python's dataclasses")
    assert PLUGINS < set(FOLDERS)
    assert [] == others
