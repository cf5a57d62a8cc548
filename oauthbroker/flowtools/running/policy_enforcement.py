"""Policies at run time: block, warn, escalate."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from oauthbroker.flowtools.running.flow import ReadyFlow
from oauthbroker.flowtools.specification.expressions import EvaluationFailed
from oauthbroker.flowtools.specification.failures import FlowFailed


class Escalated(Exception):
    """A policy asks for a person's decision."""

    def __init__(self, policy: str, message: str) -> None:
        super().__init__(message)
        self.policy = policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What conditions read. `amount` is that of a payment; without one it is the input's member of that name."""

    rows: int = 0
    amount: float | None = None
    requests_per_minute: int = 0
    payments_to_roll_back: int = 0
    input: Any = field(default=None, repr=False)

    def values(self) -> dict[str, Any]:
        amount = self.amount
        if amount is None:
            given = self.input.get("amount") if isinstance(self.input, dict) else None
            amount = given if isinstance(given, int | float) and not isinstance(given, bool) else 0.0
        return {
            "rows": self.rows,
            "amount": amount,
            "requestsPerMinute": self.requests_per_minute,
            "writesOutsideTransaction": 0,  # a flow with such a write is red and never runs
            "paymentsToRollBack": self.payments_to_roll_back,
            "input": self.input,
        }


def evaluate_policies(
    flow: ReadyFlow,
    facts: Facts,
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
            triggered = condition.value({**facts.values(), "parameters": policy.parameters})
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
