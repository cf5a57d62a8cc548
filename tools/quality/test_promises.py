"""The page of promises quotes what the other pages say, leaves out no row of their tables, and names tests that exist."""

from __future__ import annotations

import re

import pytest

from tests.kit.docs import ROOT, page_text

PAGES = {"README": "README.md", "SECURITY": "SECURITY.md", "refresh": "docs/refresh.md", "scaling": "docs/scaling.md"}
ROW = re.compile(r"(?m)^\| (?!promise |-)(.+?) \| \[(\w+)\]\([\w./]+\) \| (.+?) \|$")
TEST = re.compile(r"\[`(\S+\.py)::(test_\w+)`\]\(\.\./tests/\1\)")
PROMISES = ROW.findall(page_text("docs/promises.md"))


def plain(text: str) -> str:
    """Return the words of a text on one line, without its links."""
    return " ".join(re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text).replace("**", "").split())


@pytest.mark.parametrize(("promise", "page", "tests"), PROMISES, ids=[promise for promise, _, _ in PROMISES])
def test_a_promise_stands_on_its_page_and_is_held_by_tests_that_exist(promise: str, page: str, tests: str) -> None:
    assert promise in plain(page_text(PAGES[page]))
    found = TEST.findall(tests)
    assert found
    assert [] == [name for file, name in found if f"def {name}(" not in (ROOT / "tests" / file).read_text("utf-8")]


@pytest.mark.parametrize(
    ("page", "heading"),
    [("refresh", "### Promises when something breaks"), ("scaling", "## When something fails")],
)
def test_no_row_about_what_breaks_is_missing(page: str, heading: str) -> None:
    section = re.split(r"(?m)^#", page_text(PAGES[page]).partition(heading)[2])[0]
    rows = re.findall(r"(?m)^\| (?!what )([^|-][^|]*?) \|", section)
    assert len(rows) > 5
    promised = {promise for promise, where, _ in PROMISES if where == page}
    assert set() == {*map(plain, rows)} - promised


def test_no_promise_of_a_refresh_is_missing() -> None:
    section = page_text("docs/refresh.md").partition("## Promises and limits")[2].partition("\n\nThe [page")[0]
    promised = [promise for promise, where, _ in PROMISES if where == "refresh"]
    sentences = re.findall(r"(?m)^- (.+)$", section)
    assert 5 == len(sentences)
    assert [] == [each for each in sentences if not any(promise in each for promise in promised)]
