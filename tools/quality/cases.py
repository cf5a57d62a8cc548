"""Which test covers which numbered case and which rule: read from the marks by `ast`, without running anything.

`make cases` writes tests/CASES.md and tests/CASES_RULES.md, a line for each number, and tests/CASES_TESTS.md, the tests of each. test_cases.py holds
both to the truth.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tools.quality.action_rules import ACTION_RULES
from tools.quality.base_tool_rules import BASE_TOOL_RULES
from tools.quality.case_numbers import CASES, OPEN, RULES
from tools.quality.changeset_rules import CHANGESET_RULES
from tools.quality.flow_rules import FLOW_RULES
from tools.quality.tool_rules import TOOL_RULES
from tools.quality.turn_rules import TURN_RULES

ROOT = Path(__file__).parents[2]
FOLDERS = ("tests", "tools/quality")
PAGE, RULES_PAGE, LISTS = (ROOT / "tests" / f"CASES{name}.md" for name in ("", "_RULES", "_TESTS"))
RUNTIME_RULES = TOOL_RULES | BASE_TOOL_RULES | CHANGESET_RULES | TURN_RULES

KNOWN: Mapping[str, Mapping[str, str]] = {"case": CASES, "rule": RULES | ACTION_RULES | RUNTIME_RULES | FLOW_RULES}
Covered = Mapping[tuple[str, str], Sequence[str]]


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
def marks(root: Path = ROOT) -> Sequence[Mark]:
    """Return every case and rule mark of the tests, in the order of files and lines."""
    found: list[Mark] = []
    for path in sorted(path for folder in FOLDERS for path in (root / folder).rglob("*.py")):
        text = "" if "node_modules" in path.parts else path.read_text("utf-8")
        if "mark.case" in text or "mark.rule" in text:
            reader = Reader(path.relative_to(root).as_posix())
            reader.visit(ast.parse(text))
            found += reader.marks
    return tuple(found)


def covered(found: Sequence[Mark]) -> dict[tuple[str, str], list[str]]:
    table: dict[tuple[str, str], list[str]] = defaultdict(list)
    for mark in found:
        if mark.number is not None and mark.test not in table[mark.kind, mark.number]:
            table[mark.kind, mark.number].append(mark.test)
    return table


@dataclass(frozen=True)
class Section:
    """The numbers of one list, with what each is."""

    title: str
    kind: str
    known: Mapping[str, str]
    note: str = ""


SECTIONS = (
    Section("Cases of the attack and fault matrix", "case", CASES),
    Section("Rules of the specification", "rule", RULES),
)
RUNTIME_SECTIONS = (
    Section(
        "Rules of the action gateway's specification",
        "rule",
        ACTION_RULES,
        "Each row ends with its status: as written, decided where the text is open, or stricter.",
    ),
    Section(
        "Rules of the tool runtime's specification",
        "rule",
        RUNTIME_RULES,
        "Each row ends with its status: as written, as printed, decided, stricter, looser, or other.",
    ),
    Section("Rules of the flow tools' specification", "rule", FLOW_RULES, "Each row ends with its status, as above."),
)


def page(found: Sequence[Mark]) -> str:
    """Return the text of CASES.md: a line for each number, with how many tests it has."""
    table = covered(found)
    lines = [
        "# Attacks, faults and rules, and how many tests each has",
        "",
        "Written by `make cases` from the marks in the tests; `make check` refuses a page that differs, and a number that is",
        f"due without a test. A count leads to the tests ([all of them]({LISTS.name})). Of the cases, only",
        "[Still open](#still-open) has what does not hold. Run the tests of one number:",
        "`make test-fast ARGS='--case 63'`, `ARGS='--rule 12.5.6-3'`.",
        "",
        *(line for section in SECTIONS for line in rows(section, table)),
        "## Specifications of the agent runtime",
        "",
        "| rules | how many | tests |",
        "|---|---|---|",
        *(overview(section, table) for section in RUNTIME_SECTIONS),
        "",
    ]
    return "\n".join(
        [*lines, "## Still open", "", *(f"- **Case {number}.** {what}" for number, what in OPEN.items()), ""]
    )


def rules(found: Sequence[Mark]) -> str:
    """Return the text of CASES_RULES.md: a line for each rule of the specifications of the agent runtime."""
    table = covered(found)
    head = f"# Each rule of the agent runtime's specifications\n\nWritten by `make cases`, as [the cases]({PAGE.name}) are.\n"
    return "\n".join([head, *(line for section in RUNTIME_SECTIONS for line in rows(section, table))])


def rows(section: Section, table: Covered) -> Iterator[str]:
    yield from (f"## {section.title}", "", *([section.note, ""] if section.note else []))
    yield from ("| number | what | tests |", "|---|---|---|")
    yield from (
        f"| {number} | {what} | {count(section.kind, number, table)} |" for number, what in section.known.items()
    )
    yield ""


def overview(section: Section, table: Covered) -> str:
    tests = {test for number in section.known for test in table.get((section.kind, number), ())}
    anchor = section.title.lower().replace(" ", "-").replace("'", "")
    return f"| [{section.title}]({RULES_PAGE.name}#{anchor}) | {len(section.known)} | {len(tests)} |"


def count(kind: str, number: str, table: Covered) -> str:
    tests = table.get((kind, number), ())
    if not tests:
        return "**none**"
    return f"[{len(tests)}]({LISTS.name}#{kind}-{number})"


def lists(found: Sequence[Mark]) -> str:
    """Return the text of CASES_TESTS.md: the tests of each number, by file."""
    table = covered(found)
    lines = [
        f"# The tests of each case and rule\n\nWritten by `make cases`; [the cases]({PAGE.name}) and [the rules]({RULES_PAGE.name}) say what each is.\n"
    ]
    for kind, known in KNOWN.items():
        for number in known:
            if tests := table.get((kind, number)):
                lines += [f'## <a id="{kind}-{number}"></a>{kind} {number}\n', *by_file(tests), ""]
    return "\n".join(lines)


def by_file(tests: Sequence[str]) -> Iterator[str]:
    """Yield a line for each file. A mark of a whole file names no test."""
    files: dict[str, list[str]] = defaultdict(list)
    for test in tests:
        file, _, name = test.partition("::")
        files[file].append(f"`{name}`" if name else "all its tests")
    for file, names in files.items():
        yield f"- [{file}](../{file}): {', '.join(names)}"


def main() -> None:
    for path, text in ((PAGE, page(marks())), (RULES_PAGE, rules(marks())), (LISTS, lists(marks()))):
        path.write_text(text, "utf-8")
        print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
