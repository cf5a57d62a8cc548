"""Composites: rows of an entity together with related rows."""

from __future__ import annotations

from typing import Any

import pytest

from oauthbroker.flowtools.entities.definition import entities_by_name
from oauthbroker.flowtools.specification.failures import Actor
from oauthbroker.flowtools.specification.source import FlowRefused
from tests.unit.flowtools.entity_kit import entity_of
from tests.unit.flowtools.kit import chain, written
from tests.unit.flowtools.run_kit import BEGIN, STAFF, world_in

pytestmark = pytest.mark.rule("000-types-composite")
CUSTOMER = {"name": "Customer", "fields": {"title": {"type": "string"}, "owner": {"type": "string", "required": True}}}
SALE: dict[str, Any] = {
    "name": "Sale",
    "fields": {"customerId": {"type": "string"}, "total": {"type": "number"}},
    "composites": {
        "SaleView": {
            "customer": {"entity": "Customer", "key": "customerId"},
            "lines": {"entity": "Line", "of": "saleId"},
        }
    },
}
LINE: dict[str, Any] = {
    "name": "Line",
    "fields": {
        "saleId": {"type": "string"},
        "price": {"type": "number"},
        "owner": {"type": "string", "required": True},
    },
    "rowPolicy": {"field": "owner", "allRows": ["staff"]},
}


@pytest.fixture
def world(tmp_path):
    made = world_in(tmp_path, SALE, LINE, CUSTOMER)
    made.add("Customer", "c", title="Ann", owner="x")
    made.add("Sale", "a", customerId="c", total=1)
    made.add("Sale", "b", total=2)
    for at, owner in enumerate(("ann", "bob", "ann")):
        made.add("Line", f"l{at}", saleId="a", price=at + 1, owner=owner)
    yield made
    made.database.engine.dispose()


def read(world: Any, expression: str, actor: Actor = STAFF, **config: Any) -> Any:
    nodes = {
        "r": ("read", {"composite": "SaleView", "filter": {"id": "input.id"}, **config}),
        "t": ("transform", {"expression": expression}),
    }
    return world.runs.call(world.flow(nodes, chain(*nodes)), {"id": "a"}, actor).output["result"]


def test_a_composite_has_the_row_the_one_that_it_names_and_those_that_name_it(world):
    assert "Ann" == read(world, "saleView.customer.title")
    assert [1.0, 2.0, 3.0] == [line["price"] for line in read(world, "r.lines")]
    assert [] == read(world, "saleView.lines", filter={"id": "'b'"})
    assert True is read(world, "saleView.customer == null", filter={"id": "'b'"})
    assert [1, 2] == [row["total"] for row in read(world, "saleView", filter={}, limit=5)]


def test_the_row_policy_holds_for_each_part(world):
    assert ["l0", "l2"] == [line["id"] for line in read(world, "r.lines", Actor(id="ann"))]


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"composite": "Sale"}, "No declared composite"),
        ({"filter": {"price": "1"}}, "No field of Sale"),
        ({"filter": {}, "limit": 101}, "Too many composites at once"),
    ],
)
def test_a_read_of_a_composite_that_cannot_be_is_refused(world, config, why):
    with pytest.raises(FlowRefused, match=why):
        read(world, "1", **config)


def test_an_edge_maps_into_the_filter_of_a_composite(world):
    nodes = {
        "tx": BEGIN,
        "w": (
            "write",
            {"entity": "Sale", "operation": "update", "filter": {"id": "input.id"}, "fields": {"total": "9"}},
        ),
        "r": ("read", {"composite": "SaleView", "limit": 1}),
    }
    document = written(nodes, chain(*nodes), "tx", idempotencyKey=None)
    document["flow"]["edges"][1]["dataMapping"] = {"total": "total"}
    assert "a" == world.runs.call(world.ready(document), {"id": "a"}, STAFF).output["id"]


PART = {"entity": "Line", "of": "saleId"}
PROBLEMS: dict[str, tuple[dict[str, Any], str]] = {
    "a part with the name of a field": ({"total": PART}, "composites.SaleView.total"),
    "neither key nor of": ({"lines": {"entity": "Line"}}, "composites.SaleView.lines"),
    "both": ({"lines": {**PART, "key": "customerId"}}, "composites.SaleView.lines"),
    "a key that is no text": ({"lines": {"entity": "Line", "key": "total"}}, "composites.SaleView.lines.key"),
    "too many rows": ({"lines": {**PART, "limit": 101}}, "composites.SaleView.lines.limit"),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_declaration_is_refused_with_its_place(name):
    parts, path = PROBLEMS[name]
    with pytest.raises(FlowRefused) as refused:
        entity_of({**SALE, "composites": {"SaleView": parts}})
    assert path in {each.path for each in refused.value.problems}


@pytest.mark.parametrize(
    ("composites", "why"),
    [
        ({"V": {"lines": {"entity": "None", "of": "saleId"}}}, "no entity None"),
        ({"V": {"lines": {"entity": "Line", "of": "price"}}}, "no field price"),
        ({"Line": {"lines": PART}}, "two entities are named line"),
    ],
)
def test_a_part_leads_to_an_entity(composites, why):
    with pytest.raises(ValueError, match=why):
        entities_by_name([entity_of({**SALE, "composites": composites}), entity_of(LINE)])
