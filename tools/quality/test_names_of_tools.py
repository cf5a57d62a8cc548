"""The names of `oauthbroker.tools`: pages and examples use no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from oauthbroker import tools
from tests.kit.docs import ROOT, code_blocks
from tools.quality.architecture import names_used

PUBLIC = set(tools.__all__) - {"PLUGIN"}
PAGES = [str(page.relative_to(ROOT)) for page in sorted((ROOT / "docs").rglob("*.md"))]


def used(path: Path) -> set[str]:
    """Return what a file imports of the plug-in."""
    return {name for name in names_used(path, path.stem) if name.startswith("oauthbroker.tools.")}


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_a_name_is_imported_when_it_is_used(name: str):
    assert getattr(tools, name) is not None


def test_another_name_is_no_attribute():
    with pytest.raises(AttributeError, match=r"oauthbroker\.tools.*turn_loops"):
        tools.turn_loops  # type: ignore[attr-defined]  # noqa: B018


def test_pages_and_examples_import_public_names_only(tmp_path: Path):
    files = sorted((ROOT / "examples").rglob("*.py"))
    for page in PAGES:
        for number, text in enumerate(code_blocks(page)):
            files.append(tmp_path / f"{Path(page).stem}_{number}.py")
            files[-1].write_text(text, "utf-8")
    found = {file.name: used(file) for file in files}
    assert {"assistant.py", "tools_0.py"} <= {name for name, names in found.items() if names}
    assert {} == {
        name: wrong
        for name, names in found.items()
        if (wrong := names - {f"oauthbroker.tools.{each}" for each in PUBLIC})
    }
