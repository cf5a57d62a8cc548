"""Files and functions of the package stay short enough to read at once. A longer one is split where its sense is."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "oauthbroker"
MOST_OF_A_FILE = 300
MOST_OF_A_FUNCTION = 50
APART = (
    "flowtools",
    "tools",
    "mcp",
    "integrations",
    "gateway",
    "testing",
    "store/postgres",
)  # tests/unit has their budgets
MOST_OF_THE_CORE = 76_520  # a feature names its own lines; a change without one takes none


def too_long(source: str) -> list[str]:
    """Return the parts of a file that are too long, with their lines: the file itself, and functions by their names."""
    lines = source.count("\n")
    found = [f"the file: {lines}"] if lines > MOST_OF_A_FILE else []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            found += [f"{node.name}: {lines}"] if lines > MOST_OF_A_FUNCTION else []
    return found


def test_no_file_has_more_than_300_lines_and_no_function_more_than_50():
    found = {str(path.relative_to(PACKAGE)): too_long(path.read_text("utf-8")) for path in PACKAGE.rglob("*.py")}
    assert {} == {path: parts for path, parts in found.items() if parts}


@pytest.mark.parametrize("kind", ["def", "async def"])
@pytest.mark.parametrize(("lines", "found"), [(50, []), (51, ["work: 51"])])
def test_a_function_that_is_too_long_is_named(kind: str, lines: int, found: list[str]):
    assert found == too_long(f"class Any:\n    {kind} work():\n" + "        pass\n" * (lines - 1))


@pytest.mark.parametrize(("lines", "found"), [(300, []), (301, ["the file: 301"])])
def test_a_file_that_is_too_long_is_named(lines: int, found: list[str]):
    assert found == too_long("\n" * lines)


def test_the_core_keeps_to_its_budget():
    """Count every line, as `wc -l` does: blank lines, imports and docstrings too."""
    counts = {path: path.read_bytes().count(b"\n") for path in PACKAGE.rglob("*.py")}
    core = {path: lines for path, lines in counts.items() if not any(path.is_relative_to(PACKAGE / it) for it in APART)}
    assert sum(core.values()) <= MOST_OF_THE_CORE
    assert min(sum(counts[path] for path in counts if path.is_relative_to(PACKAGE / it)) for it in APART) > 500
