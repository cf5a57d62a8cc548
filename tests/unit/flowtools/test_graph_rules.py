"""The graph rules 1 to 6 and the risk rules, each on a flow that keeps it and on one that breaks it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from oauthbroker.flowtools.risk.rules import concurrency_of, findings, risk_of
from oauthbroker.flowtools.specification.spec import has_effect
from tests.unit.flowtools.kit import chain, tool_of

TX = ("transaction", {"action": "begin"})
END = ("transaction", {"action": "commit"})
UPDATE = {"entity": "Order", "operation": "update"}
BRANCH = [("a", "b", "true"), ("a", "c", "false")]
Row = tuple[dict[str, Any], list[tuple[str, ...]]]


def reported(nodes: dict[str, Any], edges: list[tuple[str, ...]], **more: Any) -> list[tuple[str, str, str]]:
    return [(each.rule, each.risk, each.node) for each in findings(tool_of(nodes, edges, **more))]


KEPT: dict[str, Row] = {
    "one node": ({"a": "transform"}, []),
    "a write behind a transaction without an end": ({"a": "transaction", "b": "write"}, chain("a", "b")),
    "a write between begin and commit": ({"a": TX, "b": "write", "c": END}, chain("a", "b", "c")),
    "a second transaction behind the first": (
        {"a": TX, "b": "write", "c": END, "d": TX, "e": "write"},
        chain("a", "b", "c", "d", "e"),
    ),
    "each branch begins a transaction of its own": (
        {"a": "if", "b": TX, "c": TX, "d": "write", "e": END},
        [*BRANCH, ("b", "d"), ("c", "d"), ("d", "e")],
    ),
    "an external call behind the commit, with retry and timeout": (
        {"a": TX, "b": "write", "c": END, "d": "retry", "e": "timeout", "f": "payment"},
        chain("a", "b", "c", "d", "e", "f"),
    ),
    "timeout around retry": ({"a": "timeout", "b": "retry", "c": "sms"}, chain("a", "b", "c")),
    "a read by id": ({"a": "read"}, []),
    "a read with a limit": ({"a": ("read", {"entity": "Order", "limit": 10})}, []),
    "an update by id": (
        {"a": TX, "b": ("write", {**UPDATE, "filter": {"id": "input.id"}}), "c": END},
        chain("a", "b", "c"),
    ),
    "an update of at most 100 rows": (
        {"a": TX, "b": ("write", {**UPDATE, "filter": {"x": "input.id"}, "limit": 100}), "c": END},
        chain("a", "b", "c"),
    ),
    "a switch with a default": (
        {"a": "switch", "b": "transform", "c": "transform"},
        [("a", "b", "x"), ("a", "c", "default")],
    ),
}
FOUND: dict[str, tuple[Row, list[tuple[str, str, str]]]] = {
    "1, a cycle": (
        ({"a": "transform", "b": "if", "c": "transform"}, [("a", "b"), ("b", "a", "true"), ("b", "c", "false")]),
        [("1", "red", "a")],
    ),
    "1, a node that leads to itself": (
        ({"a": "transform"}, [("a", "a")]),
        [("1", "red", "a"), ("3", "red", "a")],
    ),
    "3, a branch without an outcome": (({"a": "if", "b": "transform"}, [("a", "b", "true")]), [("3", "red", "a")]),
    "3, a switch without a default": (({"a": "switch", "b": "transform"}, [("a", "b", "x")]), [("3", "red", "a")]),
    "4, no transaction": (({"a": "write"}, []), [("4", "red", "a")]),
    "4, one branch without a transaction": (
        ({"a": "if", "b": "transaction", "c": "transform", "d": "write"}, [*BRANCH, ("b", "d"), ("c", "d")]),
        [("4", "red", "d")],
    ),
    "4, behind the commit": (({"a": TX, "b": END, "c": "write"}, chain("a", "b", "c")), [("4", "red", "c")]),
    "4, a transaction behind the write": (({"a": "write", "b": TX}, chain("a", "b")), [("4", "red", "a")]),
    "4, one inside another": (({"a": TX, "b": "transaction"}, chain("a", "b")), [("4", "red", "b")]),
    "4, a commit alone": (({"a": "transform", "b": END}, chain("a", "b")), [("4", "red", "b")]),
    "5, no retry": (({"a": "timeout", "b": "email"}, chain("a", "b")), [("5", "yellow", "b")]),
    "5, a retry of another node": (
        ({"a": "retry", "b": "transform", "c": "timeout", "d": "email"}, chain("a", "b", "c", "d")),
        [("5", "yellow", "d")],
    ),
    "5, on one branch": (
        ({"a": "if", "b": "retry", "c": "timeout", "d": "sms"}, [*BRANCH, ("b", "c"), ("c", "d")]),
        [("5", "yellow", "d")],
    ),
    "6, an orphan": (({"a": "transform", "b": "transform"}, []), [("6", "red", "b")]),
    "6, orphans that lead on": (
        ({"a": "transform", "b": "transform", "c": "transform"}, [("b", "c")]),
        [("6", "red", "b"), ("6", "red", "c")],
    ),
    "no timeout": (({"a": "retry", "b": "email"}, chain("a", "b")), [("external-without-timeout", "yellow", "b")]),
    "an effect inside a transaction": (
        ({"a": TX, "b": "retry", "c": "timeout", "d": "sms"}, chain("a", "b", "c", "d")),
        [("external-in-transaction", "red", "d")],
    ),
    "a GET inside a transaction": (
        (
            {
                "a": TX,
                "b": "retry",
                "c": "timeout",
                "d": ("httpRequest", {"url": "https://api.example.com/v1", "oauthAppRef": "OAuthApp/mail"}),
            },
            chain("a", "b", "c", "d"),
        ),
        [("external-in-transaction", "yellow", "d")],
    ),
    "raw SQL": (
        ({"a": TX, "b": ("write", {"sql": "DROP TABLE orders"}), "c": END}, chain("a", "b", "c")),
        [("raw-sql", "red", "b")],
    ),
    "a hard delete": (
        (
            {"a": TX, "b": ("write", {"entity": "Order", "operation": "delete", "filter": {"id": "input.id"}})},
            chain("a", "b"),
        ),
        [("hard-delete", "red", "b")],
    ),
    "an update of all rows": (({"a": TX, "b": ("write", UPDATE)}, chain("a", "b")), [("unbounded-update", "red", "b")]),
    "an update of many rows": (
        ({"a": TX, "b": ("write", {**UPDATE, "filter": {"x": "input.id"}, "limit": 101})}, chain("a", "b")),
        [("many-rows", "yellow", "b")],
    ),
    "a read without a limit": (
        ({"a": ("read", {"entity": "Order", "filter": {"x": "input.id"}})}, []),
        [("read-without-limit", "yellow", "a")],
    ),
    "a call behind a transition": (
        (
            {
                "a": TX,
                "b": (
                    "write",
                    {"entity": "Order", "operation": "transition", "to": "paid", "filter": {"id": "input.id"}},
                ),
                "c": END,
                "d": "retry",
                "e": "timeout",
                "f": "email",
            },
            chain("a", "b", "c", "d", "e", "f"),
        ),
        [("external-in-transition", "yellow", "f")],
    ),
    "a call before a transition": (
        (
            {
                "a": "retry",
                "b": "timeout",
                "c": "email",
                "d": TX,
                "e": (
                    "write",
                    {"entity": "Order", "operation": "transition", "to": "paid", "filter": {"id": "input.id"}},
                ),
            },
            chain("a", "b", "c", "d", "e"),
        ),
        [("external-in-transition", "yellow", "c")],
    ),
}


@pytest.mark.rule(
    "000-rules-1", "000-rules-2", "000-rules-3", "000-rules-4", "000-rules-5", "000-rules-6", "001-risk-1"
)
@pytest.mark.parametrize("name", KEPT)
def test_a_flow_that_keeps_the_rules_is_green(name):
    tool = tool_of(*KEPT[name])
    assert ([], "green") == (reported(*KEPT[name]), risk_of(findings(tool)))


@pytest.mark.rule("000-rules-1", "000-rules-3", "000-rules-4", "000-rules-5", "000-rules-6", "001-risk-2", "001-risk-3")
@pytest.mark.parametrize("name", FOUND)
def test_a_flow_that_breaks_a_rule_is_reported_with_the_rule_and_its_place(name):
    row, expected = FOUND[name]
    assert expected == reported(*row)


@pytest.mark.rule("000-rules-2")
def test_a_start_that_is_no_node_is_red():
    assert [("2", "red", "")] == reported({"a": "transform"}, [], start="b")


@pytest.mark.rule("001-risk-5")
def test_every_finding_says_what_to_do_and_its_path_leads_through_the_graph():
    for row, _ in FOUND.values():
        tool = tool_of(*row)
        edges = {(edge.source, edge.target) for edge in tool.edges}
        for each in findings(tool):
            assert each.what
            assert each.hint
            assert set(pairwise(each.path)) <= edges
            assert not each.path or each.rule == "1" or each.path[0] == tool.start
            assert not each.path or each.node in each.path


@pytest.mark.rule("001-risk-3", "001-example-4")
def test_a_payment_without_the_policy_of_its_rollback_is_red():
    flow = {"a": "retry", "b": "timeout", "c": "payment"}, chain("a", "b", "c")
    assert [("payment-without-rollback", "red", "c")] == reported(*flow, policies=["requireTransaction"])
    assert [] == reported(*flow, policies=["paymentRollback"])


@pytest.mark.rule("001-risk-1")
def test_an_effect_without_an_idempotency_key_is_yellow_and_reading_needs_none():
    assert ("no-idempotency-key", "yellow", "b") in reported(
        {"a": TX, "b": "write"}, chain("a", "b"), idempotencyKey=None
    )
    fetch = ("httpRequest", {"url": "https://api.example.com/v1", "oauthAppRef": "OAuthApp/mail"})
    assert [] == reported({"a": "retry", "b": "timeout", "c": fetch}, chain("a", "b", "c"), idempotencyKey=None)


@pytest.mark.rule("000-top-concurrency")
def test_the_concurrency_is_chosen_by_what_the_flow_does_unless_it_is_written():
    update = ("write", {**UPDATE, "filter": {"id": "input.id"}})
    assert "none" == concurrency_of(tool_of({"a": TX, "b": "write"}, chain("a", "b")))
    assert "optimistic" == concurrency_of(tool_of({"a": TX, "b": update}, chain("a", "b")))
    both = {"a": TX, "b": update, "c": END, "d": "sms"}
    assert "pessimistic" == concurrency_of(tool_of(both, chain("a", "b", "c", "d")))
    assert "none" == concurrency_of(tool_of({"a": update}, [], concurrencyStrategy="none"))


def test_only_a_get_or_head_has_no_effect():
    methods = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
    url = "https://api.example.com/v1"
    tools = [
        tool_of({"a": ("httpRequest", {"oauthAppRef": "OAuthApp/mail", "url": url, "method": method})}, [])
        for method in methods
    ]
    assert [False, False, True, True, True, True] == [has_effect(tool.nodes["a"]) for tool in tools]
