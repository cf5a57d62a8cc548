"""Hold the tests to their layout: a test stands alone, what tests share is a kit, and tests/unit mirrors the package."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"


OF_A_TEST = re.compile(r"(?<!def )\btest_")
"""In every text that may import a test module. Most have it only where they define tests, and are not parsed."""


def is_test(module: str) -> bool:
    """Tell whether this names a test module, or something in one."""
    places = [Path(*module.split(".")[:length]) for length in range(1, module.count(".") + 2)]
    return any(each.name.startswith("test_") and (ROOT / each).with_suffix(".py").exists() for each in places)


def imports_of_tests(source: str) -> list[str]:
    """Return the test modules that this source imports, wherever the import stands."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                found += [each.name for each in names if is_test(each.name)]
            case ast.ImportFrom(module=str(module), names=names):
                found += [name for each in names if is_test(name := f"{module}.{each.name}")]
            case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(name)), *_]):
                found += [name] if is_test(name) else []
    return found


def sources() -> list[Path]:
    folders = [TESTS, ROOT / "tools", ROOT / "bench"]
    return [path for each in folders for path in sorted(each.rglob("*.py")) if "node_modules" not in path.parts]


def test_no_module_imports_a_test_module():
    """Move the shared part into a kit: tests/kit, or the folder's own."""
    texts = {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in sources()}
    named = {path: imports_of_tests(text) for path, text in texts.items() if OF_A_TEST.search(text)}
    assert {} == {path: found for path, found in named.items() if found}


@pytest.mark.parametrize(
    "source",
    [
        "from tools.quality.test_layout import folders",
        "from tools.quality import test_layout",
        "import tools.quality.test_layout as other",
        "def late():\n    from tools.quality.test_layout import *",
        "import importlib\nimportlib.import_module('tools.quality.test_layout')",
    ],
)
def test_every_form_of_such_an_import_is_found(source):
    assert ["tools.quality.test_layout"] == [
        name.removesuffix(".folders").removesuffix(".*") for name in imports_of_tests(source)
    ]


def test_an_import_from_a_kit_is_no_such_import():
    assert [] == imports_of_tests("from tests.kit.cli import test_of_a_kit\nfrom oauthbroker.testing import TestClock")


def folders(folder: Path) -> set[str]:
    """Return the folders below this one that hold Python, as paths."""
    return {path.parent.relative_to(folder).as_posix() for path in folder.rglob("*.py")} - {"."}


def test_each_folder_of_unit_tests_is_a_folder_of_the_package():
    assert set() == folders(TESTS / "unit") - folders(ROOT / "oauthbroker")
