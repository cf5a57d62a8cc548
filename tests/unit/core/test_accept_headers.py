"""What a caller accepts: weights, and which of two media types it prefers."""

from __future__ import annotations

import pytest

from oauthbroker.core.accept_headers import prefers, weighted

STREAM, JSON = "text/event-stream", "application/json"


@pytest.mark.parametrize(
    "header, items",
    [
        (None, [("", 1.0)]),
        ("A/B", [("a/b", 1.0)]),
        ("a/b;q=0", [("a/b", 0.0)]),
        ("a/b; charset=utf-8 ; Q=0.25", [("a/b", 0.25)]),
        ("a/b;q=7", [("a/b", 1.0)]),
        ("a/b;q=", [("a/b", 0.0)]),
        ("a/b;q=-1", [("a/b", 0.0)]),
        ("a/b;q=nan, c/d", [("a/b", 0.0), ("c/d", 1.0)]),
    ],
)
def test_an_item_has_its_weight_and_one_that_cannot_be_read_is_not_wanted(header, items) -> None:
    assert items == list(weighted(header))


@pytest.mark.parametrize(
    "header, stream",
    [
        (None, False),
        ("*/*", False),
        (JSON, False),
        (STREAM, True),
        (STREAM.upper(), True),
        (f"{STREAM};q=0", False),
        (f"{JSON}, {STREAM};q=0", False),
        (f"{JSON}, {STREAM};q=0.1", False),
        (f"{JSON};q=0.1, {STREAM};q=0.2", True),
        (f"{JSON}, {STREAM}", False),
        (f"{STREAM}, */*;q=0.1", True),
        (f"{STREAM};q=0.5, application/*", False),
        (f"{STREAM};q=0.5, application/*, {JSON};q=0.4", True),
        (f"{STREAM};q=0.1, {JSON};q=0", True),
    ],
)
def test_the_higher_weight_wins_and_a_wildcard_stands_for_the_usual_type_alone(header, stream) -> None:
    assert stream == prefers(header, STREAM, JSON, on_a_tie=False)


@pytest.mark.parametrize("header, page", [("text/html, application/json", True), ("text/html;q=0", False), ("", False)])
def test_a_tie_is_decided_by_the_reader_of_the_header(header, page) -> None:
    assert page == prefers(header, "text/html", JSON, on_a_tie=True)
