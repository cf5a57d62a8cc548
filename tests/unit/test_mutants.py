"""`make mutants` changes one place at a time, and its planted faults stand in the code as it is now."""

from __future__ import annotations

import ast
from collections import Counter

from tests.kit.mutants import CORE, mutants_of, nearest, planted
from tests.kit.mutations import mutations

SOURCE = '''
def f(a: int, b: bool = False) -> int | None:
    """Text."""
    if a < 2 and not b:
        log.warning("for people", a)
        raise ValueError("for people")
    return None if a is b else a + 1
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


def test_a_module_is_tried_by_the_tests_that_name_it() -> None:
    assert "tests/unit/refresh/test_retry_store.py" in nearest("oauthbroker/refresh/retry_store.py")
    assert CORE["oauthbroker/tokens/decision.py"] == nearest("oauthbroker/tokens/decision.py")
    assert ("tests/unit/protocol",) == nearest("oauthbroker/protocol/no_such_module.py")


def test_a_module_has_the_mutants_with_the_given_numbers() -> None:
    path = "oauthbroker/tokens/decision.py"
    every = [(each.line, each.change) for each in mutants_of(path)]
    assert [every[3], every[7]] == [(each.line, each.change) for each in mutants_of(path, [7, 3])]
