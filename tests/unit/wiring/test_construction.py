"""The wiring names what it passes: a constructor with many parameters is called by keyword."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.kit.rooms import PACKAGE, module_name

MANY = 4
WIRING = sorted((PACKAGE / "wiring").glob("*.py"))


def positional_constructions(tree: ast.AST, names: dict[str, Any]) -> Iterator[str]:
    """Yield each call of a constructor of ours that passes some of many parameters unnamed, and each call of a class
    method that passes many unnamed."""
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        made = _constructor(call.func, names)
        if made is None or len(_parameters(made)) < MANY:
            continue
        if len(call.args) >= (1 if inspect.isclass(made) else MANY):
            yield f"line {call.lineno}: {ast.unparse(call.func)}"


def _constructor(func: ast.expr, names: dict[str, Any]) -> Any:
    match func:
        case ast.Name(id=name):
            kind = made = names.get(name)
        case ast.Attribute(value=ast.Name(id=name), attr=attr):
            kind = names.get(name)
            made = getattr(kind, attr, None)
        case _:
            return None
    ours = inspect.isclass(kind) and kind.__module__.startswith("oauthbroker.") and not issubclass(kind, Exception)
    return made if ours else None


def _parameters(made: Any) -> list[str]:
    return [name for name in inspect.signature(made).parameters if not name.startswith("_")]


@pytest.mark.parametrize("file", WIRING, ids=lambda file: file.stem)
def test_no_constructor_with_many_parameters_is_called_by_position(file: Path) -> None:
    names = vars(import_module(module_name(file, PACKAGE)))
    assert [] == list(positional_constructions(ast.parse(file.read_text("utf-8")), names))


class Wide:
    def __init__(self, one: int, two: int, three: int, four: int) -> None: ...


class Narrow:
    def __init__(self, one: int, two: int, three: int) -> None: ...


@pytest.mark.parametrize(("call", "found"), [("Wide(1, 2, 3, 4)", 1), ("Wide(one=1, two=2, three=3, four=4)", 0), ("Narrow(1, 2, 3)", 0)])  # fmt: skip
def test_a_construction_by_position_is_found(monkeypatch: pytest.MonkeyPatch, call: str, found: int) -> None:
    for kind in (Wide, Narrow):
        monkeypatch.setattr(kind, "__module__", "oauthbroker.planted")
    assert found == len(list(positional_constructions(ast.parse(call), {"Wide": Wide, "Narrow": Narrow})))
