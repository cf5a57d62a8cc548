"""Charges of a run, and which of them a failed run still owes. The step of a refund has the name of its charge's node
with `/refund`; no id of a node has a slash."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oauthbroker.flowtools.risk.graph import graph_of, order
from oauthbroker.flowtools.running.journal import DONE, RETRY, SENT, UNKNOWN, RunStep
from oauthbroker.flowtools.specification.spec import EXTERNAL, FlowTool, Node, has_effect

REFUND: Final = "/refund"


def payments(tool: FlowTool) -> list[Node]:
    """Return the payments that are no refunds, the last one of a path first."""
    nodes = [tool.nodes[name] for name in reversed(order(graph_of(tool)))]
    return [node for node in nodes if node.type == "payment" and node.operation != "refund"]


def unrefunded(tool: FlowTool, steps: Mapping[str, RunStep]) -> list[Node]:
    """Return the charges that happened, or may have, without those that are refunded."""
    states = {name: step.state for name, step in steps.items()}
    return [
        node
        for node in payments(tool)
        if states.get(node.id) in {DONE, SENT, UNKNOWN} and states.get(node.id + REFUND) != DONE
    ]


def frees_key(tool: FlowTool, steps: Mapping[str, RunStep]) -> bool:
    """Tell whether a failed run gives its key free: it committed nothing, or a charge of it certainly did not happen
    and nothing else outside did, so that the caller may come again with another card."""
    inside = {node.id for node in tool.nodes.values() if node.type not in EXTERNAL or not has_effect(node)}
    outside = [step.state for name, step in steps.items() if name not in inside]
    refused = any(node.id in steps and steps[node.id].state == RETRY for node in payments(tool))
    return not steps or (refused and not {DONE, SENT, UNKNOWN} & set(outside))
