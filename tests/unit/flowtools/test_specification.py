"""Specifications that are refused: every problem at once, each with line, column and what to do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oauthbroker.flowtools.risk.assessment import assess
from oauthbroker.flowtools.specification.source import FlowRefused
from oauthbroker.flowtools.specification.spec import load_tool, refuse_changed
from tests.unit.flowtools.kit import tool_of, written

ONE: tuple[dict[str, Any], list[tuple[str, ...]]] = ({"a": "transform"}, [])


def problems(data: Any, file: str = "tool.json") -> list[tuple[str, str]]:
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    with pytest.raises(FlowRefused) as refused:
        load_tool(raw, file)
    return [(each.path, each.what) for each in refused.value.problems]


def changed(path: str, value: Any) -> dict[str, Any]:
    data = written(*ONE)
    *above, last = path.split(".")
    place = data
    for step in above:
        place = place[step]
    place[last] = value
    return data


NODE = "flow.nodes.a"
REFUSED: list[tuple[str, str, Any, str]] = [
    ("name", "name", "Create", "not in the form that is asked for"),
    ("name", "name", "auth.Login", "not in the form that is asked for"),
    ("version", "version", 0, "too small or too short"),
    ("version", "version", "1", "of another type"),
    ("riskLevel", "riskLevel", "blue", "unknown value"),
    ("concurrencyStrategy", "concurrencyStrategy", "some", "unknown value"),
    ("trigger.type", "trigger.type", "mail", "unknown value"),
    ("trigger", "trigger.schedule", {"type": "cron"}, "missing"),
    ("trigger", "trigger.webhookSecret", {"type": "webhook"}, "missing"),
    ("auth", "auth.runAs", {"runAs": "nightly"}, "not for the trigger http: it runs as its caller"),
    ("trigger", "trigger.schedule", {"type": "http", "schedule": "* * * * *"}, "not for the trigger http"),
    ("trigger", "trigger.method", {"type": "queue", "method": "GET"}, "not for the trigger queue"),
    ("trigger", "trigger.schedule", {"type": "cron", "schedule": "soon"}, "no cron expression that ever fires"),
    ("trigger", "trigger.schedule", {"type": "cron", "schedule": "61 * * * *"}, "no cron expression that ever fires"),
    ("trigger", "trigger.schedule", {"type": "cron", "schedule": "0 0 31 2 *"}, "no cron expression that ever fires"),
    ("trigger", "trigger.schedule", {"type": "cron", "schedule": "* * * * * *"}, "no cron expression that ever fires"),
    ("trigger", "trigger.path", {"type": "http", "path": "payments"}, "not in the form that is asked for"),
    ("trigger", "trigger.path", {"type": "http", "path": "/a/../b"}, "not allowed here"),
    ("input", "input", {"type": "objekt"}, "not a usable JSON Schema 2020-12"),
    ("input", "input", {"$ref": "https://example.com/schema"}, "not a usable JSON Schema 2020-12"),
    ("input", "input", {"properties": {"a": {"format": "uuidd"}}}, "not a usable JSON Schema 2020-12"),
    ("output", "output", {"properties": {"a": {"pattern": "(?=a)b"}}}, "not a usable JSON Schema 2020-12"),
    ("output", "output", [], "of another type"),
    ("auth.required", "auth", {"required": "no"}, "of another type"),
    (f"{NODE}.type", f"{NODE}.type", "loop", "unknown value"),
    (f"{NODE}.config.expression", f"{NODE}.config", {}, "missing"),
    (f"{NODE}.config.expresion", f"{NODE}.config", {"expression": "1", "expresion": "1"}, "unknown field"),
    ("flow.edges[0].to", "flow.edges", [{"from": "a", "to": "z"}], "no node of this flow"),
    ("flow.edges[0].label", "flow.edges", [{"from": "a", "to": "a", "label": "true"}], "a label, and its node does not branch"),
    ("flow.edges[0].dataMapping", "flow.edges", [{"from": "a", "to": "a", "dataMapping": {"x": "z", "y": "z"}}], "two fields lead to one"),
]  # fmt: skip


@pytest.mark.rule(
    "000-top-name", "000-top-version", "000-top-concurrency", "000-trigger-1", "000-trigger-2", "000-trigger-3",
    "000-trigger-4", "000-trigger-5", "000-top-input", "000-top-output", "000-node-1", "000-edge-1", "000-edge-2",
)  # fmt: skip
@pytest.mark.parametrize(("reported", "path", "value", "what"), REFUSED)
def test_a_wrong_value_is_refused_at_its_place(reported, path, value, what):
    place = reported if reported.startswith(path) or path.startswith(reported + ".") else path
    data = changed(reported if path.startswith(reported + ".") else path, value)
    found = problems(data)
    assert what in {words for _, words in found}, found
    assert any(each.startswith(place.split(".")[0]) for each, _ in found)


@pytest.mark.rule("000-schema")
@pytest.mark.parametrize("member", ["name", "version", "description", "trigger", "input", "output", "flow"])
def test_each_required_member_is_missed(member):
    data = written(*ONE)
    del data[member]
    assert (member, "missing") in problems(data)


BAD = """{
  "name": "Bad",
  "version": 1,
  "description": "Two\\tflaws",
  "trigger": {"type": "cron"},
  "input": {},
  "output": {},
  "flow": {
    "startNode": "a",
    "nodes": {"a": {"type": "tranform"}},
    "edges": [{"from": "a", "to": "b"}],
    "edgess": []
  }
}"""
BAD_YAML = """name: Bad
version: 1
description: Flaws
trigger: {type: cron}
input: {}
output: {}
flow:
  startNode: a
  nodes:
    a: {type: tranform}
  edges:
    - {from: a, to: b}
  edgess: []
