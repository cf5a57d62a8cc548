"""Tell an exception of the code of a bundle in one bounded line with its place, also one that hides its members."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.tools.types.foreign_values import described


class Hidden(ValueError):
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError


class Odd(SyntaxError):
    def __init__(self) -> None:
        super().__init__("odd")
        self.filename, self.lineno = 5, "x"  # type: ignore[assignment]


def raised(make: Callable[[], BaseException]) -> str:
    with pytest.raises(BaseException) as failed:
        raise make()
    return described(failed.value)


@pytest.mark.parametrize(
    ("make", "begins"),
    [
        (lambda: ValueError("wrong"), "ValueError: wrong (test_error_texts.py:"),
        (lambda: ValueError("two\nlines\x1b[31m\u202e"), "ValueError: two lines [31m (test_error_texts.py:"),
        (ValueError, "ValueError (test_error_texts.py:"),
        (Odd, "Odd: odd"),
        (lambda: Hidden("x"), "Hidden"),
    ],
)
def test_an_exception_is_reported_in_one_line_with_its_place(make: Callable[[], BaseException], begins: str):
    reported = raised(make)
    assert reported.startswith(begins), reported
    assert reported.isprintable()


def test_a_long_text_is_cut():
    assert len(raised(lambda: ValueError("word " * 1_000_000))) < 400


def test_the_place_of_a_syntax_error_is_that_of_its_file(tmp_path: Path):
    with pytest.raises(SyntaxError) as failed:
        compile("x = 1\ndef (:\n", str(tmp_path / "notes.py"), "exec")
    assert described(failed.value).endswith("(notes.py:2)")
