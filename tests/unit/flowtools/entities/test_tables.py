"""Tables follow declarations, and no change of them loses data."""

from __future__ import annotations

from typing import Any

import pytest

from oauthbroker.flowtools.entities.database import Database, apply, plan
from oauthbroker.flowtools.entities.rows import Rows
from oauthbroker.flowtools.specification.failures import Actor
from tests.unit.flowtools.entity_kit import entity_of, sqlite_url

STAFF = Actor(id="u1", roles=frozenset({"staff"}))
ITEM: dict[str, Any] = {
    "name": "Item",
    "fields": {"name": {"type": "string", "required": True}, "price": {"type": "number"}, "old": {"type": "string"}},
    "status": {"initial": "draft", "transitions": {"draft": ["live"], "live": []}},
}


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request, tmp_path):
    if request.param == "sqlite":
        url = sqlite_url(tmp_path)
    else:
        server = request.getfixturevalue("postgres_server")
        name = f"flow_{tmp_path.name}".lower()
        server.empty_database(name)
        url = server.url(name).reveal()
    opened = Database(url)
    yield opened
    opened.engine.dispose()


def fields(**changed: dict[str, Any] | None) -> dict[str, Any]:
    return {**ITEM, "fields": {k: v for k, v in {**ITEM["fields"], **changed}.items() if v is not None}}


def with_row(database: Database, **values: Any) -> dict[str, Any]:
    with database.transaction() as connection:
        rows = Rows(connection, {"Item": entity_of(ITEM)}, STAFF)
        return rows.create("Item", {"name": "a", **values}, "0" * 32)


def test_a_table_is_planned_made_and_then_fits(database):
    item = entity_of(ITEM)
    assert ["Item: create the table"] == [str(each) for each in plan(database, [item])]
    assert ["Item: create the table"] == [str(each) for each in plan(database, [item])], "a plan changes nothing"
    apply(database, [item])
    assert [] == plan(database, [item])
    assert {"id": "0" * 32, "version": 1, "status": "draft", "name": "a", "price": 2.5, "old": None} == with_row(
        database, price=2.5
    )


SAFE = {
    "a field is added": fields(colour={"type": "string"}),
    "a field without values is removed": fields(old=None),
    "a field without values has another type": fields(old={"type": "integer"}),
    "a field that all rows have is required": fields(price={"type": "number", "required": True}),
    "an invariant is added": {**ITEM, "invariants": [{"expression": "item.name != ''"}]},
    "an unused status is removed": {**ITEM, "status": {"initial": "draft", "transitions": {"draft": []}}},
}


@pytest.mark.parametrize("name", SAFE)
def test_a_change_that_loses_nothing_is_made(database, name):
    apply(database, [entity_of(ITEM)])
    row = with_row(database, price=1)
    changed = entity_of(SAFE[name])
    assert not [each for each in plan(database, [changed]) if each.refused]
    apply(database, [changed])
    assert [] == plan(database, [changed])
    with database.transaction() as connection:
        (after,) = Rows(connection, {"Item": changed}, STAFF).read("Item", {"id": row["id"]})
    assert {**dict.fromkeys(changed.fields), **{k: row[k] for k in row if k in after}} == after


LOSSES = {
    "a field with values is removed": fields(price=None),
    "a field with values has another type": fields(price={"type": "string"}),
    "a new field is required and rows lack it": fields(colour={"type": "string", "required": True}),
    "a field is required and a row lacks it": fields(old={"type": "string", "required": True}),
    "a status of a row is removed": {**ITEM, "status": {"initial": "live", "transitions": {"live": []}}},
    "the status is removed": {key: value for key, value in ITEM.items() if key != "status"},
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_change_that_loses_data_is_refused_as_a_whole(database, name):
    apply(database, [entity_of(ITEM)])
    row = with_row(database, price=1)
    new, changed = entity_of({**ITEM, "name": "Other"}), entity_of(LOSSES[name])
    assert [each for each in plan(database, [changed]) if each.refused]
    with pytest.raises(ValueError, match=r"^refused: "):
        apply(database, [new, changed])
    assert ["Other: create the table"] == [str(each) for each in plan(database, [new, entity_of(ITEM)])]
    with database.transaction() as connection:
        assert [row] == Rows(connection, {"Item": entity_of(ITEM)}, STAFF).read("Item", {})


def test_a_table_of_another_program_is_refused_by_its_name(database):
    with database.transaction() as connection:
        connection.exec_driver_sql("CREATE TABLE entity_item (id text)")
    (change,) = plan(database, [entity_of(ITEM)])
    assert "entity_item" in change.refused
    with pytest.raises(ValueError, match=r"^refused: Item: create the table: .*entity_item"):
        apply(database, [entity_of(ITEM)])


@pytest.mark.parametrize("url", ["", "flows.db", "mysql://a/b", "sqlite://", "sqlite+other:///x"])
def test_another_database_is_refused(url):
    with pytest.raises(ValueError, match="database"):
        Database(url)
