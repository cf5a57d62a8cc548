"""A policy that reads `amount` refuses a payment or an input without a number of that name."""

from __future__ import annotations

from typing import Any

import pytest

from oauthbroker.flowtools.specification.source import FlowRefused
from tests.unit.flowtools.kit import chain, written
from tests.unit.flowtools.run_kit import INPUT, STAFF, policy, world_in

pytestmark = pytest.mark.rule("policy-run")
CALL = {"id": "a"}


def _pays(**fields: str) -> tuple[str, dict[str, Any]]:
    return ("payment", {"provider": "stripe", "fields": fields})


def _of_input(**amount: Any) -> dict[str, Any]:
    return {**INPUT, "properties": {"id": {"type": "string"}, "n": {"type": "number"}, **amount}}


@pytest.mark.parametrize(
    ("nodes", "schema"),
    [
        ({"p": _pays(amount="'9999'")}, INPUT),
        ({"p": _pays(amount="{'value': 9999}")}, INPUT),
        ({"p": _pays(amount="[9999]")}, INPUT),
        ({"p": _pays(total="9999")}, INPUT),
        ({"p": _pays(Amount="9999")}, INPUT),
        ({"p": ("payment", {"provider": "stripe"})}, _of_input(amount={"type": "string"})),
        ({"p": ("payment", {"provider": "stripe"})}, _of_input()),
        ({"a": "transform"}, _of_input()),
        ({"a": "transform"}, _of_input(amount={"type": "array"})),
    ],
)
def test_a_tool_whose_budget_can_never_see_the_amount_is_refused(tmp_path, nodes, schema):
    world = world_in(tmp_path, policies=[policy()])
    with pytest.raises(FlowRefused, match="The policy p reads amount, which is no number here"):
        world.flow(nodes, [], input=schema, policies=["p", "paymentRollback"])
    world.flow(nodes, [], input=schema)


def test_a_check_of_a_budget_reads_the_amount_of_the_input_alone(tmp_path):
    world = world_in(tmp_path, policies=[policy()])
    nodes = {"c": ("policyCheck", {"policy": "p"}), "p": _pays(amount="1")}
    with pytest.raises(FlowRefused, match=r"nodes\.c\.config\.policy: The policy p reads amount"):
        world.flow(nodes, chain("c", "p"), input=_of_input())
    flow = world.flow(nodes, chain("c", "p"))
    ends = [world.runs.call(flow, {**CALL, **more}, STAFF).code for more in ({}, {"amount": 9}, {"amount": 3})]
    assert ["policyBlocked", "policyBlocked", None] == ends


@pytest.mark.parametrize("mapped", ["amount", "total"])
def test_an_amount_that_an_edge_maps_is_seen_by_its_name(tmp_path, mapped):
    world = world_in(tmp_path, policies=[policy()])
    nodes = {"a": ("transform", {"expression": "{'sum': input.n}"}), "p": ("payment", {"provider": "stripe"})}
    given: dict[str, Any] = {"policies": ["p", "paymentRollback"], "input": _of_input(), "idempotencyKey": None}
    tool = written(nodes, chain("a", "p"), "a", **given)
    tool["flow"]["edges"][0]["dataMapping"] = {"sum": mapped}
    if mapped == "total":
        with pytest.raises(FlowRefused, match="reads amount"):
            world.ready(tool)
        return
    flow = world.ready(tool)
    ends = [world.runs.call(flow, {**CALL, **more}, STAFF).code for more in ({"n": 9}, {"n": 3}, {})]
    assert ["policyBlocked", None, "policyBlocked"] == ends


@pytest.mark.parametrize(
    ("fields", "data"),
    [
        ({"amount": "input.n"}, {}),
        ({"amount": "input.n"}, {"amount": 3}),
        ({"amount": "input.open.sum"}, {"open": {"sum": "9999"}}),
        ({"amount": "input.open.sum"}, {"open": {"sum": {"value": 9999}}}),
        ({"amount": "input.open.sum"}, {"open": {"sum": True}}),
        ({}, {}),
    ],
)
def test_a_payment_without_a_number_for_its_budget_is_refused_before_it_is_sent(tmp_path, fields, data):
    world = world_in(tmp_path, policies=[policy(action="escalate")])
    node = _pays(**fields) if fields else ("payment", {"provider": "stripe"})
    schema = _of_input(amount={"type": "number"}, open={"type": "object"})
    flow = world.flow({"p": node}, [], policies=["p", "paymentRollback"], input=schema)
    result = world.runs.call(flow, {**CALL, **data}, STAFF)
    assert ("failed", "policyBlocked", []) == (result.state, result.code, world.shop.sent)
    assert result.message == "p: it reads amount, and there is no number of this name"


def test_a_tool_without_a_payment_is_refused_without_the_amount_that_its_budget_reads(tmp_path):
    world = world_in(tmp_path, policies=[policy()])
    flow = world.flow({"a": "transform"}, [], policies=["p"])
    ends = [world.runs.call(flow, {**CALL, **more}, STAFF).code for more in ({}, {"amount": 9}, {"amount": 3})]
    assert ["policyBlocked", "policyBlocked", None] == ends


def test_a_budget_looks_at_each_payment_of_a_run_by_itself(tmp_path):
    world = world_in(tmp_path, policies=[policy()])
    nodes = {"p": _pays(amount="3"), "q": _pays(amount="4"), "r": _pays(amount="6")}
    flow = world.flow(nodes, chain("p", "q", "r"), policies=["p", "paymentRollback"])
    assert "policyBlocked" == world.runs.call(flow, CALL, STAFF).code
    assert [("charge", 3.0), ("charge", 4.0)] == [(e.operation, e.fields["amount"]) for e in world.shop.sent[:2]]
    assert ["refund", "refund"] == [each.operation for each in world.shop.sent[2:]]
