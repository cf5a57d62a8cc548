"""A run begins with its longest files: tests/kit/longest.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.kit import longest


def test_each_of_these_files_exists():
    assert [] == [path for path in longest.LONGEST if not (longest.ROOT / path).is_file()]


def test_they_come_first_in_the_order_of_the_list_and_others_keep_theirs():
    files = ["tests/b.py", longest.LONGEST[1], "tests/a.py", longest.LONGEST[0], longest.LONGEST[1]]
    items: list[Any] = [SimpleNamespace(path=longest.ROOT / file, place=place) for place, file in enumerate(files)]
    longest.sort(items)
    assert [3, 1, 4, 0, 2] == [each.place for each in items]
