"""Run the short form of long tests in `make test`, and their long form in `make proof` (`pytest --long`).

A long test is a table of many rows (`@pytest.mark.sample(12)`: the short form runs about 12 of them) or a law
(`settings(max_examples=examples(300))`). A sample is seeded by the test's name, so that every machine and every worker
runs the same rows.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Sequence

_LEAST_EXAMPLES = 10
_LONG = [False]


def use_long(long: bool) -> None:
    """Choose the form. conftest.py calls this before any test module is imported."""
    _LONG[0] = long


def is_long() -> bool:
    return _LONG[0]


def examples(most: int) -> int:
    """Return how many examples of a law to try: a tenth of them in the short form."""
    return most if is_long() else min(most, max(_LEAST_EXAMPLES, most // 10))


def swept(most: int) -> range:
    """Return the places at which a sweep breaks its story: each fifth of them in the short form."""
    return range(0, most, 1 if is_long() else 5)


def spread(length: int, count: int, seed: str) -> list[int]:
    """Return one place of each of `count` equal parts: neighbours in a table are often alike."""
    if count >= length:
        return list(range(length))
    chance = random.Random(seed)
    return [chance.randrange(part * length // count, (part + 1) * length // count) for part in range(count)]


def chosen(rows: Sequence[Sequence[Hashable]], count: int, seed: str) -> set[int]:
    """Return the places of at least `count` rows, in which each value of each column occurs where a value repeats.

    A column without repeated values (a plain table) is sampled. Columns that are crossed keep all their values, in as few
    rows as are easily found.
    """
    order, taken = _shuffled(len(rows), seed), set[int]()
    columns = range(len(rows[0]) if rows else 0)
    crossed = [column for column in columns if len({row[column] for row in rows}) < len(rows)]
    values = [{(column, row[column]) for column in crossed} for row in rows]
    missing = set[tuple[int, Hashable]]().union(*values)
    while missing:
        most = max(order, key=lambda place: len(values[place] & missing))
        taken.add(most)
        missing -= values[most]
    for place in (*spread(len(rows), count, seed), *order):
        if len(taken) < count:
            taken.add(place)
    return taken


def _shuffled(length: int, seed: str) -> list[int]:
    places = list(range(length))
    random.Random(seed).shuffle(places)
    return places
