"""Flow tools for tests: the documents' examples, and small ones made of nodes and edges."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

from oauthbroker.flowtools.specification.spec import FlowTool, load_tool

EXAMPLES = Path(__file__).parent / "examples"
CONFIGS: dict[str, dict[str, Any]] = {
    "read": {"entity": "Order", "filter": {"id": "input.id"}},
    "write": {"entity": "Order", "operation": "create"},
    "transform": {"expression": "1"},
    "if": {"expression": "input.id == 'a'"},
    "switch": {"expression": "input.id"},
    "timeout": {"seconds": 5},
    "payment": {"provider": "stripe", "action": "charge"},
    "email": {"to": "input.id", "subject": "'s'", "body": "'b'"},
    "sms": {"to": "input.id", "body": "'b'"},
    "httpRequest": {"url": "https://api.example.com/v1", "oauthAppRef": "OAuthApp/mail", "method": "POST"},
    "policyCheck": {"policy": "maxRowLimit"},
    "assert": {"expression": "true"},
}


def example(name: str) -> bytes:
    return (EXAMPLES / name).read_bytes()


def written(nodes: dict[str, Any], edges: list[tuple[str, ...]], start: str = "a", **more: Any) -> dict[str, Any]:
    """A specification. A node is its type, or its type and its config; an edge is (from, to) or (from, to, label)."""
    made = {}
    for name, node in nodes.items():
        kind, config = (node, {}) if isinstance(node, str) else node
        made[name] = {"type": kind, "config": config or CONFIGS.get(kind, {})}
    lines = [{"from": edge[0], "to": edge[1], **({"label": edge[2]} if edge[2:] else {})} for edge in edges]
    schema = {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}, "n": {"type": "number"}}}
    made_up = {
        "name": "tool",
        "version": 1,
        "description": "A tool",
        "trigger": {"type": "http"},
        "input": schema,
        "output": {"type": "object"},
        "flow": {"startNode": start, "nodes": made, "edges": lines},
        "idempotencyKey": "input.id",
        "policies": ["paymentRollback"],
        **more,
    }
    return {name: value for name, value in made_up.items() if value is not None}


def tool_of(nodes: dict[str, Any], edges: list[tuple[str, ...]], start: str = "a", **more: Any) -> FlowTool:
    return load_tool(json.dumps(written(nodes, edges, start, **more)).encode(), "tool.json")


def chain(*names: str) -> list[tuple[str, ...]]:
    return [*pairwise(names)]
