"""The site of the documentation has every page, and its pages link to nothing that is missing."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tools.site.glossary import linked, terms
from tools.site.reference.__main__ import write
from tools.site.stage import ROOT, stage

SITE = ROOT / "tools" / "site" / "site.yml"
IN_SITE = re.compile(r"[\w/.-]+\.md")


def test_every_page_is_in_the_navigation_once() -> None:
    navigation = SITE.read_text("utf-8").partition("\nnav:")[2]
    listed = IN_SITE.findall(navigation)
    pages = {str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md")}
    pages |= {f"{name}.md" for name in ("README", "SECURITY", "CONTRIBUTING", "CHANGELOG")}
    missing = pages - set(listed)
    assert not missing, f"list {missing} in the navigation of tools/site/site.yml, and run `make tables`"
    assert len(set(listed)) == len(listed)


def test_each_linked_file_is_staged_where_the_link_leads(tmp_path: Path) -> None:
    site = tmp_path / "pages"
    write(tmp_path / "reference")
    stage(site, tmp_path / "reference")
    assert (site / "docs" / "quickstart.md").read_text("utf-8").startswith("# ")
    assert (site / "examples" / "frameworks" / "langgraph_agent.py").is_file()
    assert "](https" not in (site / "config" / "files.md").read_text("utf-8")
    assert "[`slack`](../reference/providers/slack.md)" in (site / "docs" / "providers.md").read_text("utf-8")
    assert "](../reference/python/oauthbroker.testing.md)" in (site / "docs" / "testing.md").read_text("utf-8")
    assert json.loads((site / "reference" / "openapi.json").read_text("utf-8"))["paths"]
    made = set(re.findall(r"reference/[\w/.-]+\.md", SITE.read_text("utf-8")))
    assert [] == [each for each in made if not (site / each).is_file()], "the navigation names a page that is not made"


def test_the_first_use_of_a_term_leads_to_the_glossary_and_no_code_heading_or_link_changes() -> None:
    text = "# A turn\n\nIt turns. Each turn has `a turn`, [a grant](x.md) and API keys; a turn ends.\n\n```sh\na grant\n```\n"
    turn, key = terms()["turn"].meaning, terms()["API key"].meaning
    assert linked("docs/how-to/a.md", text) == text.replace(
        "Each turn", f'Each [turn](../glossary.md#term-turn "{turn}")'
    ).replace("API keys", f'[API keys](../glossary.md#term-api-key "{key}")')
    assert linked("README.md", "of a grant").startswith("of a [grant](docs/glossary.md#term-grant ")
    glossary = linked("docs/glossary.md", (ROOT / "docs" / "glossary.md").read_text("utf-8"))
    assert {each.anchor for each in terms().values()} == set(re.findall(r'<a id="(term-[\w-]+)"></a>', glossary))
    assert all('"' not in each.meaning and "](" not in each.meaning for each in terms().values())
