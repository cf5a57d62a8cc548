"""Charges of a run, and which of them a failed run still owes. The step of a refund has the name of its charge's node
with `/refund`; no id of a node has a slash. Its value is the failure, so that a killed process goes on to refund."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oauthbroker.flowtools.failures import FlowFailed
from oauthbroker.flowtools.graph import graph_of, order
from oauthbroker.flowtools.running.journal import DONE, SENT, UNKNOWN, RunStep
from oauthbroker.flowtools.spec import FlowTool, Node

REFUND: Final = "/refund"


def charges(tool: FlowTool) -> list[Node]:
    """Return the payments that are no refunds, the last one of a path first."""
    nodes = [tool.nodes[name] for name in reversed(order(graph_of(tool)))]
    return [node for node in nodes if node.type == "payment" and node.operation != "refund"]


def unrefunded(tool: FlowTool, steps: Mapping[str, RunStep]) -> list[Node]:
    """Return the charges that happened, or may have, without those that are refunded."""
    states = {name: step.state for name, step in steps.items()}
    return [
        node
        for node in charges(tool)
        if states.get(node.id) in {DONE, SENT, UNKNOWN} and states.get(node.id + REFUND) != DONE
    ]


def failure_of(steps: Mapping[str, RunStep]) -> FlowFailed | None:
    """Return why a run failed whose charges are being refunded; None for another run."""
    found = next((step.value for name, step in steps.items() if name.endswith(REFUND)), None)
    return found and FlowFailed(found["code"], found["message"])
