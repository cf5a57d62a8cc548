"""The tables that `make tables` writes are those of the product, and lead to what to do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from oauthbroker.cli.output.error_output import see
from oauthbroker.core.errors import LOCALES, Code
from tools.quality.written_tables import BLOCKS, DOCS, ENGLISH, Block, causes


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block.page.name} {block.name}")
def test_a_block_is_as_the_product_or_the_navigation_has_it(block: Block) -> None:
    page = block.page.read_text("utf-8")
    assert block.written(page) == page, f"docs/{block.page.name} is old: run `make tables`"


def test_a_code_without_a_row_is_told_with_its_page() -> None:
    with pytest.raises(ValueError, match=r"docs/troubleshooting\.md has no row for `shelfFull`: add one"):
        causes()["shelfFull"]


def test_every_language_has_its_table() -> None:
    assert {"en", "ko"} == {*LOCALES}


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="once each"):
        BLOCKS[0].written("# Errors\n")


@pytest.mark.parametrize("code", Code)
def test_where_a_refusal_points_to_is_its_row_and_leads_to_what_to_do(code: Code) -> None:
    file, _, anchor = see(code).removeprefix("See ").partition("#")
    page = Path(file).read_text("utf-8")
    assert Path(file) == ENGLISH
    row, *others = re.findall(rf'(?m)^\| <a id="{anchor}"></a>`{code.value}` \| (.+) \|$', page) or [""]
    assert (bool(row), others) == (True, []), "docs/errors.md is old: run `make tables`"
    section = re.search(r"\[causes\]\(troubleshooting\.md#([\w-]+)\)$", row)
    assert section
    said = (DOCS / "troubleshooting.md").read_text("utf-8").replace("\n## ", "\n\0## ").split("\0")
    [told] = [each for each in said if each.startswith(f"## {section[1].replace('-', ' ').capitalize()}\n")]
    assert f"`{code.value}`" in told
