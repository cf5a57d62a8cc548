"""Tables of the pages can be read: a cell has at most 40 words. More belongs below the table, or into a row of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", "SECURITY.md", "store/README.md", *(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/**/*.md"))]
MOST_WORDS = 40


def long_cells(text: str) -> list[str]:
    rows = [line.strip().strip("|") for line in text.splitlines() if line.startswith("|")]
    return [cell.strip() for row in rows for cell in re.split(r"(?<!\\)\|", row) if len(cell.split()) > MOST_WORDS]


@pytest.mark.parametrize("page", PAGES)
def test_no_cell_of_a_table_has_more_than_forty_words(page: str) -> None:
    assert [] == long_cells((ROOT / page).read_text("utf-8"))


def test_a_longer_cell_is_found() -> None:
    row = "| short | {} | `a\\|b` |"
    assert [] == long_cells(row.format("word " * 40))
    assert [("word " * 41).strip()] == long_cells(row.format("word " * 41))
