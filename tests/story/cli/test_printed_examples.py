"""Both examples of the specification, from their file to the answers of a running broker."""

from __future__ import annotations

import json
from contextlib import closing
from http.client import HTTPConnection
from typing import Any

import pytest

from oauthbroker.flowtools.entities.database import Database
from oauthbroker.flowtools.entities.rows import Rows
from oauthbroker.flowtools.specification.failures import Actor
from oauthbroker.testing import IdentityProvider
from tests.kit.cli import BROKER, Desk, Done, serving
from tests.kit.flow_bundle import bundle, jwt
from tests.unit.flowtools.entity_kit import entity_of
from tests.unit.flowtools.example_kit import BOOKING, PAYMENT, RESERVATION, VEHICLE
from tests.unit.flowtools.kit import EXAMPLES, example
from tests.unit.flowtools.run_kit import OTHER, UUID

pytestmark = [pytest.mark.slow, pytest.mark.rule("000-example-1", "001-example-1", "001-example-6", "000-trigger-http")]
NOWHERE, PENDING = "6f9619ff-8b86-4011-b42d-00cf4fc9ffff", "6f9619ff-8b86-4011-b42d-00cf4fc9eeee"
RESERVE, PAY = "api/reservations", "api/payments/process"
WHOLE = {"reservationId": UUID, "amount": 9, "paymentMethod": "card"}
HUGE = json.dumps(WHOLE).replace('"amount": 9', f'"amount": {"9" * 401}').encode()
STATES = {"initial": "confirmed", "transitions": {"confirmed": ["cancelled"], "cancelled": []}}
ENTITIES: tuple[dict[str, Any], ...] = ({**RESERVATION, "status": STATES}, PAYMENT, VEHICLE)

# The path, the body, by a caller with which roles, the status, and the code or the refused place of the answer.
REFUSED: dict[str, tuple[str, Any, tuple[str, ...] | None, int, str]] = {
    "a missing member": (RESERVE, {**BOOKING, "endDate": None}, ("customer",), 400, "/endDate type"),
    "an id of another form": (RESERVE, {**BOOKING, "vehicleId": "v1"}, ("customer",), 400, "/vehicleId format"),
    "a vehicle that is not there": (RESERVE, {**BOOKING, "vehicleId": NOWHERE}, ("customer",), 404, "notFound"),
    "the end before the start": (
        RESERVE,
        {**BOOKING, "startDate": BOOKING["endDate"], "endDate": BOOKING["startDate"]},
        ("customer",),
        422,
        "assertFailed",
    ),
    "a text with NUL": (RESERVE, {**BOOKING, "notes": "a\0b"}, ("customer",), 400, "/notes nul"),
    "no caller": (RESERVE, BOOKING, None, 401, "unauthenticated"),
    "a caller without a role": (RESERVE, BOOKING, ("token_holder",), 403, "notAllowed"),
    "another caller of one key": (RESERVE, BOOKING, ("customer", "other"), 409, "idempotencyConflict"),
    "a reservation that is not there": (PAY, {**WHOLE, "reservationId": NOWHERE}, ("staff",), 404, "notFound"),
    "one that is not confirmed": (PAY, {**WHOLE, "reservationId": PENDING}, ("staff",), 422, "assertFailed"),
    "a negative amount": (PAY, {**WHOLE, "amount": -1}, ("staff",), 400, "/amount minimum"),
    "an amount beyond a double": (PAY, HUGE, ("staff",), 400, "/amount number"),
    "another way to pay": (PAY, {**WHOLE, "paymentMethod": "cash"}, ("staff",), 400, "/paymentMethod enum"),
    "no reservation": (PAY, {"amount": 9, "paymentMethod": "card"}, ("staff",), 400, "/reservationId required"),
    "a payer without a role": (PAY, WHOLE, (), 403, "notAllowed"),
}


