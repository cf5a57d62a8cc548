"""What a caller accepts (RFC 9110 section 12.5): the items of an Accept header with their weights."""

from __future__ import annotations

from collections.abc import Iterator


def weighted(header: str | None) -> Iterator[tuple[str, float]]:
    """Yield each item in lower case with its weight (section 12.4.2): 1 when there is none, 0 (never) for a weight that
    cannot be read."""
    for item in (header or "")[:1000].split(","):
        name, *parameters = item.split(";")
        yield name.strip().lower(), _weight(parameters)


def prefers(header: str | None, wanted: str, other: str, *, on_a_tie: bool) -> bool:
    """Tell whether a caller names `wanted`, a media type, and likes it better than `other`. A wildcard stands for
    `other` alone: no caller gets a type that it did not name."""
    weights = dict(weighted(header))
    mine = weights.get(wanted, 0.0)
    ranges = (other, f"{other.partition('/')[0]}/*", "*/*")  # the most specific one counts
    theirs = next((weights[each] for each in ranges if each in weights), 0.0)
    return mine > theirs or (on_a_tie and mine == theirs > 0)


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.strip().partition("=")
        if name.strip().lower() == "q":
            digits = value.strip()
            is_number = digits.isascii() and digits.replace(".", "", 1).isdigit()
            return min(float(digits), 1.0) if is_number else 0.0
    return 1.0
