"""Hold the list of stories that are left out with `--store postgres`: each has a reason, and the list may only shrink."""

from __future__ import annotations

import ast
from pathlib import Path

STORY = Path(__file__).parents[2] / "tests" / "story"
LEFT_OUT = {
    "api/test_warm_tokens.py": 8,
    "test_agents_failed_turns.py": 1,
    "test_lock_contention.py": 1,
}  # tests of each file
MARK = "pytest.mark.embedded_only"


def left_out(source: str) -> list[str]:
    """Return the names of the tests with the mark, also where the mark has a name of its own."""
    tree = ast.parse(source)
    marks = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign) and _is_mark(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    tests = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [
        test.name
        for test in tests
        if any(_is_mark(each) or (isinstance(each, ast.Name) and each.id in marks) for each in test.decorator_list)
    ]


def _is_mark(node: ast.expr) -> bool:
    """Tell whether this is the mark. Raises AssertionError if it is, and has no reason."""
    if not ast.unparse(node).startswith(MARK):
        return False
    assert isinstance(node, ast.Call), f"line {node.lineno}: the mark needs a reason"
    assert len(node.args) == 1, f"line {node.lineno}: the mark takes one reason"
    assert isinstance(node.args[0], ast.Constant), f"line {node.lineno}: the reason is a text"
    return True


def test_the_stories_that_are_left_out_are_these() -> None:
    texts = {path.relative_to(STORY).as_posix(): path.read_text("utf-8") for path in STORY.rglob("*.py")}
    found = {name: len(left_out(text)) for name, text in texts.items() if "embedded_only" in text}
    assert LEFT_OUT == found


def test_a_mark_is_found_by_its_name_and_by_another_one() -> None:
    source = f'other = {MARK}("a reason")\n@other\ndef test_one(): ...\n@{MARK}("b")\nasync def test_two(): ...\n'
    assert ["test_one", "test_two"] == left_out(source)
