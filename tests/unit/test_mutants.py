"""`make mutants` changes one place at a time, and its planted faults stand in the code as it is now."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from tests.kit import executed_lines
from tests.kit.executed_lines import SECONDS, Executed
from tests.kit.mutants import CORE, mutants_of, nearest, planted
from tests.kit.mutations import mutations

SOURCE = '''
def f(a: int, b: bool = False) -> int | None:
    """Text."""
    if a < 2 and not b:
        log.warning("for people", a)
        raise ValueError("for people")
    return None if a is b else a + 1
Kind = Literal["a"]
'''
CHANGES = {
    "False -> True", "a < 2 and (not b) -> not (a < 2 and (not b))", "And -> Or", "a < 2 and (not b) -> not b",
    "a < 2 and (not b) -> a < 2", "Lt -> LtE", "2 -> 3", "not b -> b", "log.warning('for people', a) -> pass",
    "raise ValueError('for people') -> pass", "return None if a is b else a + 1 -> return None",
    "a is b -> not a is b", "Is -> IsNot", "Add -> Sub", "1 -> 2",
}  # fmt: skip


def test_each_mutant_differs_in_one_place_and_compiles() -> None:
    tree, whole = ast.parse(SOURCE), ast.dump(ast.parse(SOURCE))
    seen = set()
    for line, change in mutations(tree):
        assert ast.dump(tree) != whole
        assert 2 <= line <= 7
        compile(tree, "f", "exec")
        seen.add(change)
    assert ast.dump(tree) == whole, "the tree is as before at the end"
    assert seen == CHANGES


def test_14_faults_are_planted_in_each_core_module() -> None:
    assert dict.fromkeys(CORE, 14) == Counter(each.path for each in planted())


def executed(test: str, *lines: int, others: int = 0) -> Executed:
    modules = {PATH: frozenset(lines), "oauthbroker/core/secret.py": frozenset(range(others))}
    return Executed(test, 0.1, {path: each for path, each in modules.items() if each})


PATH = "oauthbroker/refresh/retry_store.py"
SOURCE_OF_PATH = """
LIMIT = 1
def f(a=2):
    if (a >
            LIMIT):
        return 1
    return max(
        2, a)
"""


@pytest.mark.parametrize(
    ("line", "tests"),
    [
        (2, ["t::near", "t::far", "u::branch"]),
        (3, ["t::near", "t::far", "u::branch"]),
        (4, ["t::near", "t::far", "u::branch"]),
        (5, ["t::near", "t::far", "u::branch"]),
        (6, ["u::branch"]),
        (7, ["t::near", "t::far"]),
    ],
)
def test_a_change_is_tried_by_the_tests_that_execute_its_statement_the_nearest_first(
    line: int, tests: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "oauthbroker" / "refresh").mkdir(parents=True)
    (tmp_path / PATH).write_text(SOURCE_OF_PATH)
    monkeypatch.setattr(executed_lines, "ROOT", tmp_path)
    rows = [executed("t::far", 4, 8, others=9), executed("t::near", 4, 8), executed("u::branch", 4, 6, others=99)]
    rows += [executed("u::elsewhere", others=1)]
    assert tests == [*executed_lines.nearest_tests(PATH, line, sorted(rows, key=Executed.breadth))]


def test_the_nearest_tests_take_some_seconds_together(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "oauthbroker" / "refresh").mkdir(parents=True)
    (tmp_path / PATH).write_text(SOURCE_OF_PATH)
    monkeypatch.setattr(executed_lines, "ROOT", tmp_path)
    rows = [executed(f"t::{number:03}", 7)._replace(seconds=SECONDS / 4) for number in range(9)]
    assert ["t::000", "t::001", "t::002"] == [*executed_lines.nearest_tests(PATH, 7, rows)]
    assert ["t::0"] == [*executed_lines.nearest_tests(PATH, 7, [executed("t::0", 7)._replace(seconds=99)])]


def test_a_core_module_is_tried_by_the_tests_that_are_named_for_it() -> None:
    path = "oauthbroker/tokens/decision.py"
    assert CORE[path] == nearest(next(mutants_of(path)))


def test_a_module_has_the_mutants_with_the_given_numbers() -> None:
    path = "oauthbroker/tokens/decision.py"
    every = [(each.line, each.change) for each in mutants_of(path)]
    assert [every[3], every[7]] == [(each.line, each.change) for each in mutants_of(path, [7, 3])]
