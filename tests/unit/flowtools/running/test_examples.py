"""The documents' examples run end to end: 001 as printed, 000 with the read of the vehicle that it lacks."""

from __future__ import annotations

import json

import pytest

from oauthbroker.flowtools.running.ports import Ports, SandboxAdapter
from oauthbroker.flowtools.specification.failures import Actor
from tests.unit.flowtools.example_kit import BOOKING, PAYMENT, RESERVATION, VEHICLE
from tests.unit.flowtools.kit import example
from tests.unit.flowtools.run_kit import OTHER, STAFF, UUID, world_in


@pytest.mark.rule("001-example-1", "001-example-2", "001-example-3", "001-example-5", "001-example-6", "001-binding")
def test_001_runs_as_printed(tmp_path):
    ports = Ports(payments={"stripe": SandboxAdapter()}, sandbox=True)
    world = world_in(tmp_path, RESERVATION, PAYMENT, ports=ports)
    world.add("Reservation", UUID, customerId=UUID, vehicleId=OTHER, totalPrice=9)
    flow = world.ready(json.loads(example("processPayment.json")))
    call = {"reservationId": UUID, "amount": 9, "paymentMethod": "card"}
    first, again = world.runs.call(flow, call, STAFF), world.runs.call(flow, call, STAFF)
    assert ("succeeded", first) == (first.state, again)
    assert {"paymentId", "status", "processedAt"} == first.output.keys()
    assert [call] == [{name: row[name] for name in call} for row in world.rows("Payment")]
    missing = world.runs.call(flow, {**call, "reservationId": OTHER}, STAFF)
    assert ("failed", 1) == (missing.state, len(world.rows("Payment")))


@pytest.mark.rule("000-example-1", "000-dsl-2")
def test_000_runs_with_the_read_of_its_vehicle(tmp_path):
    world = world_in(tmp_path, RESERVATION, VEHICLE)
    world.add("Vehicle", OTHER, dailyRate=40)
    document = json.loads(example("createReservation.json"))
    read = {"type": "read", "config": {"entity": "Vehicle", "filter": {"id": "input.vehicleId"}}}
    document["flow"]["nodes"]["readVehicle"] = read
    document["flow"]["edges"].insert(0, {"from": "readVehicle", "to": "calcPrice"})
    document["flow"]["startNode"] = "readVehicle"
    flow = world.ready(document)
    first, again = (world.runs.call(flow, BOOKING, Actor(id=UUID, roles=frozenset({"customer"}))) for _ in range(2))
    (row,) = world.rows("Reservation")
    assert {"id": row["id"], "status": "confirmed", "totalPrice": 100.0} == first.output == again.output
    backwards = {**BOOKING, "startDate": BOOKING["endDate"], "endDate": BOOKING["startDate"]}
    assert ("assertFailed", 1) == (world.runs.call(flow, backwards, STAFF).code, len(world.rows("Reservation")))
