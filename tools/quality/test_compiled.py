"""pytest finds the byte code that tests/kit/compiled.py writes, and rewrites nothing again."""

from __future__ import annotations

from pathlib import Path

from _pytest.assertion import rewrite

from tests.kit.compiled import files_of_tests, rewrite_asserts, rewritten

TESTS = Path(__file__).parents[2] / "tests"


def test_a_test_file_is_compiled_once_and_again_after_a_change(tmp_path: Path) -> None:
    path = tmp_path / "test_one.py"
    path.write_text("def test_one():\n    assert 1 == 1\n")
    assert [True, False] == [rewrite_asserts(path), rewrite_asserts(path)]
    path.write_text("def test_one():\n    assert 2 == 2\n")
    assert rewrite_asserts(path)


def test_the_byte_code_is_the_one_that_pytest_reads(tmp_path: Path) -> None:
    path = tmp_path / "test_one.py"
    path.write_text("def test_one():\n    assert 1 == 1\n")
    rewrite_asserts(path)
    code = rewrite._read_pyc(path, rewritten(path))
    assert code is not None
    assert "@pytest_ar" in code.co_names, "asserts are rewritten"


def test_every_test_file_is_among_the_files() -> None:
    found = files_of_tests(TESTS)
    assert set(TESTS.rglob("test_*.py")) <= {*found} | {*TESTS.rglob("node_modules/**/*.py")}
    assert TESTS / "conftest.py" in found
    assert not [path for path in found if "node_modules" in path.parts]
