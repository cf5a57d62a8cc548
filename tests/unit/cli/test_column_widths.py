"""Tables of a terminal: at any width, every word of every cell can be copied whole."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from oauthbroker.cli.output.column_widths import Layout

HEAD = ("grant", "app", "subject", "state", "scopes")
LONG = "microsoft:user:11111111-2222-3333-4444-555555555555:66666666-7777-8888-9999-000000000000"
ROWS = [
    ("0123456789ab", "mail", LONG, "live", "Mail.Read Mail.Send"),
    ("ba9876543210", "calendar", "google:user:1", "revoked", "https://www.googleapis.com/auth/calendar.readonly"),
]
words = st.text(alphabet=st.sampled_from("ab:-/._\uac00"), min_size=1, max_size=30)
cells = st.lists(words, min_size=1, max_size=4).map(" ".join)


def drawn(rows: Sequence[tuple[str, ...]], width: int, head: tuple[str, ...] = HEAD) -> list[str]:
    return [line.plain for line in Layout.of(head, rows, width).lines()]


@pytest.mark.parametrize("width", [20, 40, 80, 120, 300])
def test_no_id_is_broken_at_any_width(width: int):
    lines = drawn(ROWS, width)
    for row in ROWS:
        for word in " ".join(row).split(" "):
            assert any(word in line for line in lines), (word, lines)


def test_what_fits_is_one_line_a_row():
    assert 2 + len(ROWS) == len(drawn(ROWS, 300))


def test_the_widest_column_has_a_line_of_its_own_and_the_others_keep_theirs():
    lines = drawn(ROWS, 80)
    assert ["grant", "app", "state"] == [word for word in lines[0].split() if word in HEAD][:3]
    assert f"  subject  {LONG}" in lines
    assert "ba9876543210  calendar  revoked" in lines[next(i for i, line in enumerate(lines) if "ba98" in line)]


def test_an_empty_cell_of_a_column_that_moved_has_no_line():
    lines = drawn([("a", "", "x" * 30), ("b", "y" * 30, "")], 20, ("id", "who", "what"))[2:]
    assert ["a", "  what  " + "x" * 30, "b", "  who   " + "y" * 30] == lines


def test_a_column_of_many_words_is_folded_between_them():
    rows = [("a", "one two three four five six seven")]
    assert ["a   one two three", "    four five six", "    seven"] == drawn(rows, 20, ("id", "text"))[2:]


@given(st.lists(st.tuples(cells, cells, cells), min_size=1, max_size=5), st.integers(5, 200))
def test_every_word_is_whole_and_only_a_long_word_leaves_the_width(rows: list[tuple[str, ...]], width: int):
    head = ("id", "what", "more")
    lines = drawn(rows, width, head)
    found = " ".join(lines).split()
    for row in rows:
        for word in " ".join(row).split(" "):
            assert word in found
    longest = max(cell_len(word) for word in found)
    assert all(cell_len(line) <= max(width, longest + len("  what  ")) for line in lines)
