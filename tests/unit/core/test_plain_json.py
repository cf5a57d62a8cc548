"""Plain JSON is copied within its limits, wherever its values stand."""

from __future__ import annotations

from typing import Any

import pytest

from oauthbroker.core.plain_json import JsonLimits, NotPlainJson, plain_json


class Word(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("value", "count"),
    [("a", 1), ([], 1), (["a", 1, None], 4), ({"a": "b", "c": {"d": "e"}}, 4), ([("a", "b"), ["c"]], 6)],
)
def test_each_value_counts_once_the_outermost_included(value: Any, count: int) -> None:
    assert plain_json(value, JsonLimits(1000, 10, count)) is not None
    if isinstance(value, str) or not value:
        return
    with pytest.raises(NotPlainJson, match=f"more than {count - 1} values: use fewer"):
        plain_json(value, JsonLimits(1000, 10, count - 1))


def test_a_value_that_refers_to_its_parts_many_times_is_refused_in_few_steps() -> None:
    value: list[Any] = ["a"]
    for _ in range(60):
        value = [value, value]
    with pytest.raises(NotPlainJson, match="more than 1000 values"):
        plain_json(value, JsonLimits(10_000, 64, 1000))


def test_texts_of_a_class_of_their_own_are_copied_as_texts() -> None:
    copy = plain_json({Word("a"): Word("b")}, JsonLimits(1000, 10, 10))
    assert {"a": "b"} == copy
    assert [str, str] == [type(copy["a"]), type(next(iter(copy)))]
