"""The site of the documentation has every page, and its pages link to nothing that is missing."""

from __future__ import annotations

import re
from pathlib import Path

from tools.site.stage import ROOT, stage

IN_SITE = re.compile(r"[\w/.-]+\.md")


def test_every_page_is_in_the_navigation_once() -> None:
    navigation = (ROOT / "tools" / "site" / "site.yml").read_text("utf-8").partition("\nnav:")[2]
    listed = IN_SITE.findall(navigation)
    pages = {str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md")}
    pages |= {f"{name}.md" for name in ("README", "SECURITY", "CONTRIBUTING", "CHANGELOG")}
    assert pages <= set(listed)
    assert len(set(listed)) == len(listed)


def test_each_linked_file_is_staged_where_the_link_leads(tmp_path: Path) -> None:
    stage(tmp_path)
    assert (tmp_path / "docs" / "quickstart.md").read_text("utf-8").startswith("# ")
    assert (tmp_path / "examples" / "frameworks" / "langgraph_agent.py").is_file()
    assert "](https" not in (tmp_path / "config" / "files.md").read_text("utf-8")
