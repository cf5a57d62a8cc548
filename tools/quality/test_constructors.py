"""No constructor of the package takes more than three arguments by position, so that calls name their arguments.

A NamedTuple is exempt: it is built by position. `__init__` and dataclasses are read from the source; inherited fields of
a dataclass count, too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.quality.architecture import PACKAGE

MOST = 3


def too_many(package: Path) -> list[str]:
    """Return `file: class: count` of each constructor that takes more arguments by position."""
    found: list[str] = []
    for path in sorted(package.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        found += [
            f"{path.relative_to(package).as_posix()}: {node.name}: {count}"
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef) and (count := by_position(node, tree)) > MOST
        ]
    return found


def by_position(node: ast.ClassDef, module: ast.Module) -> int:
    """Return how many arguments the class takes by position, with the fields of its bases in the same module."""
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
            return len([*each.args.posonlyargs, *each.args.args]) - 1
    own = len(list(fields_by_position(node)))
    names = {ast.unparse(base) for base in node.bases}
    bases = [each for each in module.body if isinstance(each, ast.ClassDef) and each.name in names]
    return own + sum(by_position(base, module) for base in bases)


def fields_by_position(node: ast.ClassDef) -> Iterator[ast.AnnAssign]:
    """Yield the fields of a dataclass up to `_: KW_ONLY`."""
    settings = [ast.unparse(each) for each in node.decorator_list]
    if not any(each.startswith("dataclass") and "kw_only=True" not in each for each in settings):
        return
    for each in node.body:
        if isinstance(each, ast.AnnAssign):
            kind = ast.unparse(each.annotation)
            if kind == "KW_ONLY":
                return
            if not kind.startswith("ClassVar") and "init=False" not in ast.unparse(each):
                yield each


def test_no_constructor_of_the_package_takes_more_than_three_arguments_by_position() -> None:
    assert [] == too_many(PACKAGE)


FOUR = "a: int\n    b: int\n    c: int\n    d: int"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("class New:\n    def __init__(self, a, b, c, d): ...", True),
        ("class New:\n    def __init__(self, a, b, c, /, d): ...", True),
        ("class New:\n    def __init__(self, a, b, c, *, d): ...", False),
        (f"@dataclass\nclass New:\n    {FOUR}", True),
        (f"@dataclass(frozen=True)\nclass New:\n    {FOUR}", True),
        (f"@dataclass(frozen=True, kw_only=True)\nclass New:\n    {FOUR}", False),
        ("@dataclass\nclass New:\n    a: int\n    b: int\n    c: int\n    _: KW_ONLY\n    d: int", False),
        ("@dataclass\nclass Old:\n    a: int\n    b: int\n@dataclass\nclass New(Old):\n    c: int\n    d: int", True),
        ("@dataclass\nclass New:\n    a: int\n    b: int\n    c: int\n    d: ClassVar[int] = 4", False),
        ("@dataclass\nclass New:\n    a: int\n    b: int\n    c: int\n    d: int = field(init=False)", False),
        (f"class New(NamedTuple):\n    {FOUR}", False),
    ],
)
def test_a_constructor_that_takes_a_fourth_argument_by_position_is_found(
    source: str, found: bool, tmp_path: Path
) -> None:
    (tmp_path / "new.py").write_text(source, "utf-8")
    assert (["new.py: New: 4"] if found else []) == too_many(tmp_path)
