"""The short form of a table is the same everywhere and keeps every value that is crossed; the long form is all of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection, Iterator
from itertools import product
from pathlib import Path

import pytest

from tests.faults import long_forms
from tests.kit import forms

ROOT = Path(__file__).parents[2]
TABLE = """
import pytest
from tests.kit import forms

@pytest.mark.sample(4)
@pytest.mark.parametrize("row", range(40))
def test_a_table(row): pass

class Attack: pass

@pytest.mark.sample(3)
@pytest.mark.parametrize("page", "abcdef")
@pytest.mark.parametrize("attack", [Attack() for _ in range(9)])
def test_a_cross(page, attack): pass

def test_alone(): assert forms.is_long() is {long}
"""


@pytest.fixture(autouse=True)
def form_of_this_run() -> Iterator[None]:
    long = forms.is_long()
    yield
    forms.use_long(long)


def test_a_sample_has_a_row_of_each_part_and_is_the_same_each_time() -> None:
    places = forms.spread(100, 10, "a test")
    assert list(range(10)) == [place // 10 for place in places]
    assert places == forms.spread(100, 10, "a test") != forms.spread(100, 10, "another test")
    assert [0, 1, 2] == forms.spread(3, 10, "a test")


@pytest.mark.parametrize("seed", range(20))
def test_each_value_of_crossed_columns_stays(seed: int) -> None:
    rows = list(product(range(12), range(3), range(4)))
    kept = [rows[place] for place in forms.chosen(rows, 12, str(seed))]
    assert [12, 3, 4] == [len(set(column)) for column in zip(*kept, strict=True)]
    assert 12 == len(kept)


def test_the_long_form_leaves_nothing_out() -> None:
    for long, found in ((False, [30, 10, 10, 5]), (True, [300, 100, 30, 5])):
        forms.use_long(long)
        assert found == [forms.examples(count) for count in (300, 100, 30, 5)]


def test_the_long_form_of_the_proof_prints_all_but_progress() -> None:
    said = "form: long\n...sF.. [  4%]\n.\n\n1.20s call tests/a.py::test_b\n1 failed, 3 passed in 2.00s"
    assert ["form: long", "1.20s call tests/a.py::test_b", "1 failed, 3 passed in 2.00s"] == [
        line for line in long_forms.without_progress(said).splitlines() if line
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("options", "rows", "crossed"), [((), 4, range(9, 10)), (("--long",), 40, range(54, 55))])
def test_a_run_has_the_rows_of_its_form(
    tmp_path: Path, options: tuple[str, ...], rows: int, crossed: Collection[int]
) -> None:
    place = tmp_path / "test_rows.py"
    place.write_text(TABLE.format(long=bool(options)), "utf-8")
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.conftest",
        "-p",
        "no:cacheprovider",
        "-vv",
        *options,
        str(place),
    ]
    said = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    assert rows == said.count("::test_a_table[")
    assert said.count("::test_a_cross[") in crossed
    assert 1 == said.count("::test_alone PASSED")
    assert "failed" not in said
