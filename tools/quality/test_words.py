"""The pages stay as short as they are: their words by hand are counted, and have a limit."""

from __future__ import annotations

from tools.quality.words import MOST, count, counts


def test_the_pages_have_no_more_words_than_the_limit() -> None:
    assert sum(each.words for each in counts()) <= MOST, (
        "merge what is told twice; `python -m tools.quality.words` counts"
    )


def test_blocks_of_code_written_blocks_and_punctuation_are_no_words_by_hand() -> None:
    text = "Two words.\n\n```sh\nnot this\n```\n\n<!-- rows: written by `make rows` -->\nnor this\n<!-- end of rows -->\n- - one\n"
    assert ("docs/a.md", 3, 0) == count("docs/a.md", text)


def test_cells_of_tables_are_counted_but_those_of_a_reference() -> None:
    text = "Prose.\n\n| a | b |\n|---|---|\n| `x\\|y` | three words here |\n"
    assert ("docs/a.md", 7, 3) == count("docs/a.md", text)
    assert ("docs/cli.md", 1, 3) == count("docs/cli.md", text)
