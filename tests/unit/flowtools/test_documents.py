"""The documents' printed schemas and examples: loaded verbatim, and assessed as printed."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from oauthbroker.flowtools.risk.assessment import assess
from oauthbroker.flowtools.risk.rules import findings
from oauthbroker.flowtools.specification.source import published_schema
from oauthbroker.flowtools.specification.spec import load_tool
from tests.unit.flowtools.kit import example, tool_of, written

PRINTED = json.loads(example("printed-schemas.json"))
READ = {"type": "read", "config": {"entity": "Vehicle", "filter": {"id": "input.vehicleId"}}}


def reservation() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(example("createReservation.json"))
    return data


def with_vehicle() -> dict[str, Any]:
    """Example 000 with the smallest addition that it lacks: it never reads the Vehicle that it uses."""
    data = reservation()
    flow = data["flow"]
    flow["nodes"]["readVehicle"] = READ
    flow["edges"].insert(0, {"from": "readVehicle", "to": "calcPrice"})
    flow["startNode"] = "readVehicle"
    return data


def missing(printed: Any, ours: Any, at: str = "") -> list[str]:
    """What the printed schema has and ours has not. Ours may add members, bounds and spellings."""
    if isinstance(printed, dict):
        return [
            line
            for key, value in printed.items()
            for line in (missing(value, ours[key], f"{at}/{key}") if key in ours else [f"{at}/{key}"])
        ]
    if isinstance(printed, list):
        return [f"{at}: {each}" for each in printed if each not in ours]
    return [] if printed == ours else [f"{at}: {printed}"]


@pytest.mark.rule(
    "000-schema", "000-top-name", "000-top-version", "000-top-description", "000-trigger-1", "000-graph-1", "000-node-1",
    "000-edge-1", "000-auth-1", "001-fields",
)  # fmt: skip
@pytest.mark.parametrize("name", PRINTED)
def test_the_published_schema_has_all_that_is_printed(name):
    ours = published_schema()["$defs"][name] if name else published_schema()
    known_differences = {
        "": [],
        "FlowGraph": ["/properties/nodes/type", "/properties/nodes/additionalProperties"],  # of the map's form, below
    }
    assert known_differences.get(name, []) == missing(PRINTED[name], ours)


def test_the_map_of_nodes_is_the_printed_one():
    of_map = published_schema()["$defs"]["FlowGraph"]["properties"]["nodes"]["else"]
    assert [] == missing(PRINTED["FlowGraph"]["properties"]["nodes"], of_map)


@pytest.mark.rule("000-example-1")
def test_example_000_loads_verbatim_is_green_and_lacks_the_read_of_the_vehicle():
    tool = load_tool(example("createReservation.json"), "createReservation.json")
    assessment = assess(tool)
    assert ("green", (), "no", "none") == (
        assessment.risk,
        assessment.findings,
        assessment.deployable,
        assessment.concurrency,
    )
    (problem,) = assessment.problems
    assert (35, 15, "flow.nodes.calcPrice.config.expression") == (problem.line, problem.column, problem.path)
    assert "vehicle.dailyRate is not bound here" in problem.what
    assert "read the entity Vehicle" in problem.hint


@pytest.mark.rule("000-example-1", "000-rules-4")
def test_example_000_is_deployable_with_the_read_of_the_vehicle():
    assessment = assess(load_tool(json.dumps(with_vehicle()).encode(), "tool.json"))
    assert ("green", (), (), "yes") == (
        assessment.risk,
        assessment.findings,
        assessment.problems,
        assessment.deployable,
    )
    (note,) = assessment.notes
    assert "it may find no row" in note


@pytest.mark.rule("000-top-idempotency", "001-idempotency", "001-example-5")
def test_the_idempotency_keys_of_both_examples_are_those_of_their_input():
    assessment = assess(load_tool(json.dumps(with_vehicle()).encode(), "tool.json"))
    given = {
        "customerId": "c",
        "vehicleId": "v",
        "startDate": "2026-01-01T00:00:00Z",
        "endDate": "2026-01-03T12:00:00Z",
    }
    assert "c-v-2026-01-01T00:00:00Z" == assessment.expressions["idempotencyKey",].value({"input": given})
    price = assessment.expressions["flow", "nodes", "calcPrice", "config", "expression"]
    assert 100.0 == price.value({"input": given, "vehicle": {"dailyRate": 40}})
    notes = assessment.expressions["flow", "nodes", "createRecord", "config", "fields", "notes"]
    assert notes.value({"input": given}) is None
    paying = assess(load_tool(example("processPayment.json"), "processPayment.json"))
    assert "r-20" == paying.expressions["idempotencyKey",].value({"input": {"reservationId": "r", "amount": 20}})


@pytest.mark.rule("001-example-1", "001-example-4", "000-top-risk", "001-risk-2")
def test_example_001_loads_verbatim_and_is_yellow_as_printed():
    assessment = assess(load_tool(example("processPayment.json"), "processPayment.json"))
    assert ("yellow", (), "acknowledge") == (assessment.risk, assessment.problems, assessment.deployable)
    (note,) = assessment.notes
    assert note.startswith("validate-reservation: it may find no row")
    assert [("5", "charge"), ("external-without-timeout", "charge")] == [
        (each.rule, each.node) for each in assessment.findings
    ]


@pytest.mark.rule("001-example-2", "001-example-3")
def test_example_001_with_the_payment_before_the_commit_is_red():
    data = json.loads(example("processPayment.json"))
    names = ["validate-reservation", "check-status", "tx-start", "create-payment", "charge", "tx-end"]
    data["flow"]["edges"] = [{"from": one, "to": other} for one, other in pairwise(names)]
    assessment = assess(load_tool(json.dumps(data).encode(), "tool.json"))
    assert ("red", "no") == (assessment.risk, assessment.deployable)
    assert "external-in-transaction" in {each.rule for each in assessment.findings if each.risk == "red"}


@pytest.mark.rule("000-top-risk", "001-risk-4")
@pytest.mark.parametrize(("wrote", "note"), [(None, 0), ("yellow", 0), ("green", 1), ("red", 1)])
def test_a_written_risk_decides_nothing_and_a_difference_is_told(wrote, note):
    data = json.loads(example("processPayment.json"))
    data["riskLevel"] = wrote
    if wrote is None:
        del data["riskLevel"]
    assessment = assess(load_tool(json.dumps(data).encode(), "tool.json"))
    assert ("yellow", note) == (assessment.risk, sum("riskLevel" in each for each in assessment.notes))


@pytest.mark.rule("001-dialect", "000-graph-1", "000-node-2")
def test_both_dialects_are_one_flow_and_positions_have_no_effect():
    data = with_vehicle()
    one = load_tool(json.dumps(data).encode(), "tool.json")
    flow = data["flow"]
    flow["nodes"] = [
        {
            "id": name,
            "type": node["type"][0].upper() + node["type"][1:],
            "position": {"x": 1, "y": 2.5},
            "config": {
                ("action" if key == "operation" else key): value for key, value in node.get("config", {}).items()
            },
        }
        for name, node in flow["nodes"].items()
    ]
    other = load_tool(json.dumps(data).encode(), "tool.json")
    assert one.edges == other.edges
    for name, node in one.nodes.items():
        assert (node.type, node.operation, node.config) == (
            other.nodes[name].type,
            other.nodes[name].operation,
            other.nodes[name].config,
        )
    assert (findings(one), assess(one).problems) == (findings(other), assess(other).problems)


@pytest.mark.rule("000-auth-1", "000-auth-2", "001-auth-1")
def test_authentication_is_required_unless_it_is_turned_off_and_no_roles_means_all():
    tool = tool_of({"a": "transform"}, [])
    assert (True, ()) == (tool.auth_required, tool.allowed_roles)
    open_one = tool_of({"a": "transform"}, [], auth={"required": False, "allowedRoles": ["staff"]})
    assert (False, ("staff",)) == (open_one.auth_required, open_one.allowed_roles)


@pytest.mark.rule("000-edge-2", "000-edge-3")
def test_edges_carry_their_label_and_their_mapping():
    data = written({"a": "if", "b": "transform", "c": "transform"}, [("a", "b", "true"), ("a", "c", "false")])
    data["flow"]["edges"][0]["dataMapping"] = {"total": "amount"}
    first, second = load_tool(json.dumps(data).encode(), "tool.json").edges
    assert ("true", {"total": "amount"}, "false", {}) == (
        first.label,
        first.data_mapping,
        second.label,
        second.data_mapping,
    )


@pytest.mark.rule("000-types-read", "000-types-rest")
def test_every_node_kind_loads_in_both_spellings():
    for kind in PRINTED["FlowNode"]["properties"]["type"]["enum"]:
        for spelling in (kind, kind[0].upper() + kind[1:]):
            data = written({"a": kind}, [])
            data["flow"]["nodes"]["a"]["type"] = spelling
            assert kind == load_tool(json.dumps(data).encode(), "tool.json").nodes["a"].type
    assert tool_of({"a": ("read", {"composite": "OrderView", "limit": 5})}, []).nodes["a"].config["composite"]
