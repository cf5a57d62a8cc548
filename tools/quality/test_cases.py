"""tests/CASES.md and the lists behind it are true, and each number that is due has a test."""

from __future__ import annotations

import re

import pytest

from tools.quality.case_numbers import CASES, OPEN
from tools.quality.cases import KNOWN, LISTS, PAGE, RULES_PAGE, covered, lists, marks, page, rules


@pytest.mark.parametrize("kind", KNOWN)
def test_every_number_has_a_test(kind):
    have = {number for mark_kind, number in covered(marks()) if mark_kind == kind}
    assert "" == " ".join(number for number in KNOWN[kind] if number not in have)


def test_an_open_case_names_the_open_part_and_the_reason():
    assert OPEN.keys() <= CASES.keys()
    assert [] == [number for number, what in OPEN.items() if "Open: " not in what or "Why: " not in what]


def test_every_mark_names_a_known_number_and_stands_on_a_test():
    wrong = [
        f"{mark.test}: {mark.kind} {mark.number}"
        for mark in marks()
        if mark.number not in KNOWN[mark.kind] or not re.search(r"::([Tt]est|\w*Contract)|^[\w/]+\.py$", mark.test)
    ]
    assert [] == wrong


def test_the_pages_are_up_to_date():
    """Run `make cases` and commit tests/CASES*.md."""
    assert page(marks()) == PAGE.read_text("utf-8")
    assert rules(marks()) == RULES_PAGE.read_text("utf-8")
    assert lists(marks()) == LISTS.read_text("utf-8")


def test_each_count_of_the_page_leads_to_so_many_tests():
    anchored = re.split(r'(?m)^## <a id="([^"]+)"></a>.+$', lists(marks()))[1:]
    found = [
        (str(len(re.findall(r"`[^`]+`|all its tests", body))), name)
        for name, body in zip(anchored[::2], anchored[1::2], strict=True)
    ]
    counts = re.findall(rf"\[(\d+)\]\({LISTS.name}#([^)]+)\)", page(marks()) + rules(marks()))
    assert found == counts
    assert len(found) == len(set(anchored[::2])), "one anchor twice"


def test_a_line_of_the_page_can_be_read_at_a_glance():
    rows = [line for line in (page(marks()) + rules(marks())).splitlines() if line.startswith("| ")]
    assert [] == [row for row in rows if len(row.rsplit("|", 2)[1]) > 60]


def test_marks_are_found_wherever_pytest_allows_them(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_x.py").write_text(
        """
import pytest
pytestmark = [pytest.mark.rule("12.5.4")]
ROWS = [pytest.param(1, marks=pytest.mark.case("8"))]
@pytest.mark.case("1", "2")
def test_a(): ...
@pytest.mark.case("3")
class TestB:
    @pytest.mark.parametrize("x", [pytest.param(1, marks=[pytest.mark.case("14a")])])
    async def test_c(self, x): ...
@pytest.mark.case(65)
def test_d(): ...
""",
        "utf-8",
    )
    assert (
        ("rule", "12.5.4", "tests/test_x.py"),
        ("case", "8", "tests/test_x.py"),
        ("case", "1", "tests/test_x.py::test_a"),
        ("case", "2", "tests/test_x.py::test_a"),
        ("case", "14a", "tests/test_x.py::TestB::test_c"),
        ("case", "3", "tests/test_x.py::TestB"),
        ("case", None, "tests/test_x.py::test_d"),
    ) == marks(tmp_path)
