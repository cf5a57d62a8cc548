"""Policies as declarations: three of the product, others loaded and checked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oauthbroker.flowtools.risk.assessment import assess
from oauthbroker.flowtools.specification.policies import PRODUCT_POLICIES, check_condition, load_policy
from oauthbroker.flowtools.specification.source import FlowRefused
from tests.unit.flowtools.kit import tool_of

BUDGET: dict[str, Any] = {
    "name": "budget",
    "version": 1,
    "description": "A budget",
    "type": "budgetCheck",
    "condition": "amount > parameters.maxAmount && input.kind != 'gift'",
    "action": "escalate",
    "message": "Too much",
    "parameters": {"maxAmount": 500},
}


@pytest.mark.rule("policy-1", "000-top-policies", "001-policies")
def test_a_policy_loads_and_a_tool_may_name_it():
    policy = load_policy(json.dumps(BUDGET).encode(), "budget.json")
    assert ("budget", "escalate", {"maxAmount": 500}) == (policy.name, policy.action, policy.parameters)
    schema = {"type": "object", "required": ["amount"], "properties": {"amount": {"type": "number"}}}
    tool = tool_of({"a": "transform"}, [], policies=["budget"], input=schema, idempotencyKey=None)
    assert () == assess(tool, [policy]).problems
    assert 1 == len(assess(tool).problems)


@pytest.mark.rule("policy-2")
def test_the_product_brings_three_policies_whose_conditions_are_sound():
    assert {"maxRowLimit", "requireTransaction", "paymentRollback"} == PRODUCT_POLICIES.keys()
    for policy in PRODUCT_POLICIES.values():
        check_condition(policy)


@pytest.mark.rule("policy-1")
@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"type": "quota"}, "unknown value"),
        ({"action": "log"}, "unknown value"),
        ({"condition": "amount"}, "its value is not true or false (character 1)"),
        ({"condition": "amount > parameters.maxRows"}, "the name parameters.maxRows is not bound here (character 20)"),
        ({"condition": "balance > 0"}, "the name balance is not bound here (character 1)"),
        ({"parameters": {}}, "missing"),
        ({"parameters": {"maxAmount": -1}}, "too small or too short"),
        ({"name": "maxRowLimit"}, "a policy of the product"),
        ({"conditon": "true"}, "unknown field"),
    ],
)
def test_a_wrong_policy_is_refused(change, what):
    with pytest.raises(FlowRefused) as refused:
        load_policy(json.dumps(BUDGET | change).encode(), "budget.json")
    assert what in [each.what for each in refused.value.problems]
