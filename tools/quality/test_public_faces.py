"""The two public faces: which names each has, and that no page, example or plug-in looks behind."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import oauthbroker
import oauthbroker.plugins
from tests.kit.docs import ROOT
from tools.quality.architecture import names_used

PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *(ROOT / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md", "store/README.md")),
    *sorted((ROOT / "oauthbroker").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))
OURS = ("tools", "mcp", "gateway", "flowtools", "integrations")
FACES = ("oauthbroker", *(f"oauthbroker.{name}" for name in ("plugins", "client", "capability", "testing", *OURS)))
# Modules that a page names for one purpose of a test: they are public as wholes.
WHOLE = ("oauthbroker.testing.pytest_plugin", "oauthbroker.testing.flow_adapter_contract")


def test_the_face_for_programs_is_small_and_a_star_imports_it() -> None:
    space: dict[str, Any] = {}
    exec("from oauthbroker import *", space)  # noqa: S102 - the import is under test
    assert {*oauthbroker.__all__} == {*space} - {"__builtins__"}
    assert len(space) - 1 <= 28


@pytest.mark.parametrize("face", [oauthbroker, oauthbroker.plugins], ids=lambda it: it.__name__)
def test_each_name_of_a_face_exists_and_stands_once_in_order(face: Any) -> None:
    assert len(face.__all__) == len({*face.__all__})
    assert all(getattr(face, name) is not None for name in face.__all__)
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        face.nothing_of_the_kind  # noqa: B018 - the access is under test


@pytest.mark.parametrize("file", sorted((ROOT / "oauthbroker").rglob("__init__.py")), ids=lambda it: it.parent.name)
def test_no_package_lets_a_type_checker_accept_every_name(file: Path) -> None:
    """A module's `__getattr__` does, unless it is below `if not TYPE_CHECKING:`."""
    seen = [it for it in ast.parse(file.read_text("utf-8")).body if not isinstance(it, ast.If)]
    assert not [it for it in seen if "__getattr__" in {getattr(it, "name", None), *_assigned(it)}]


def _assigned(statement: ast.stmt) -> set[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return {it.id for it in targets if isinstance(it, ast.Name)}


def test_no_name_is_on_both_faces() -> None:
    assert set() == {*oauthbroker.__all__} & {*oauthbroker.plugins.__all__}


def test_importing_the_face_for_plugins_imports_no_other_part_of_the_broker() -> None:
    program = (
        "import sys, oauthbroker.plugins; print(*(each for each in sys.modules if each.startswith('oauthbroker')))"
    )
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {"oauthbroker", "oauthbroker.plugins", "oauthbroker.core"} == {
        ".".join(each.split(".")[:2]) for each in ran.stdout.split()
    }


def behind_the_faces(used: Iterator[str] | list[str]) -> list[str]:
    """Return the names below `oauthbroker` that no face has."""
    return [
        name
        for name in used
        if name.partition(".")[0] == "oauthbroker"
        and name not in {*FACES, *WHOLE}
        and not name.startswith(tuple(f"{each}." for each in WHOLE))
        and not _is_on_a_face(name)
    ]


def _is_on_a_face(name: str) -> bool:
    face, _, last = name.rpartition(".")
    if face not in FACES:
        return False
    if face == "oauthbroker.capability":  # a module of protocols: all its public names
        return not last.startswith("_") and hasattr(import_module(face), last)
    if face in {f"oauthbroker.{each}" for each in OURS}:  # some need a framework that is not installed
        return last in import_module(face).__all__
    return last in import_module(face).__all__


@pytest.mark.parametrize("page", PAGES, ids=lambda it: str(it.relative_to(ROOT)))
def test_no_page_imports_behind_a_face(page: Path, tmp_path: Path) -> None:
    found = []
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)):
        code = tmp_path / f"block_{number}.py"
        lines = re.findall(r"^[ \t]*(?:from|import) oauthbroker[^\n(]*(?:\([^)]*\))?$", block, re.MULTILINE)
        code.write_text("\n".join(line.strip() for line in lines), "utf-8")
        found += behind_the_faces(list(names_used(code, code.stem)))
    assert [] == found


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda it: str(it.relative_to(ROOT)))
def test_no_example_imports_behind_a_face(example: Path) -> None:
    assert [] == behind_the_faces(names_used(example, example.stem))


@pytest.mark.parametrize(
    "name",
    [
        "oauthbroker.model.turn_token.narrow",
        "oauthbroker.plugins.declaration",
        "oauthbroker.plugins.discovery.installed",
        "oauthbroker.SystemClock",
        "oauthbroker.tools.calling.calls.Calls",
        "oauthbroker.config",
    ],
)
def test_an_import_behind_a_face_is_found(name: str) -> None:
    assert [name] == behind_the_faces([name, "oauthbroker.narrow", "oauthbroker.plugins.Plugin", "json.loads"])
