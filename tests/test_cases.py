"""Which test covers which numbered case and which rule: read from the marks by `ast`, without running anything.

`python tests/test_cases.py` (`make cases`) writes tests/CASES.md; the tests below hold it to the truth and refuse a
number that is due and has no test.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.kit.action_rules import ACTION_RULES
from tests.kit.base_tool_rules import BASE_TOOL_RULES
from tests.kit.case_numbers import CASES, OPEN, RULES
from tests.kit.changeset_rules import CHANGESET_RULES
from tests.kit.flow_rules import FLOW_RULES
from tests.kit.tool_rules import TOOL_RULES
from tests.kit.turn_rules import TURN_RULES

TESTS = Path(__file__).parent
PAGE = TESTS / "CASES.md"
RUNTIME_RULES = TOOL_RULES | BASE_TOOL_RULES | CHANGESET_RULES | TURN_RULES


DUE = {
    "case": set(CASES) - {"70"},
    "rule": {*RULES, *ACTION_RULES, *RUNTIME_RULES, *FLOW_RULES},
}
KNOWN = {"case": CASES, "rule": RULES | ACTION_RULES | RUNTIME_RULES | FLOW_RULES}


class Mark(NamedTuple):
    kind: str
    number: str | None  # None when it is not a plain string in the source
    test: str


class Reader(ast.NodeVisitor):
    """Collects the marks of one file. A mark belongs to the function or class it decorates or stands in."""

    def __init__(self, file: str) -> None:
        self.place = [file]
        self.marks: list[Mark] = []

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._inside(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._inside(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._inside(node)

    def _inside(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.place.append(node.name)
        self.generic_visit(node)
        self.place.pop()

    def visit_Call(self, node: ast.Call) -> None:
        match node.func:
            case ast.Attribute(value=ast.Attribute(attr="mark"), attr="case" | "rule" as kind):
                test = "::".join(self.place)
                self.marks += [Mark(kind, literal(argument), test) for argument in node.args]
        self.generic_visit(node)


def literal(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


@cache
def marks(tests: Path = TESTS) -> Sequence[Mark]:
    """Return every case and rule mark below `tests`, in the order of files and lines."""
    found: list[Mark] = []
    for path in sorted(tests.rglob("*.py")):
        text = "" if "node_modules" in path.parts else path.read_text("utf-8")
        if "mark.case" in text or "mark.rule" in text:
            reader = Reader(path.relative_to(tests).as_posix())
            reader.visit(ast.parse(text))
            found += reader.marks
    return tuple(found)


def covered(found: Sequence[Mark]) -> dict[tuple[str, str], list[str]]:
    table: dict[tuple[str, str], list[str]] = defaultdict(list)
    for mark in found:
        if mark.number is not None and mark.test not in table[mark.kind, mark.number]:
            table[mark.kind, mark.number].append(mark.test)
    return table


def page(found: Sequence[Mark]) -> str:
    """The text of CASES.md."""
    table = covered(found)
    return "\n".join(
        [
            "# Which test covers what",
            "",
            "Written by `make cases` from the marks in the tests; a test refuses a page that differs, and a number that is",
            "due without a test. Run the tests of one number: `make test-fast ARGS='--case 63'`, `ARGS='--rule 12.5.6-3'`.",
            "",
            "## Cases of the attack and fault matrix",
            "",
            *rows("case", table, CASES),
            "",
            "### Still open",
            "",
            "| number | the open part, and why |",
            "|---|---|",
            *(f"| {number} | {what} |" for number, what in OPEN.items()),
            "",
            "## Rules of the specification",
            "",
            *rows("rule", table, RULES),
            "",
            "## Rules of the action gateway's specification",
            "",
            "Each row ends with its status: as written, decided where the text is open, or stricter.",
            "",
            *rows("rule", table, ACTION_RULES),
            "",
            "## Rules of the tool runtime's specification",
            "",
            "Each row ends with its status: as written, as printed, decided, stricter, looser, or other.",
            "",
            *rows("rule", table, RUNTIME_RULES),
            "",
            "## Rules of the flow tools' specification",
            "",
            "Each row ends with its status, as above.",
            "",
            *rows("rule", table, FLOW_RULES),
            "",
        ]
    )


def rows(kind: str, table: dict[tuple[str, str], list[str]], known: Mapping[str, str]) -> Iterator[str]:
    yield "| number | what | tests |"
    yield "|---|---|---|"
    for number, what in known.items():
        tests = table.get((kind, number), [])
        where = "<br>".join(f"`{test}`" for test in tests) or ("**none**" if number in DUE[kind] else "open, see below")
        yield f"| {number} | {what} | {where} |"


@pytest.mark.parametrize("kind", DUE)
def test_every_number_that_is_due_has_a_test(kind):
    have = {number for mark_kind, number in covered(marks()) if mark_kind == kind}
    assert "" == " ".join(number for number in KNOWN[kind] if number in DUE[kind] - have)


def test_a_case_without_a_test_names_the_open_part_and_the_reason():
    assert set(CASES) - DUE["case"] <= OPEN.keys() <= CASES.keys()
    assert [] == [number for number, what in OPEN.items() if "Open: " not in what or "Why: " not in what]


def test_every_mark_names_a_known_number_and_stands_on_a_test():
    wrong = [
        f"{mark.test}: {mark.kind} {mark.number}"
        for mark in marks()
        if mark.number not in KNOWN[mark.kind] or not re.search(r"::([Tt]est|\w*Contract)|^[\w/]+\.py$", mark.test)
    ]
    assert [] == wrong


def test_the_page_is_up_to_date():
    """Run `make cases` and commit tests/CASES.md."""
    assert page(marks()) == PAGE.read_text("utf-8")


def test_marks_are_found_wherever_pytest_allows_them(tmp_path):
    (tmp_path / "test_x.py").write_text(
        """
import pytest
pytestmark = [pytest.mark.rule("12.5.4")]
ROWS = [pytest.param(1, marks=pytest.mark.case("8"))]
@pytest.mark.case("1", "2")
def test_a(): ...
@pytest.mark.case("3")
class TestB:
    @pytest.mark.parametrize("x", [pytest.param(1, marks=[pytest.mark.case("14a")])])
    async def test_c(self, x): ...
@pytest.mark.case(65)
def test_d(): ...
""",
        "utf-8",
    )
    assert (
        ("rule", "12.5.4", "test_x.py"),
        ("case", "8", "test_x.py"),
        ("case", "1", "test_x.py::test_a"),
        ("case", "2", "test_x.py::test_a"),
        ("case", "14a", "test_x.py::TestB::test_c"),
        ("case", "3", "test_x.py::TestB"),
        ("case", None, "test_x.py::test_d"),
    ) == marks(tmp_path)


if __name__ == "__main__":
    PAGE.write_text(page(marks()), "utf-8")
    sys.stdout.write(f"wrote {PAGE.relative_to(TESTS.parent)}\n")
