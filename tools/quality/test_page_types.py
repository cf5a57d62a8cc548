"""The Python of the pages becomes modules whose lines are those of the page."""

from __future__ import annotations

from pathlib import Path

from tools.quality import page_types

PAGE = """# A page

```python
import os
```

Text.

```python
# agent/tool.py: with a name
import re
```

```python
os.getcwd()
```
"""


def test_a_block_keeps_its_lines_and_a_named_one_is_a_module_of_its_own(tmp_path: Path, monkeypatch):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a-page.md").write_text(PAGE, "utf-8")
    monkeypatch.setattr(page_types, "ROOT", tmp_path)
    modules = page_types.modules_of(tmp_path / "docs" / "a-page.md")
    assert {"docs_a_page.py", "agent/tool.py"} == set(modules)
    lines = PAGE.splitlines()
    for text in modules.values():
        assert [(number, line) for number, line in enumerate(text.splitlines()) if line] == [
            (number, line) for number, line in enumerate(lines) if line and line in text.splitlines()
        ]


def test_every_page_with_python_is_checked():
    read = {page.name for page in page_types.pages() if page_types.modules_of(page)}
    assert {"README.md", "one-script.md", "embedding.md", "clients.md", "web-applications.md"} <= read


def test_what_does_not_type_check_is_found(tmp_path: Path):
    """In a folder of its own, as `make check` finds it in the folder of the pages."""
    (tmp_path / "docs_x").mkdir()
    (tmp_path / "docs_x" / "docs_x.py").write_text(
        'from oauthbroker import Turn\n\nTurn("planner", "1", auth=2)\n', "utf-8"
    )
    found = [line for line in page_types.findings(tmp_path, [tmp_path / "docs_x"]) if "docs_x.py:3" in line]
    assert any("[arg-type]" in line for line in found), found
    assert any(" - error: " in line for line in found) or not page_types.PYRIGHT.exists(), found


def test_the_examples_are_read_too(tmp_path: Path, monkeypatch):
    """pyright had left them out, because it ignores an absolute path in `include`."""
    folders = {
        each.parent.relative_to(page_types.ROOT / "examples") for each in page_types.ROOT.glob("examples/*/*.py")
    }
    assert folders <= {Path(each) for each in page_types.EXAMPLES}
    monkeypatch.setattr(page_types, "ROOT", tmp_path)
    monkeypatch.setattr(page_types, "BUILT", tmp_path / "build" / "pages")
    page_types.BUILT.mkdir(parents=True)
    for name in page_types.EXAMPLES:
        (tmp_path / "examples" / name).mkdir(parents=True, exist_ok=True)
        (tmp_path / "examples" / name / "wrong.py").write_text('wrong: int = "a word"\n', "utf-8")
    if page_types.PYRIGHT.exists():
        found = [line for line in page_types._of_pyright(page_types.BUILT, []) if "wrong.py:1" in line]
        assert len(page_types.EXAMPLES) == len(found), found


def test_pyright_is_strict(tmp_path: Path):
    (tmp_path / "docs_x").mkdir()
    (tmp_path / "docs_x" / "docs_x.py").write_text("import os\n", "utf-8")  # what an editor marks in its strict mode
    if page_types.PYRIGHT.exists():
        (found,) = page_types._of_pyright(tmp_path, [tmp_path / "docs_x"])
        assert "reportUnusedImport" in found
