"""What a flow tool costs: its check, its deployment, and a run beside a hand-written handler of the same work.

The tool is the specification's `createReservation`, with the read of the vehicle. The handler validates the same input,
reads, computes, writes the row, its idempotency key and an audit line in one transaction of the same SQLite database.
A run writes more: who called with which input, and each step, so that it survives a kill. The disk is synced by both.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

import jsonschema_rs
import sqlalchemy as sa

from bench.figures import called_in_turn, parser, show_in_turn
from oauthbroker.flowtools.entities.database import Database, apply, table_of
from oauthbroker.flowtools.entities.definition import Entity, load_entity
from oauthbroker.flowtools.entities.rows import Rows
from oauthbroker.flowtools.risk.assessment import assess
from oauthbroker.flowtools.running.contract import FlowRuns
from oauthbroker.flowtools.specification.failures import Actor
from oauthbroker.flowtools.specification.spec import load_tool
from tests.kit.flow_versions import versions_in

EXAMPLE = Path(__file__).parents[1] / "tests/unit/flowtools/examples/createReservation.json"
UUID, VEHICLE = "6f9619ff-8b86-4011-b42d-00cf4fc964ff", "6f9619ff-8b86-4011-b42d-00cf4fc96400"
ENTITIES: tuple[dict[str, Any], ...] = (
    {"name": "Vehicle", "fields": {"dailyRate": {"type": "number", "required": True}}},
    {
        "name": "Reservation",
        "fields": {
            "customerId": {"type": "uuid", "required": True},
            "vehicleId": {"type": "uuid", "required": True},
            "startDate": {"type": "date-time"},
            "endDate": {"type": "date-time"},
            "totalPrice": {"type": "number", "required": True},
            "notes": {"type": "string"},
        },
        "status": {"initial": "confirmed", "transitions": {"confirmed": []}},
    },
)
CALLER = Actor(id=UUID, roles=frozenset({"customer"}))


def specification(version: int = 1) -> bytes:
    document = json.loads(EXAMPLE.read_text("utf-8"))
    flow = document["flow"]
    read = {"type": "read", "config": {"entity": "Vehicle", "filter": {"id": "input.vehicleId"}}}
    flow["nodes"]["readVehicle"], flow["startNode"] = read, "readVehicle"
    flow["edges"].insert(0, {"from": "readVehicle", "to": "calcPrice"})
    return json.dumps({**document, "version": version}).encode()


def bookings() -> Iterator[dict[str, Any]]:
    """Yield inputs, each with an idempotency key of its own."""
    for number in count():
        start = f"2026-11-24T00:{number // 60 % 60:02}:{number % 60:02}.{number // 3600:06}Z"
        yield {"customerId": UUID, "vehicleId": VEHICLE, "startDate": start, "endDate": "2026-12-01T00:00:00Z"}


def handler(database: Database, entity: Entity) -> Callable[[dict[str, Any]], None]:
    """Return a handler as an engineer writes it: one transaction, and no journal of steps."""
    schema = jsonschema_rs.validator_for(json.loads(specification())["input"], validate_formats=True)
    rows, notes = table_of(entity), sa.MetaData()
    vehicles = sa.table("entity_vehicle", sa.column("id"), sa.column("dailyRate"))
    keys = sa.Table("handler_key", notes, sa.Column("key", sa.Text, primary_key=True), sa.Column("answer", sa.Text))
    audit = sa.Table(
        "handler_audit", notes, sa.Column("number", sa.Integer, primary_key=True), sa.Column("by", sa.Text)
    )
    notes.create_all(database.engine)
    number = count()

    def call(given: dict[str, Any]) -> None:
        schema.validate(given)
        key = f"{given['customerId']}-{given['vehicleId']}-{given['startDate']}"
        with database.transaction() as connection:
            if connection.execute(sa.select(keys).where(keys.c.key == key)).first() is not None:
                return
            rate = connection.execute(sa.select(vehicles).where(vehicles.c.id == given["vehicleId"])).one().dailyRate
            start, end = (datetime.fromisoformat(given[name]) for name in ("startDate", "endDate"))
            price = (end - start).total_seconds() / 86_400 * rate
            own = {"id": f"row-{next(number)}", "version": 1, "status": "confirmed", "totalPrice": price}
            connection.execute(sa.insert(rows).values(**given, **own))
            connection.execute(sa.insert(keys).values(key=key, answer=json.dumps(own)))
            connection.execute(sa.insert(audit).values(by=UUID))

    return call


def main(*, quick: bool) -> None:
    rounds, batch = (3, 3) if quick else (40, 20)
    raw, entities = specification(), [load_entity(json.dumps(each).encode(), "entity.json") for each in ENTITIES]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        versions, numbers = versions_in(folder), count(1)
        checks = {
            "flow tool: parse the document as JSON": lambda: json.loads(raw),
            "flow tool: check": lambda: assess(load_tool(raw, "tool.json")),
        }
        show_in_turn(called_in_turn(checks, rounds, batch))
        deploys = {
            "flow tool: check, by turns": lambda: assess(load_tool(raw, "tool.json")),
            "flow tool: deploy": lambda: versions.deploy(specification(next(numbers)), "tool.json", by="ada"),
        }
        show_in_turn(called_in_turn(deploys, rounds, 1))

        database = Database(f"sqlite:///{folder / 'flows.db'}")
        apply(database, entities)
        runs, given = FlowRuns(database, entities, audit=list[object]().append), bookings()
        with database.transaction() as connection:
            known = {each.name: each for each in entities}
            Rows(connection, known, CALLER).create("Vehicle", {"dailyRate": 40}, VEHICLE)
        flow, by_hand = runs.ready(load_tool(raw, "tool.json")), handler(database, entities[1])

        def run(booking: dict[str, Any]) -> None:
            result = runs.call(flow, booking, CALLER)
            if result.state != "succeeded":
                raise AssertionError(result)

        again = next(given)
        run(again)
        by_hand(again)
        works = {"a hand-written handler": lambda: by_hand(next(given)), "flow tool: run": lambda: run(next(given))}
        show_in_turn(called_in_turn(works, rounds, batch))
        repeated = {
            "a hand-written handler, repeated": lambda: by_hand(again),
            "flow tool: repeated call": lambda: run(again),
        }
        show_in_turn(called_in_turn(repeated, rounds, batch))


if __name__ == "__main__":
    main(quick=parser().parse_args().quick)
