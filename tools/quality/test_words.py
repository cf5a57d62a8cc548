"""The pages stay as short as they are: their words are counted, and have a limit."""

from __future__ import annotations

import pytest

from tools.quality.words import MOST, MOST_OF_PAGE, Count, count, counts

COUNTS = counts()


def test_the_pages_have_no_more_words_by_hand_than_the_limit() -> None:
    assert sum(each.by_hand for each in COUNTS) <= MOST, (
        "merge sentences of one meaning; `python -m tools.quality.words` counts"
    )


@pytest.mark.parametrize("page", COUNTS, ids=lambda page: page.page)
def test_no_page_has_more_words_than_a_reader_bears_all_rows_counted(page: Count) -> None:
    assert page.words <= MOST_OF_PAGE, "split it by the question that brings a reader"


def test_blocks_of_code_and_punctuation_are_no_words_and_written_blocks_are_none_by_hand() -> None:
    text = "Two words.\n\n```sh\nnot this\n```\n\n<!-- rows: written by `make rows` -->\nnot by hand\n<!-- end of rows -->\n- - one\n"
    assert ("docs/a.md", 6, 3, 0) == count("docs/a.md", text)


def test_a_page_that_a_command_writes_is_counted_and_not_by_hand() -> None:
    assert ("docs/a.md", 8, 0, 0) == count("docs/a.md", "# Title\n\nWritten by `make figures` from a run.\n")


def test_cells_of_tables_are_counted_and_those_of_a_reference_are_not_by_hand() -> None:
    text = "Prose.\n\n| a | b |\n|---|---|\n| `x\\|y` | three words here |\n"
    assert ("docs/a.md", 7, 7, 3) == count("docs/a.md", text)
    assert ("docs/audit.md", 7, 1, 3) == count("docs/audit.md", text)
