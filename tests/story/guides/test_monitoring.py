"""The files that docs/how-to/monitoring.md names: Prometheus' rules and Grafana's dashboard ask for metrics that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest
import yaml

from oauthbroker.observability.metrics import FROM_THE_START, Gauge, Metric, Timing
from tests.kit.docs import ROOT, page_text

FOLDER = ROOT / "deploy" / "monitoring"
RULES = yaml.safe_load((FOLDER / "alerts.yaml").read_text("utf-8"))["groups"][0]["rules"]
PANELS = json.loads((FOLDER / "dashboard.json").read_text("utf-8"))["panels"]
LABELS: dict[str, set[str]] = {
    **{each.value: set(each.labels) for each in [*Metric, *Gauge]},
    **{f"{each.value}_{part}": {*each.labels, "le"} for each in Timing for part in ("bucket", "count", "sum")},
}
OTHERS = ("up{job=", "node_filesystem_")  # of Prometheus itself, and of its node_exporter
OTHER_LABELS = {"job", "mountpoint"}


def expressions() -> Iterator[Any]:
    for rule in RULES:
        yield pytest.param(rule["expr"], id=rule["alert"])
    for panel in PANELS:
        for target in panel["targets"]:
            yield pytest.param(target["expr"], id=f"{panel['title']} {target['refId']}")


@pytest.mark.parametrize("expression", [*expressions()])
def test_an_expression_asks_for_metrics_and_labels_that_exist(expression: str) -> None:
    metrics = re.findall(r"oauthbroker_\w+", expression)
    assert metrics or any(name in expression for name in OTHERS)
    assert set() == set(metrics) - LABELS.keys()
    grouped = {label.strip() for labels in re.findall(r"by \(([^)]*)\)", expression) for label in labels.split(",")}
    selected = set(re.findall(r"(\w+)=\"", expression))
    assert grouped | selected <= OTHER_LABELS.union(*(LABELS[metric] for metric in metrics))


def test_each_alert_says_what_to_do_and_has_a_name_of_its_own() -> None:
    assert len(RULES) == len({rule["alert"] for rule in RULES})
    assert all(rule["annotations"]["summary"].endswith(".") for rule in RULES)


def test_a_series_whose_increase_an_alert_asks_for_is_there_before_its_first_error() -> None:
    born = {(metric.value, dict(zip(metric.labels, labels, strict=True))["code"]) for metric, labels in FROM_THE_START}
    named = {pair for rule in RULES for pair in re.findall(r'increase\((\w+)\{code="(\w+)"', rule["expr"])}
    assert born == named
    for rule in RULES:  # labels without a fixed list: the rule itself looks for new series
        for series in re.findall(r"increase\((\w+\{(?!code=)[^}]*\})\[(\w+)\]", rule["expr"]):
            assert f"{series[0]} unless {series[0]} offset {series[1]}" in rule["expr"]


def test_an_outage_of_the_store_is_an_alert_without_a_token_call() -> None:
    (away,) = [rule for rule in RULES if rule["alert"] == "StoreAway"]
    assert 'oauthbroker_health_problems{code="storeUnavailable"}' in away["expr"]


def test_no_panel_of_the_dashboard_lies_on_another_one() -> None:
    def overlap(one: dict[str, int], other: dict[str, int]) -> bool:
        return all(one[at] < other[at] + other[size] and other[at] < one[at] + one[size] for at, size in ("xw", "yh"))

    assert [] == [pair for pair in combinations([panel["gridPos"] for panel in PANELS], 2) if overlap(*pair)]
    assert len(PANELS) == len({panel["id"] for panel in PANELS})


def test_the_page_links_to_both_files() -> None:
    page = page_text("docs/how-to/monitoring.md")
    assert [] == [each.name for each in FOLDER.iterdir() if f"deploy/monitoring/{each.name})" not in page]