class Flows:
    """A desk whose broker serves flow tools, payments played, on the SQLite beside its store."""

    def __init__(self, desk: Desk, idp: IdentityProvider) -> None:
        desk.ready_to_serve(idp)
        self.desk, self.folder = desk, desk.folder / "config"
        self.url = f"sqlite:///{desk.folder / 'store-flows.db'}"
        desk.write("broker", BROKER.format(base=desk.base, port=desk.port) + "  plugins: [flowtools]\n")
        bundle(self.folder, sandbox=True)
        for each in ENTITIES:
            (self.folder / "entities" / f"{each['name']}.json").write_text(json.dumps(each))

    def call(self, method: str, path: str, body: Any, *, token: str) -> tuple[int, Any]:
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        with closing(HTTPConnection("127.0.0.1", self.desk.port, timeout=30)) as line:
            line.request(method, f"/v1/flowtools/{path}", raw, headers)
            answer = line.getresponse()
            return answer.status, json.loads(answer.read())


@pytest.fixture
def flows(desk: Desk, idp: IdentityProvider) -> Flows:
    return Flows(desk, idp)


def typed(flows: Flows, *words: str) -> Done:
    return flows.desk.type("flow", *words)


def deploy_both(flows: Flows) -> None:
    """Deploy the files as printed: 000 with the read of the vehicle that it lacks, 001 with its acknowledgement."""
    printed = str(EXAMPLES / "createReservation.json")
    checked = typed(flows, "check", printed)
    assert (1, True) == (checked.code, "green, not deployable" in checked.out and "vehicle.dailyRate" in checked.out)
    document = json.loads(example("createReservation.json"))
    read = {"type": "read", "config": {"entity": "Vehicle", "filter": {"id": "input.vehicleId"}}}
    document["flow"]["nodes"]["readVehicle"] = read
    document["flow"]["edges"].insert(0, {"from": "readVehicle", "to": "calcPrice"})
    document["flow"]["startNode"] = "readVehicle"
    (flows.desk.folder / "createReservation.json").write_text(json.dumps(document))
    checked = typed(flows, "check", "createReservation.json")
    assert (0, True) == (checked.code, "version 1: green, deployable\n" in checked.out)
    assert "note: readVehicle: it may find no row" in checked.out
    deployed = ("--config", "config")
    assert 0 == typed(flows, "deploy", "createReservation.json", *deployed).code
    paying = str(EXAMPLES / "processPayment.json")
    checked = typed(flows, "check", paying)
    assert (0, True) == (checked.code, "yellow, deployable with acknowledgement" in checked.out)
    assert 1 == typed(flows, "deploy", paying, *deployed).code
    assert 0 == typed(flows, "acknowledge", paying, "--by", "Ada").code
    assert 0 == typed(flows, "deploy", paying, *deployed).code


def rows(flows: Flows, name: str) -> list[dict[str, Any]]:
    entities = {each["name"]: entity_of(each) for each in ENTITIES}
    database = Database(flows.url)
    try:
        with database.transaction() as connection:
            return Rows(connection, entities, None).read(name, {})
    finally:
        database.engine.dispose()


def fill(flows: Flows) -> None:
    entities = {each["name"]: entity_of(each) for each in ENTITIES}
    database = Database(flows.url)
    try:
        with database.transaction() as connection:
            made = Rows(connection, entities, Actor(id="a"))
            made.create("Vehicle", {"dailyRate": 40}, OTHER)
            for row in (UUID, PENDING):
                made.create("Reservation", {"customerId": UUID, "vehicleId": OTHER, "totalPrice": 9}, row)
            made.update("Reservation", {"id": PENDING}, {}, to="cancelled")
    finally:
        database.engine.dispose()


def caller(roles: tuple[str, ...]) -> str:
    return jwt(sub="bob" if "other" in roles else "ada", roles=roles)


