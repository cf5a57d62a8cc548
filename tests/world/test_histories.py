"""Histories of calls on one grant that have an order, and those that have none."""

from __future__ import annotations

from math import inf

import pytest

from tests.world import histories
from tests.world.histories import Operation, is_possible


def read(family: int | None, begin: float, end: float) -> Operation:
    return Operation(True, family, begin, end)


def write(family: int | None, begin: float, end: float = inf) -> Operation:
    return Operation(False, family, begin, end)


POSSIBLE = {
    "nothing": [],
    "no grant at first": [read(None, 0, 1)],
    "a read of a written grant": [write(1, 0, 1), read(1, 2, 3)],
    "a read beside a consent sees it": [write(1, 0, 5), read(1, 1, 2)],
    "a read beside a consent sees the time before": [write(1, 0, 5), read(None, 1, 2)],
    "a revocation without an answer has happened": [write(1, 0, 1), write(None, 2), read(None, 8, 9)],
    "a revocation without an answer has not happened": [write(1, 0, 1), write(None, 2), read(1, 8, 9)],
    "an open consent is seen once": [write(1, 0), read(1, 1, 2), read(1, 3, 4), write(None, 5, 6), read(None, 7, 8)],
    "an open write that no read sees": [write(1, 0, 1), write(None, 2), write(2, 2), read(1, 3, 4)],
    "two consents at once, in either order": [write(1, 0, 5), write(2, 0, 5), read(2, 1, 2), read(1, 6, 7)],
}
IMPOSSIBLE = {
    "a read of a grant that was not written": [read(1, 0, 1)],
    "a stale read after a revocation": [write(1, 0, 1), write(None, 2, 3), read(1, 4, 5)],
    "a stale read after another consent": [write(1, 0, 1), write(2, 2, 3), read(1, 4, 5)],
    "a consent that a later call does not see": [write(1, 0, 1), read(None, 2, 3)],
    "a grant that comes back": [write(1, 0, 1), write(None, 2, 9), read(None, 3, 4), read(1, 5, 6)],
    "an open consent that is seen again": [
        write(1, 0), read(1, 1, 2), write(None, 3, 4), read(None, 5, 6), read(1, 7, 8),
    ],
    "an open revocation that has not begun": [write(1, 0, 1), read(None, 2, 3), write(None, 4)],
    "two readers that disagree on the order": [
        write(1, 0, 9), write(2, 0, 9), read(1, 1, 2), read(2, 3, 4), read(1, 5, 6),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", POSSIBLE)
def test_a_history_that_some_order_explains_is_possible(name: str):
    assert is_possible(POSSIBLE[name])


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_a_history_that_no_order_explains_is_not_possible(name: str):
    assert not is_possible(IMPOSSIBLE[name])


def test_thousands_of_calls_are_searched_in_a_few_steps(monkeypatch: pytest.MonkeyPatch):
    calls = list[Operation]()
    for number in range(50):
        at = number * 100.0
        calls += [write(number, at), *(read(number, at + each, at + each + 1.5) for each in range(1, 90))]
        calls.append(write(None, at + 95, at + 96) if number % 2 else write(None, at + 95))
    monkeypatch.setattr(histories, "MOST_STEPS", len(calls))
    assert is_possible(calls)
    assert not is_possible([*calls, read(48, 5000, 5001)])


def test_a_long_history_ends_by_the_memo():
    together = [write(number, 0, 100) for number in range(9)]
    assert not is_possible([*together, read(99, 0, 100)])
