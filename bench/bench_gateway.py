"""Judging proposed actions, against `json.loads` of the same bytes in the same run. Both take CPU time of one core."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

from bench.figures import parser
from oauthbroker.gateway import rulebook, validate

AT_ONCE = 1000
SCHEMA = {
    "actions": {
        "ADD_TO_CART": {
            "jsonSchema": {
                "required": ["product_id", "quantity"],
                "properties": {
                    "product_id": {"type": "string", "pattern": "^prod_"},
                    "quantity": {"type": "integer", "minimum": 1, "maximum": 100},
                },
            }
        }
    }
}


def actions(wrong: bool) -> list[dict[str, Any]]:  # noqa: FBT001  (a row)
    """Return valid actions, or ones of which each has a quantity out of range."""
    most = 150 if wrong else 9
    return [{"action_type": "ADD_TO_CART", "product_id": f"prod_{each}", "quantity": most} for each in range(AT_ONCE)]


def spent(work: Callable[[], object], other: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Return the median microseconds of CPU for one action, of both works. They take turns."""
    found: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for each, samples in zip((work, other), found, strict=True):
            began = time.process_time()
            each()
            samples.append((time.process_time() - began) / AT_ONCE * 1e6)
    return statistics.median(found[0]), statistics.median(found[1])


def main(*, quick: bool) -> None:
    repeats = 3 if quick else 300
    good, wrong, book = actions(False), actions(True), rulebook(SCHEMA)
    works: dict[str, tuple[list[dict[str, Any]], Callable[[], object]]] = {
        "valid": (good, lambda: validate(good)),
        "valid, among 1,000 products": (good, lambda: validate(good, None, None, [it["product_id"] for it in good])),
        "rejected": (wrong, lambda: validate(wrong)),
        "valid by JSON Schema": (good, lambda: validate(good, book)),
    }
    for name, (batch, work) in works.items():
        text = json.dumps(batch).encode()
        work()
        ours, parsed = spent(work, lambda text=text: json.loads(text), repeats)  # type: ignore[misc]
        facts = {"n": repeats * AT_ONCE, "unit": "us of CPU", "times json.loads": round(ours / parsed, 1)}
        print(json.dumps({"name": name, "value": round(ours, 2), **facts, "a minute": round(60e6 / ours)}))


if __name__ == "__main__":
    main(quick=parser().parse_args().quick)