def test_both_examples_answer_by_http_as_the_specification_says(flows: Flows) -> None:
    deploy_both(flows)
    with serving(flows.desk):
        fill(flows)
        status, booked = flows.call("POST", RESERVE, BOOKING, token=caller(("customer",)))
        assert (200, "confirmed", 100.0) == (status, booked["status"], booked["totalPrice"])
        assert {"id", "status", "totalPrice"} == booked.keys()
        assert (200, booked) == flows.call("POST", RESERVE, BOOKING, token=caller(("customer",)))
        assert (200, booked) == flows.call("POST", "tools/createReservation@1", BOOKING, token=caller(("customer",)))
        status, paid = flows.call("POST", PAY, WHOLE, token=caller(("staff",)))
        assert (200, {"paymentId", "status", "processedAt"}) == (status, paid.keys())
        assert (200, paid) == flows.call("POST", "tools/processPayment", WHOLE, token=caller(("staff",)))
        status, other = flows.call("POST", PAY, {**WHOLE, "amount": 10}, token=caller(("staff",)))
        assert (200, True) == (status, other["paymentId"] != paid["paymentId"])

        for name, (path, body, roles, status, what) in REFUSED.items():
            found, reported = flows.call("POST", path, body, token="" if roles is None else caller(roles))
            places = [f"{each['pointer']} {each['keyword']}" for each in reported.get("errors", ())]
            assert (status, True) == (found, what in (reported["code"], *places)), (name, reported)
        assert 3 == len(rows(flows, "Reservation")), "two that were there, and one that was booked"
        assert [9.0, 10.0] == sorted(row["amount"] for row in rows(flows, "Payment"))


@pytest.mark.parametrize(
    "path, status",
    [("api/payments%2Fprocess", 400), ("api/payments/%70rocess", 400), ("tools/processPayment@", 404)],
)
def test_another_spelling_of_an_address_is_none(flows: Flows, path: str, status: int) -> None:
    deploy_both(flows)
    with serving(flows.desk):
        fill(flows)
        assert status == flows.call("POST", path, WHOLE, token=caller(("staff",)))[0]
        assert 404 == flows.call("POST", f"tools/{'x' * 300}", WHOLE, token=caller(("staff",)))[0]
        assert 200 == flows.call("POST", PAY, WHOLE, token=caller(("staff",)))[0]


def test_commands_find_the_database_of_the_configuration_and_make_none(flows: Flows) -> None:
    deploy_both(flows)
    assert 2 == typed(flows, "runs").code
    assert not list(flows.desk.folder.glob("flows.db*"))
    planned = typed(flows, "plan", "config/entities")
    assert (0, True) == (planned.code, "Vehicle" in planned.out)
    assert not list(flows.desk.folder.glob("flows.db*"))
    with serving(flows.desk):
        fill(flows)
        assert 200 == flows.call("POST", RESERVE, BOOKING, token=caller(("customer",)))[0]
    listed = json.loads(typed(flows, "runs", "--config", "config", "--json").out)["runs"]
    assert ["createReservation"] == [each["tool"] for each in listed]
    assert "the tables fit the entities" in typed(flows, "plan", "config/entities", "--config", "config").out
    for words in (("approve", "none"), ("decline", "none")):
        done = typed(flows, *words, "--config", "config")
        assert (2, False) == (done.code, "no such database" in done.err)
    (flows.desk.folder / "call.json").write_text(json.dumps({**BOOKING, "startDate": "2026-11-25T00:00:00Z"}))
    given = ("--config", "config", "--input", "call.json", "--as", "ada", "--role", "staff")
    assert 0 == typed(flows, "run", "createReservation", *given).code
    assert 2 == len(json.loads(typed(flows, "runs", "--config", "config", "--json").out)["runs"])
    applied = ("run", "createReservation", "--apply", "--database", "sqlite:///flows.db")
    assert 1 == typed(flows, *applied, "--role", "staff", "--input", "call.json").code, "it has no vehicle"
    (made,) = flows.desk.folder.glob("flows.db")
    assert 0o600 == made.stat().st_mode & 0o777