"""


@pytest.mark.rule("000-schema")
@pytest.mark.parametrize(
    ("text", "file", "places"),
    [
        (BAD, "bad.json", [(2, 11), (5, 3), (10, 29), (11, 35), (12, 15)]),
        (BAD_YAML, "bad.yaml", [(1, 7), (4, 1), (10, 15), (12, 21), (13, 11)]),
    ],
)
def test_all_problems_come_at_once_with_line_and_column(text, file, places):
    with pytest.raises(FlowRefused) as refused:
        load_tool(text.encode(), file)
    assert places == [(each.line, each.column) for each in refused.value.problems]
    assert str(refused.value).splitlines()[0].startswith(f"{file}:{places[0][0]}:{places[0][1]} name: ")
    assert "The nearest known name is edges" in str(refused.value)


BRANCHES: list[tuple[dict[str, Any], list[tuple[str, ...]], str]] = [
    ({"a": "if", "b": "transform"}, [("a", "b", "yes")], "an edge of an if node without `true` or `false`"),
    ({"a": "if", "b": "transform"}, [("a", "b")], "an edge of an if node without `true` or `false`"),
    ({"a": "if", "b": "transform"}, [("a", "b", "true"), ("a", "b", "true")], "a label twice"),
    ({"a": "switch", "b": "transform"}, [("a", "b")], "an edge of a switch node without a label"),
    ({"a": "read", "b": "read"}, [("a", "b"), ("a", "b")], "a second edge from a node that does not branch"),
    ({"a": "read", "a-b": "read", "a_b": "read"}, [], "an id twice"),
    ({"a": "read", "a b": "read"}, [], "an id that expressions cannot use"),
    ({"a": "read", "input": "read"}, [], "an id that expressions cannot use"),
    ({"a": ("read", {"entity": "A", "composite": "B"})}, [], "not exactly one of entity and composite"),
    ({"a": ("write", {"entity": "A"})}, [], "missing"),
    ({"a": ("write", {"entity": "A", "operation": "create", "action": "create"})}, [], "beside `operation`, which means the same"),
    ({"a": ("write", {"entity": "A", "operation": "transition"})}, [], "does not fit the operation"),
    ({"a": ("write", {"entity": "A", "operation": "create", "filter": {"id": "1"}})}, [], "not for the operation create"),
]  # fmt: skip


@pytest.mark.rule("000-graph-1", "000-edge-2", "000-types-write", "000-types-read")
@pytest.mark.parametrize(("nodes", "edges", "what"), BRANCHES)
def test_a_graph_with_unclear_edges_or_nodes_is_refused(nodes, edges, what):
    assert what in {words for _, words in problems(written(nodes, edges))}


def test_an_array_with_one_id_twice_is_refused():
    data = written(*ONE)
    node = {"id": "a", "type": "Transform", "config": {"expression": "1"}}
    data["flow"]["nodes"] = [node, node]
    assert [("flow.nodes[0].id", "an id twice"), ("flow.nodes[1].id", "an id twice")] == problems(data)


@pytest.mark.rule("000-trigger-2", "000-trigger-3", "000-trigger-4", "000-trigger-5", "001-trigger-1")
@pytest.mark.parametrize(
    "trigger",
    [
        {"type": "http"},
        {"type": "http", "method": "DELETE", "path": "/orders/old"},
        {"type": "webhook", "webhookSecret": "stripe"},
        {"type": "cron", "schedule": "0 */6 * * *"},
        {"type": "queue"},
    ],
)
def test_each_trigger_loads_with_its_required_members(trigger):
    tool = tool_of(*ONE, trigger=trigger)
    assert trigger["type"] == tool.trigger.type


@pytest.mark.rule("000-top-version", "001-version")
def test_a_version_with_other_bytes_is_refused_and_the_next_version_is_named():
    tool, other = tool_of(*ONE), tool_of(*ONE, description="Another")
    refuse_changed(tool, None)
    refuse_changed(tool, tool.source.digest)
    with pytest.raises(FlowRefused, match=r"This version exists with other bytes\. Write version 2"):
        refuse_changed(other, tool.source.digest)


EXPRESSIONS: list[tuple[dict[str, Any], list[tuple[str, ...]], str, str]] = [
    ({"a": ("transform", {"expression": "input.idd"})}, [], "input.idd is not bound here", "name is input.id"),
    ({"a": ("transform", {"expression": "input.zzzzzz"})}, [], "input.zzzzzz is not bound here", "correct the name"),
    ({"a": ("transform", {"expression": "concatt('a', 'b')"})}, [], "concatt is not known", "name is concat; use"),
    ({"a": ("transform", {"expression": "caller.idd"})}, [], "caller.idd is not bound here", "name is caller.id"),
    ({"a": ("transform", {"expression": "caller.id"}), "caller": "transform"}, [("a", "caller")], "caller.id is not bound", "every path"),
    ({"a": ("transform", {"expression": "caller"})}, [], "caller is not bound here", "known here: caller.id"),
    ({"a": "transform", "b": ("transform", {"expression": "a"})}, [("a", "b")], "a is not bound here", "known here: a.result"),
    ({"a": ("if", {"expression": "1"})}, [], "not true or false", "true or false"),
    ({"a": ("assert", {"expression": "input.id"})}, [], "not true or false", "true or false"),
    ({"a": ("transform", {"expression": "b.result"}), "b": "transform"}, [("a", "b")], "b.result is not bound", "every path"),
    ({"a": ("transform", {"expression": "order.total"})}, [], "order.total is not bound", "read the entity Order"),
    ({"a": "transform", "b": ("transform", {"expression": "a.result + 'x'"})}, [("a", "b")], "no operator fits", "correct"),
    ({"a": ("read", {"entity": "Order", "filter": {"id": "inputt.id"}})}, [], "inputt.id is not bound", "name is input"),
    ({"a": ("email", {"to": "1", "subject": "'s'", "body": "'b'"})}, [], "not a text", "a text"),
    ({"a": "read", "order": "transform"}, [("a", "order")], "the name of an entity that the flow reads", "rename"),
]  # fmt: skip


@pytest.mark.rule("000-dsl-1")
@pytest.mark.parametrize(("nodes", "edges", "what", "hint"), EXPRESSIONS)
def test_an_expression_is_checked_against_what_every_path_binds(nodes, edges, what, hint):
    found = assess(tool_of(nodes, edges)).problems
    assert any(what in each.what and hint in each.hint for each in found), found


def test_an_entity_that_is_known_and_that_no_node_reads_is_a_problem_of_the_expression():
    tool = tool_of({"a": "read", "b": ("transform", {"expression": "customer.name"})}, [("a", "b")])
    for entities in ((), ("Order", "Customer")):
        (problem,) = assess(tool, (), entities).problems
        assert "let every path read the entity Customer" in problem.hint
    assert () == assess(tool, (), ("Customer",)).problems, "the read of an unknown entity is the problem"


@pytest.mark.rule("000-top-idempotency")
def test_an_idempotency_key_is_a_text_of_the_input_alone():
    for key in ("input.n", "a.result", "concat("):
        (problem,) = assess(tool_of(*ONE, idempotencyKey=key)).problems
        assert "idempotencyKey" == problem.path


@pytest.mark.rule("001-binding")
def test_a_read_binds_its_id_and_its_entity_and_hyphens_are_reachable():
    nodes = {"get-order": "read", "b": ("assert", {"expression": "order.total > 1 && get-order.result.total - 1 > 0"})}
    assert () == assess(tool_of(nodes, [("get-order", "b")], "get-order")).problems


@pytest.mark.rule("000-top-policies", "000-types-rest")
def test_an_unknown_policy_is_refused_and_the_nearest_named():
    tool = tool_of({"a": ("policyCheck", {"policy": "mine"})}, [], policies=["maxRowLimits"])
    reported = [(each.path, each.what, each.hint) for each in assess(tool).problems]
    assert ("policies[0]", "an unknown policy", "the nearest known name is maxRowLimit") == reported[0]
    assert "flow.nodes.a.config.policy" == reported[1][0]
