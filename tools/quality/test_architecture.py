"""docs/README.md draws the folders as the code has them, and lists every page."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

from tools.quality.architecture import BEGIN, END, FOLDERS, PACKAGE, PAGE, drawn, folder_imports, page

SMALL = {"__init__.py": "", "core.py": "", "model.py": "from oauthbroker.core import x"}


def test_the_drawing_of_the_folders_is_up_to_date():
    """`make architecture` writes it."""
    text = PAGE.read_text("utf-8")
    assert page(text, folder_imports(PACKAGE)) == text


@pytest.mark.parametrize("text", ["no marks", BEGIN + END + BEGIN + END])
def test_a_page_without_its_marks_or_with_two_drawings_is_refused(text: str):
    with pytest.raises(ValueError, match="once each"):
        page(text, {})


def test_every_folder_exists():
    assert set(FOLDERS) == folder_imports(PACKAGE).keys()


@pytest.mark.parametrize("added", ["import oauthbroker.model", "def f():\n    from oauthbroker import model"])
def test_a_new_import_between_folders_makes_the_drawing_stale(tmp_path, added):
    for name, text in SMALL.items():
        (tmp_path / name).write_text(text)
    before = page("", folder_imports(tmp_path))
    (tmp_path / "web.py").write_text(added)
    assert page(before, folder_imports(tmp_path)) != before


def test_an_arrow_that_a_longer_way_implies_is_not_drawn():
    imports = {"web": {"broker", "model", "core"}, "broker": {"model"}, "model": {"core"}, "core": set()}
    assert {"web": {"broker"}, "broker": {"model"}, "model": {"core"}, "core": set()} == drawn(imports)


def test_the_index_lists_every_page():
    linked = set(re.findall(r"\]\(([\w/-]+\.md)", PAGE.read_text("utf-8")))
    pages = {each.relative_to(PAGE.parent).as_posix() for each in PAGE.parent.rglob("*.md")} - {PAGE.name}
    assert pages == linked, f"run `make tables`, with {pages ^ linked} in the navigation of tools/site/site.yml"


def classes_of_one_name(package: Path) -> dict[str, list[str]]:
    """Names of classes that two files define, with the files. `testing` plays other programs and may repeat names."""
    found = defaultdict[str, list[str]](list)
    for path in sorted(package.rglob("*.py")):
        place = path.relative_to(package)
        if "testing" not in place.parts:
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.ClassDef):
                    found[node.name].append(place.as_posix())
    return {name: places for name, places in found.items() if len(places) > 1}


def test_no_two_classes_have_one_name():
    assert {} == classes_of_one_name(PACKAGE)


def test_two_classes_of_one_name_are_found(tmp_path):
    (tmp_path / "one.py").write_text("class Held: ...")
    (tmp_path / "two.py").write_text("def f():\n    class Held: ...")
    assert {"Held": ["one.py", "two.py"]} == classes_of_one_name(tmp_path)
