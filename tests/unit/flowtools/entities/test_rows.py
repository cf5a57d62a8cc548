"""Rows: types, status machine, invariants, soft delete and the row policy, on both databases."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

import pytest

from oauthbroker.flowtools.entities.rows import Rows
from oauthbroker.flowtools.specification.failures import Actor, FlowFailed
from tests.unit.flowtools.entity_kit import ORDER, database_with, entity_of, sqlite_url

ENTITIES = {"Order": entity_of(ORDER)}
STAFF = Actor(id="s", roles=frozenset({"staff"}))
ANN, BOB = Actor(id="ann"), Actor(id="bob")
FULL: dict[str, Any] = {
    "customerId": "ann", "total": 12.5, "count": 3, "gift": True, "note": "한글", "day": "2026-11-23",
    "ref": "6f9619ff-8b86-4011-b42d-00cf4fc964ff",
}  # fmt: skip


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request, tmp_path):
    url = sqlite_url(tmp_path)
    if request.param == "postgresql":
        server = request.getfixturevalue("postgres_server")
        server.empty_database(tmp_path.name.lower())
        url = server.url(tmp_path.name.lower()).reveal()
    opened = database_with(url, ORDER)
    yield opened
    opened.engine.dispose()


@contextmanager
def rows_of(database, actor=STAFF):
    with database.transaction() as connection:
        yield Rows(connection, ENTITIES, actor)


def test_a_row_comes_back_with_the_types_of_its_fields(database):
    with rows_of(database) as rows:
        made = rows.create("Order", {**FULL, "count": 3.0, "ref": FULL["ref"].upper()}, "a")
    assert {"id": "a", "version": 1, "status": "open", **FULL} == made
    assert (int, float, bool) == tuple(type(made[name]) for name in ("count", "total", "gift"))
    with rows_of(database) as rows:
        assert [made] == rows.read("Order", {"ref": FULL["ref"].upper(), "gift": True, "id": "A"})
        assert [] == rows.read("Order", {"note": None})
        assert 1 == rows.touched


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"total": "1"}, "valueInvalid"),
        ({"total": True}, "valueInvalid"),
        ({"count": 1.5}, "valueInvalid"),
        ({"count": 1e300}, "valueInvalid"),
        ({"gift": 1}, "valueInvalid"),
        ({"note": "a\0b"}, "valueInvalid"),
        ({"note": "\ud800"}, "valueInvalid"),
        ({"day": "2026-02-30"}, "valueInvalid"),
        ({"ref": "x'; DROP TABLE entity_order"}, "valueInvalid"),
        ({"total": None}, "valueMissing"),
        ({"customerId": None}, "valueMissing"),
    ],
)
def test_a_value_of_another_type_is_refused(database, fields, code):
    with rows_of(database) as rows:
        rows.create("Order", FULL, "a")
        with pytest.raises(FlowFailed) as created:
            rows.create("Order", {**FULL, **fields}, "b")
        with pytest.raises(FlowFailed) as updated:
            rows.update("Order", {"id": "a"}, fields)
    assert (code, code) == (created.value.code, updated.value.code)


def test_the_status_moves_by_its_machine_only(database):
    with rows_of(database) as rows:
        rows.create("Order", FULL, "a")
        (paid,) = rows.update("Order", {"id": "a"}, {"note": "n"}, to="paid")
        assert ("paid", 2, "n") == (paid["status"], paid["version"], paid["note"])
        for to in ("open", "cancelled", "none"):
            with pytest.raises(FlowFailed, match="no transition"):
                rows.update("Order", {"id": "a"}, {}, to=to)


def test_an_invariant_is_checked_on_each_changed_row(database):
    with rows_of(database) as rows:
        rows.create("Order", FULL, "a")
        rows.check_invariants()
        rows.update("Order", {"id": "a"}, {"total": -1})
        with pytest.raises(FlowFailed, match="The total is negative"):
            rows.check_invariants()
        rows.update("Order", {"id": "a"}, {"total": 1})
        rows.check_invariants()


def test_a_deleted_row_keeps_its_values_and_is_no_longer_reached(database):
    with rows_of(database) as rows:
        rows.create("Order", FULL, "a")
        (gone,) = rows.soft_delete("Order", {"id": "a"}, "2026-11-23T00:00:00Z")
        assert (FULL["note"], "2026-11-23T00:00:00Z") == (gone["note"], gone["deletedAt"])
        assert [] == rows.read("Order", {"id": "a"}) == rows.update("Order", {"id": "a"}, {"total": 2})


@pytest.mark.parametrize(("actor", "reached"), [(STAFF, ["a", "b"]), (ANN, ["a"]), (BOB, ["b"]), (None, [])])
def test_the_row_policy_holds_for_reads_and_writes(database, actor, reached):
    with rows_of(database) as rows:
        rows.create("Order", FULL, "a")
        rows.create("Order", {**FULL, "customerId": "bob"}, "b")
    with rows_of(database, actor) as rows:
        assert reached == [row["id"] for row in rows.read("Order", {})]
        assert reached == [row["id"] for row in rows.update("Order", {"total": 12.5}, {"note": "x"})]
        assert reached == [row["id"] for row in rows.update("Order", {"note": "x"}, {}, to="paid")]
        assert reached == [row["id"] for row in rows.soft_delete("Order", {"note": "x"}, "now")]


@pytest.mark.parametrize("actor", [BOB, None])
def test_the_row_policy_refuses_rows_for_another_owner(database, actor):
    with rows_of(database) as rows:
        rows.create("Order", {**FULL, "customerId": "bob"}, "b")
    with rows_of(database, actor) as rows:
        with pytest.raises(FlowFailed, match="another owner"):
            rows.create("Order", FULL, "a")
        with pytest.raises(FlowFailed, match="another owner"):
            rows.update("Order", {"id": "b"}, {"customerId": "ann"})
        with pytest.raises(FlowFailed, match="another owner"):
            rows.update("Order", {"id": "b"}, {"customerId": "ann"}, to="paid")


@pytest.mark.parametrize("filter_", [{"version": "1"}, {"status": 1.0}, {"id": True}, {"ref": "x"}])
def test_a_filter_of_another_type_is_refused(database, filter_):
    with rows_of(database) as rows, pytest.raises(FlowFailed, match="is no "):
        rows.read("Order", filter_)


def test_a_write_is_bounded(database):
    with rows_of(database) as rows:
        for name in "abc":
            rows.create("Order", FULL, name)
        assert ["a", "b"] == [row["id"] for row in rows.read("Order", {}, 2)]
        with pytest.raises(FlowFailed, match="more than 2 rows"):
            rows.update("Order", {"gift": True}, {"total": 1}, 2)
        with pytest.raises(FlowFailed, match="all rows"):
            rows.update("Order", {}, {"total": 1})


def test_what_fails_is_rolled_back(database):
    with pytest.raises(FlowFailed), rows_of(database) as rows:
        rows.create("Order", FULL, "a")
        rows.create("Order", {**FULL, "total": "x"}, "b")
    with rows_of(database) as rows:
        assert [] == rows.read("Order", {})


@pytest.mark.parametrize("field", ["status", "deletedAt", "id", "version", "nonsense"])
def test_no_write_sets_a_field_that_the_declaration_does_not_have(database, field):
    with rows_of(database) as rows, pytest.raises(FlowFailed, match=f"has no field {field} to write"):
        rows.create("Order", {"customerId": "ann", "total": 1, field: "x"}, "r9")
