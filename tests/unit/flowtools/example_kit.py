"""The entities of the documents' examples, and a booking."""

from __future__ import annotations

from typing import Any

from tests.unit.flowtools.run_kit import OTHER, UUID

TEXT, NUMBER = {"type": "string", "required": True}, {"type": "number", "required": True}
PAYMENT = {"name": "Payment", "fields": {"reservationId": TEXT, "amount": NUMBER, "paymentMethod": TEXT}}
VEHICLE = {"name": "Vehicle", "fields": {"dailyRate": NUMBER}}
RESERVATION: dict[str, Any] = {
    "name": "Reservation",
    "fields": {
        "customerId": {"type": "uuid", "required": True},
        "vehicleId": {"type": "uuid", "required": True},
        "startDate": {"type": "date-time"},
        "endDate": {"type": "date-time"},
        "totalPrice": NUMBER,
        "notes": {"type": "string"},
    },
    "status": {"initial": "confirmed", "transitions": {"confirmed": []}},
}
BOOKING = {
    "customerId": UUID,
    "vehicleId": OTHER,
    "startDate": "2026-11-24T00:00:00Z",
    "endDate": "2026-11-26T12:00:00Z",
}
