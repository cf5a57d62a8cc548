"""A run begins with its longest files: tests/kit/longest.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.kit import longest


def test_each_of_these_files_exists():
    assert [] == [path for path in longest.LONGEST if not (longest.ROOT / path).is_file()]


def paths(*files: str) -> list[Any]:
    return [SimpleNamespace(path=longest.ROOT / file, place=place) for place, file in enumerate(files)]


def test_they_come_first_in_the_order_of_the_list_and_others_keep_theirs():
    items = paths("tests/b.py", longest.LONGEST[1], "tests/a.py", longest.LONGEST[0], longest.LONGEST[1])
    longest.sort(items)
    assert [3, 1, 4, 0, 2] == [each.place for each in items]


@pytest.mark.parametrize(
    ("workers", "firsts"),
    [(1, [[0, 1, 2]]), (2, [[0, 1, 2], []]), (3, [[0, 2], [], [1]]), (4, [[0, 2], [], [1], []]), (6, [[0], [], [1], [], [2], []])],
)  # fmt: skip
def test_every_second_worker_begins_with_some_of_them(workers: int, firsts: list[list[int]]) -> None:
    others = [f"tests/{number}.py" for number in range(33)]
    items = paths(*longest.LONGEST[:3], *others)
    longest.sort(items, workers)
    each = len(items) // workers
    parts = [[item.place for item in items[number * each : (number + 1) * each]] for number in range(workers)]
    assert firsts == [[place for place in part[:3] if place < 3] for part in parts]
    assert [*range(3, 36)] == [item.place for item in items if item.place > 2]


def test_long_files_that_are_more_than_a_part_lose_no_test() -> None:
    items = paths("tests/a.py", *[longest.LONGEST[0]] * 9, "tests/b.py")
    longest.sort(items, 4)
    assert [*range(1, 10), 0, 10] == [each.place for each in items]
