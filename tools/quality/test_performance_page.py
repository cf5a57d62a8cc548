"""docs/performance*.md and their plots are the figures of docs/performance/results.json, and say so where one is missing."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from bench.figures import figure, quartiles, ratio
from bench.page import (
    FIGURE_PAGE,
    FOLDER,
    KEPT,
    OPERATOR_PAGE,
    PAGE,
    SERVED_PAGE,
    TARGET_PAGE,
    figure_page,
    files,
    operator_page,
    page,
    target_page,
)
from bench.page_plots import plots
from bench.page_words import LIMITED_BY
from bench.run import as_assessments, as_figure, as_row
from bench.targets import TABLE
from tests.e2e import first_minutes


@pytest.fixture
def run() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(KEPT.read_text("utf-8"))
    return found


def test_the_page_and_its_plots_are_those_of_the_figures(run):
    """Run `make performance` and commit docs/performance*.md with docs/performance."""
    written = files(run)
    pages = {path.name for path in (PAGE, TARGET_PAGE, FIGURE_PAGE, SERVED_PAGE, OPERATOR_PAGE)}
    assert {path.name for path in written} - pages == {path.name for path in FOLDER.iterdir()}
    for path, text in written.items():
        assert text == path.read_text("utf-8"), path.name


def test_the_first_minutes_have_a_row_and_a_transcript_each_and_none_takes_longer_than_its_bound():
    text = first_minutes.PAGE.read_text("utf-8")
    rows = dict(re.findall(r"(?m)^\| ([^|]+) \|.* (\d+\.\d) s \|$", text))
    assert ["browser login", "device flow", "key", "MCP server"] == list(rows)
    assert [title[1:] for title in rows] == re.findall(r"(?m)^## .(.+)$", text)
    assert max(map(float, rows.values())) <= first_minutes.MOST_SECONDS


@pytest.mark.parametrize("quick", [False, True])
def test_every_target_is_a_row_with_a_result_or_says_that_it_was_not_measured(run, quick):
    text = target_page(run | {"quick": quick}) + operator_page(run | {"quick": quick})
    for each in TABLE:
        [row] = [
            line for line in text.splitlines() if line.startswith(f"| {each.call} |") and f"| {each.goal} |" in line
        ]
        assessment = row.split("|")[-2].strip()
        assert assessment in ({"", "not assessed"} if quick else {"", "met", "**not met**"})
        assert (assessment == "") == ("not measured" in row), row


def test_the_gateway_is_checked_by_the_actions_of_a_minute(run):
    [target] = [each for each in TABLE if each.bench == "gateway"]
    [valid] = [each for each in run["results"]["gateway"] if each["name"] == "valid"]
    now = target.now(run["results"])
    assert now is not None
    assert valid["a minute"] == now[0]
    assert (True, False) == (target.met(1_000_000), target.met(999_999))
    assert f"| {valid['a minute']:,} a minute |  | ≥ 1,000,000 a minute |" in target_page(run)


def test_what_limits_a_call_is_said_while_its_target_is_not_met(run):
    assert LIMITED_BY.keys() <= {each.call for each in TABLE}
    for call, now in ((each.call, each.now(run["results"])) for each in TABLE if each.call in LIMITED_BY):
        assert now is not None
        [target] = [each for each in TABLE if each.call == call]
        assert (f"- **{call}**: " in target_page(run)) == (not target.met(now[0])), call
        assert f"- **{call}**: " not in target_page(run | {"quick": True})
    assert "What limits" not in target_page(run | {"results": {}})


def test_a_figure_that_was_edited_changes_the_page(run):
    before = files(run)
    next(iter(run["results"].values()))[0]["value"] += 1
    after = files(run)
    assert [each for each in (PAGE, TARGET_PAGE, FIGURE_PAGE) if before[each] != after[each]]


def test_a_missing_bench_is_reported_and_stops_nothing(run):
    empty = run | {"results": {}}
    assert {} == plots({})
    assert target_page(empty).count("not measured") >= len(TABLE)
    assert "not measured" in page(empty)
    assert figure_page(empty).startswith("# ")
    assert [] == as_assessments({})


def test_a_failed_row_says_why(run):
    failed = as_figure('{"name": "MSAL, file, 1 grants", "value": null, "unit": "", "failed": "no network"}')
    assert failed is not None
    assert "no network" in as_row(failed)
    run["results"]["peers"] = [failed]
    assert "not measured: no network" in page(run)


def test_plots_are_well_formed(run):
    for name, text in plots(run["results"]).items():
        assert "svg" in ET.fromstring(text).tag, name  # noqa: S314  (our own text)


def test_a_figure_is_a_median_with_quartiles_and_ratios_of_its_rounds():
    assert (2, 3, 4) == quartiles([5, 1, 2, 3, 4])
    assert {"ratio": 2.0, "low": 2.0, "high": 2.0} == ratio([2, 20, 4], [1, 10, 2])
    assert {"ratio": 3.0, "low": 3.0, "high": 3.0} == ratio([3], [1, 1])
    assert {
        "name": "a", "value": 2, "unit": "us", "low": 1.5, "high": 3, "rounds": 3, "more": "b",
        "beside": {"c": {"ratio": 2.0, "low": 1.5, "high": 3.0}},
    } == figure("a", [1, 2, 4], "us", {"c": [1, 1, 1]}, more="b")  # fmt: skip


def test_targets_are_met_from_their_own_side():
    least = next(each for each in TABLE if each.at_least)
    most = next(each for each in TABLE if not each.at_least)
    assert least.met(least.target + 1)
    assert not least.met(least.target - 0.01)
    assert most.met(most.target - 0.01)
    assert not most.met(most.target + 0.01)
