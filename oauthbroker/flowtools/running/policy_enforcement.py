"""Policies at run time: block, warn, escalate."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from oauthbroker.flowtools.running.flow import ReadyFlow
from oauthbroker.flowtools.specification.expressions import EvaluationFailed
from oauthbroker.flowtools.specification.failures import FlowFailed


class Escalated(Exception):
    """A policy asks for a person's decision."""

    def __init__(self, policy: str, message: str) -> None:
        super().__init__(message)
        self.policy = policy


def facts_of(
    data: Any, *, rows: int = 0, amount: Any = None, requests_per_minute: int = 0, payments_to_roll_back: int = 0
) -> dict[str, Any]:
    """Return what conditions read. `amount` is that of a payment; without one it is the input's member of that name."""
    given = amount if _is_number(amount) else data.get("amount") if isinstance(data, dict) else None
    return {
        "rows": rows,
        "amount": given if _is_number(given) else 0.0,
        "requestsPerMinute": requests_per_minute,
        "writesOutsideTransaction": 0,  # a flow with such a write is red and never runs
        "paymentsToRollBack": payments_to_roll_back,
        "input": data,
    }


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def evaluate_policies(
    flow: ReadyFlow,
    facts: Mapping[str, Any],
    names: Iterable[str],
    *,
    may_stop: bool = True,
    approved: Collection[str] = (),
) -> list[str]:
    """Evaluate policies. Return notes of those that warn, and of those that a person has `approved`. Raises FlowFailed
    for one that blocks or has no value, and Escalated, unless the run has stopped already."""
    notes = []
    for name in names:
        policy, condition = flow.policies[name]
        try:
            triggered = condition.value({**facts, "parameters": policy.parameters})
        except EvaluationFailed:
            raise FlowFailed("policyBlocked", f"{name}: its condition has no value") from None
        if triggered is False:
            continue
        text = f"{name}: {policy.message or policy.description}"
        if policy.action == "block":
            raise FlowFailed("policyBlocked", text)
        if policy.action == "escalate" and may_stop and name not in approved:
            raise Escalated(name, text)
        notes.append(f"{'approved' if name in approved else policy.action} {text}")
    return notes
