"""The page of what an operator does with many grants: a table for each store, a column for each size of the store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby

from bench.figures import Figure

_ADDED = (": the loop's longest turn", ": memory", ": memory of the process")  # to the name of the row they belong to


def tables(figures: Iterable[Figure]) -> Iterator[tuple[str, list[tuple[str, ...]]]]:
    """Yield each store with its rows, the head first. A cell has the CPU, the longest turn and the memory."""
    for store, found in groupby(sorted(figures, key=_store), _store):
        rows = defaultdict[str, dict[int, list[str]]](lambda: defaultdict(list))
        sizes = set[int]()
        for each in found:
            name = each["name"].partition(": ")[2].rpartition(", ")[0]
            row = next((name.removesuffix(end) for end in reversed(_ADDED) if name.endswith(end)), name)
            sizes.add(each["grants"])
            rows[row][each["grants"]].append(f"{_short(each['value'])} {each['unit'].removesuffix(' CPU')}")
        head = ("", *(f"{size:,} grants" for size in sorted(sizes)))
        yield store, [head, *((row, *(", ".join(of[size]) for size in sorted(sizes))) for row, of in rows.items())]


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _store(figure: Figure) -> str:
    return str(figure["name"].partition(": ")[0]).replace("files", "Files")
