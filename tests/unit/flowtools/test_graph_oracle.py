"""Random graphs: every finding is what a search through all paths, and networkx, say; the names of expressions are those
of the nodes that dominate."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import Any

import networkx as nx
from hypothesis import event, given, settings
from hypothesis import strategies as st

from oauthbroker.flowtools.risk.assessment import assess
from oauthbroker.flowtools.risk.drawing import draw
from oauthbroker.flowtools.risk.rules import findings, risk_of
from oauthbroker.flowtools.specification.spec import FlowTool
from tests.unit.flowtools.kit import tool_of

CALLS = {"payment", "email", "sms", "httpRequest"}
LABELS: dict[str, list[tuple[str, ...]]] = {"if": [("true",), ("false",)], "switch": [("x",), ("y",), ("default",)]}
KINDS: list[Any] = [
    "transform",
    "read",
    "write",
    ("write", {"entity": "Order", "operation": "transition", "to": "paid", "filter": {"id": "input.id"}}),
    ("write", {"entity": "Order", "operation": "update"}),
    ("write", {"entity": "Order", "operation": "update", "filter": {"note": "'x'"}}),
    ("write", {"entity": "Order", "operation": "update", "filter": {"note": "'x'"}, "limit": 100}),
    ("write", {"entity": "Order", "operation": "softDelete", "filter": {"note": "'x'"}, "limit": 101}),
    ("write", {"entity": "Order", "operation": "delete", "filter": {"id": "input.id"}}),
    ("write", {"sql": "DELETE FROM orders"}),
    ("read", {"entity": "Order", "filter": {"note": "'x'"}}),
    ("read", {"entity": "Order", "limit": 5}),
    ("httpRequest", {"url": "https://api.example.com/v1", "oauthAppRef": "OAuthApp/mail", "method": "DELETE"}),
    "transaction",
    ("transaction", {"action": "begin"}),
    ("transaction", {"action": "commit"}),
    "retry",
    "timeout",
    "payment",
    "email",
    ("httpRequest", {"url": "https://api.example.com/v1", "oauthAppRef": "OAuthApp/mail"}),
    "if",
    "if",
    "switch",
]


@st.composite
def flows(draw_: Any, kinds: Any = KINDS) -> FlowTool:
    names = list("abcdefgh")[: draw_(st.integers(1, 8))]
    nodes = {name: draw_(st.sampled_from(kinds)) for name in names}
    forward = draw_(st.integers(0, 3)) > 0
    edges: list[tuple[str, ...]] = []
    for at, name in enumerate(names):
        targets = names[at + 1 :] if forward else names
        kind = nodes[name]
        labels = LABELS.get(kind if isinstance(kind, str) else "", [()])
        kept = [label for label in labels if targets and draw_(st.integers(0, 5))]
        edges += [(name, draw_(st.sampled_from(targets[:3])), *label) for label in kept]
    policies = draw_(st.sampled_from([[], ["paymentRollback"]]))
    return tool_of(nodes, edges, policies=policies, idempotencyKey=draw_(st.sampled_from([None, "input.id"])))


def all_paths(graph: nx.DiGraph, start: str) -> Iterator[list[str]]:
    """Every path from the start, each node on it once as its end."""
    waiting = [[start]]
    while waiting:
        path = waiting.pop()
        yield path
        waiting += [[*path, following] for following in graph.successors(path[-1])]


def assessed_by_paths(tool: FlowTool, graph: nx.DiGraph) -> set[tuple[str, str, str]]:
    """What follows from looking at each path alone. Only for graphs without a cycle."""
    found = set()
    nodes = tool.nodes
    for path in all_paths(graph, tool.start):
        end = nodes[path[-1]]
        is_open = False
        for name in path[:-1]:
            if nodes[name].type == "transaction":
                is_open = nodes[name].operation != "commit"
        if end.type == "write" and not is_open:
            found.add(("4", "red", end.id))
        if end.type == "transaction" and is_open == (end.operation != "commit"):
            found.add(("4", "red", end.id))
        if end.type in CALLS:
            reads = end.type == "httpRequest" and end.config.get("method", "GET") == "GET"
            if is_open:
                found.add(("external-in-transaction", "yellow" if reads else "red", end.id))
            before = [nodes[name].type for name in reversed(path[:-1])]
            around = {*takewhile(lambda kind: kind in {"retry", "timeout"}, before)}
            if "retry" not in around:
                found.add(("5", "yellow", end.id))
            if "timeout" not in around:
                found.add(("external-without-timeout", "yellow", end.id))
        if any(nodes[name].operation == "transition" for name in path):
            found |= {("external-in-transition", "yellow", name) for name in path if nodes[name].type in CALLS}
    return found


def assessed_by_nodes(tool: FlowTool, reached: set[str]) -> set[tuple[str, str, str]]:
    """What 001 and the list of risk patterns say about a node by itself."""
    found = set()
    for name in reached:
        node = tool.nodes[name]
        config, changes = node.config, node.operation in {"update", "transition", "softDelete", "delete"}
        one_row = list(config.get("filter", {})) == ["id"]
        if node.type == "payment" and tool.policies == ():
            found.add(("payment-without-rollback", "red", name))
        acts = node.type in {"write", "payment", "email", "sms"} or config.get("method") == "DELETE"
        if acts and tool.idempotency_key is None:
            found.add(("no-idempotency-key", "yellow", name))
        if "sql" in node.config:
            found.add(("raw-sql", "red", name))
        if node.operation == "delete":
            found.add(("hard-delete", "red", name))
        if changes and not config.get("filter"):
            found.add(("unbounded-update", "red", name))
        if changes and config.get("filter") and not one_row and not config.get("limit", 1000) <= 100:
            found.add(("many-rows", "yellow", name))
        if node.type == "read" and not one_row and "limit" not in config:
            found.add(("read-without-limit", "yellow", name))
    return found


def as_networkx(tool: FlowTool) -> nx.DiGraph:
    graph = nx.DiGraph()
    graph.add_nodes_from(tool.nodes)
    graph.add_edges_from((edge.source, edge.target) for edge in tool.edges)
    return graph


@settings(max_examples=300, deadline=None)
@given(flows())
def test_every_finding_is_what_the_search_through_all_paths_says(tool):
    graph = as_networkx(tool)
    found = findings(tool)
    reported = {(each.rule, each.risk, each.node) for each in found}
    assert len(reported) + sum(each.rule == "3" for each in found) >= len(found) - sum(
        each.rule == "4" for each in found
    )
    reached = {tool.start} | nx.descendants(graph, tool.start)
    assert nx.is_directed_acyclic_graph(graph) == (not any(each.rule == "1" for each in found))
    for each in found:
        if each.rule == "1":
            assert each.path[0] == each.path[-1]
            assert nx.is_path(graph, each.path)
    assert {each.node for each in found if each.rule == "6"} == tool.nodes.keys() - reached
    ends = {name for name in graph if graph.out_degree(name) == 0}
    dead = {name for name in reached if name not in ends and not nx.descendants(graph, name) & ends}
    wanted = {"if": {"true", "false"}, "switch": {"default"}}
    for name in reached - ends:
        labels = {edge.label for edge in tool.edges if edge.source == name}
        dead |= {name} if wanted.get(tool.nodes[name].type, set()) - labels else set()
    assert dead == {each.node for each in found if each.rule == "3"}
    event(f"acyclic {nx.is_directed_acyclic_graph(graph)}, {risk_of(found)}")
    if nx.is_directed_acyclic_graph(graph):
        rest = {each for each in reported if each[0] not in {"3", "6"}}
        assert assessed_by_paths(tool, graph) | assessed_by_nodes(tool, reached) == rest
        order = ("green", "yellow", "red")
        assert order[max((order.index(risk) for _, risk, _ in reported), default=0)] == risk_of(found)


@settings(max_examples=150, deadline=None)
@given(flows(["transform", "transform", "if", "switch"]), st.data())
def test_an_expression_reads_a_node_exactly_if_that_node_dominates_it(tool, data):
    graph = as_networkx(tool)
    reader, read = (data.draw(st.sampled_from(sorted(tool.nodes))) for _ in range(2))
    node = tool.nodes[reader]
    if not nx.is_directed_acyclic_graph(graph) or node.type != "transform" or tool.nodes[read].type != "transform":
        return
    asked = tool_of(
        {
            name: ("transform", {"expression": f"{read}.result"}) if name == reader else each.type
            for name, each in tool.nodes.items()
        },
        [(edge.source, edge.target, *([edge.label] if edge.label else [])) for edge in tool.edges],
    )
    reached = {tool.start} | nx.descendants(graph, tool.start)
    parents = nx.immediate_dominators(graph.subgraph(reached), tool.start)
    if reader not in reached:
        return
    above, at = set(), reader
    while at != tool.start:
        at = parents[at]
        above.add(at)
    problems = assess(asked).problems
    event(f"bound {read in above - {reader}}")
    assert (read in above - {reader}) == (not problems), problems


@settings(max_examples=60, deadline=None)
@given(flows())
def test_every_flow_can_be_drawn_and_checked(tool):
    drawn = draw(tool, findings(tool))
    assert drawn.count("<g class=") == len(tool.nodes)
    assert drawn.count("url(#end)") == len(tool.edges)
    assess(tool)
