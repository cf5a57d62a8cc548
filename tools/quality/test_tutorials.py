"""Each tutorial says first what one has at its end, is short, and is played by a test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
TESTS = "".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("*.py"))
MOST_WORDS = 900


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_begins_with_its_end_is_short_and_is_run(page: Path):
    text = page.read_text("utf-8")
    assert re.match(r"# .+\n\nAt the end ", text)
    assert MOST_WORDS >= len(re.sub(r"```.*?```", "", text, flags=re.DOTALL).split())
    assert f"tutorials/{page.name}" in TESTS or f'"{page.stem}"' in TESTS
