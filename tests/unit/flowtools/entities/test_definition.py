"""Entities as documents: every problem at once."""

from __future__ import annotations

import json

import pytest

from oauthbroker.flowtools.entities.definition import entities_by_name, load_entity
from oauthbroker.flowtools.specification.source import FlowRefused
from tests.unit.flowtools.entity_kit import ORDER, entity_of


def test_an_entity_has_fields_a_status_machine_invariants_and_a_row_policy():
    order = entity_of(ORDER)
    assert order.status is not None
    assert order.row_policy is not None
    assert ("Order", "open") == (order.name, order.status.initial)
    assert {"open": ("paid", "cancelled"), "paid": (), "cancelled": ()} == order.status.transitions
    assert ["The total is negative"] == [message for _, message in order.conditions]
    assert ("customerId", frozenset({"staff"})) == (order.row_policy.field, order.row_policy.all_rows)


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"name": "order"}, "name"),
        ({"name": "O" * 51, "invariants": []}, "name"),
        ({"fields": {}}, "fields"),
        ({"fields": {"a": {"type": "money"}}}, "fields.a.type"),
        ({"fields": {"id": {"type": "uuid"}}}, "fields.id"),
        ({"fields": {"version": {"type": "integer"}}}, "fields.version"),
        ({"fields": {"status": {"type": "string"}}}, "fields.status"),
        ({"fields": {"ab": {"type": "string"}, "aB": {"type": "string"}}}, "fields.aB"),
        ({"fields": {"null": {"type": "string"}}}, "fields.null"),
        ({"status": {"initial": "none", "transitions": {"open": []}}}, "status.initial"),
        ({"status": {"initial": "open", "transitions": {"open": ["payd"], "paid": []}}}, "status.transitions.open"),
        ({"rowPolicy": {"field": "total"}}, "rowPolicy.field"),
        ({"rowPolicy": {"field": "note"}}, "rowPolicy.field"),
        ({"invariants": [{"expression": "order.totals > 0"}]}, "invariants"),
        ({"invariants": [{"expression": "order.total"}]}, "invariants"),
        ({"indexes": []}, "indexes"),
    ],
)
def test_a_declaration_is_refused_with_its_place(change, path):
    with pytest.raises(FlowRefused) as refused:
        entity_of({**ORDER, **change})
    assert path in {each.path for each in refused.value.problems}


def test_all_problems_come_at_once():
    invalid = {**ORDER, "fields": {"id": {"type": "uuid"}}, "status": {"initial": "x", "transitions": {}}}
    with pytest.raises(FlowRefused) as refused:
        load_entity(json.dumps(invalid, indent=1).encode(), "order.json")
    assert {"fields.id", "status.initial", "rowPolicy.field"} == {each.path for each in refused.value.problems}


def test_names_that_would_share_a_table_are_refused():
    with pytest.raises(ValueError, match="two entities"):
        entities_by_name([entity_of(ORDER), entity_of({**ORDER, "name": "ORder", "invariants": []})])
